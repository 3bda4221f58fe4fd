"""The command line's reading commands, as a user types them."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.unit.made.synthetic import MadeStage, write_run
from tests.unit.targets.juju.juju_stub import certificates
from tippingpoint.cli.program import build_parser, main
from tippingpoint.rundir.ledger import remember
from tippingpoint.rundir.manifest import Manifest, process_started
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.targets.juju.ledger import JujuEntry, model_name
from tippingpoint.targets.juju.plan import JujuTarget

LOG = """\
  3.058s claimed  a1601/0 in 1.652s
 93.596s extended a0702/0 held for 1m30s in 47ms
169.662s extended a3105/1 held for 2m41s in 10.928s
703.082s lost     a2801/1 after 11m39s in 1m31.99s
"""


def call(*arguments: str | Path) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run imported from a log of four lines at two stages."""
    log = tmp_path / "claims.log"
    log.write_text(LOG)
    assert call("import", log, "--stage", "1000@1", "--stage", "2000@3", "--out", tmp_path / "runs") == 0
    return Path(capsys.readouterr().out.strip())


def described(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Every argument and option of a parser and of its commands, with its help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield f"{parser.prog} {choice.dest}", choice.help or ""
            for command in action.choices.values():
                yield from described(command)
        else:
            yield (
                f"{parser.prog} {'/'.join(action.option_strings) or action.metavar or action.dest}",
                action.help or "",
            )


def test_every_argument_of_every_command_says_what_it_is() -> None:
    told = dict(described(build_parser()))

    assert [name for name, text in told.items() if not text.strip()] == []
    assert {"tippingpoint run PLAN", "tippingpoint run --set", "tippingpoint import --title"} <= {*told}


def test_an_imported_log_reports_in_every_format(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("report", imported, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [stage["size"] for stage in document["stages"]] == [1000, 2000]
    assert call("report", imported, "--format", "md") == 0
    assert "| 1,000 |" in capsys.readouterr().out
    assert call("report", imported, "--format", "html") == 0
    assert capsys.readouterr().out.lower().startswith("<!doctype html>")
    assert call("report", imported, "--format", "junit") == 0
    assert ET.fromstring(capsys.readouterr().out).tag == "testsuite"


def test_a_published_transcript_compares_with_a_run(
    imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("compare", imported, "seed:juju-2.5.1", "--format", "json") == 0
    said = json.loads(capsys.readouterr().out)
    assert {row["size"] for row in said["rows"]} == {1000, 2000}


def test_published_figures_stand_beside_a_run(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("compare", imported, "seed:lxd-50-members") == 0
    assert "0.27" in capsys.readouterr().out


def test_a_regression_exits_with_1_unless_it_is_tolerated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given the same ramp twice before and twice after, every extension twice as slow after
    runs: list[str] = []
    for name, latency in (("before", 20), ("again", 20), ("after", 40), ("last", 40)):
        log = tmp_path / f"{name}.log"
        log.write_text(
            "".join(f" 9.0s extended a{n:04}/0 held for 30s in {latency + n % 7}ms\n" for n in range(900))
        )
        assert call("import", log, "--stage", "100@1", "--out", tmp_path, "--title", name) == 0
        runs.append(capsys.readouterr().out.strip())
    before, after = runs[:2], runs[2:]
    # when they are compared
    assert call("compare", *before, "--with", *after) == 1
    assert "extend p50 at 100 leases" in capsys.readouterr().out
    # then only a tolerance beyond the change lets it pass
    assert call("compare", *before, "--tolerance", "1.5", "--with", *after) == 0
    assert call("compare", *after, "--with", *before) == 0
    # and one run each says nothing, whichever of them is the baseline
    capsys.readouterr()
    assert call("compare", before[0], after[0]) == 0
    assert "One run each: differences between runs are not known." in capsys.readouterr().out
    assert call("compare", after[0], "--baseline", before[0]) == 0
    assert call("compare", before[0], "--baseline", before[0]) == 2
    # nor is a run a repeat of itself, a published result a repeat, or a control enough
    assert call("compare", *before, "--with", before[0]) == 2
    assert call("compare", *before, "--with", "seed:juju-2.5.1") == 2
    assert call("compare", before[0], "--control", before[1]) == 2
    assert call("compare", *before, "--with", *after, "--baseline", before[0]) == 2


def test_a_run_without_journals_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given a run, and one that ended before it measured anything
    whole = write_run(tmp_path / "whole", [MadeStage(500)])
    empty = write_run(tmp_path / "empty", [], workers=0, title="empty")
    another = write_run(tmp_path / "another", [], workers=0, title="another")
    for runs in ((whole, empty), (empty, whole), (empty, another)):
        assert call("compare", *runs) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "expected runs with stages, and this one has no journals" in err


def test_figures_that_were_published_compare_without_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("compare", "seed:etcd3", "--baseline", "seed:etcd2") == 0
    assert "v3 schema against v2 schema, as published: CPU at least 1 core less" in capsys.readouterr().out


def test_plans_are_listed_printed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("plans") == 0
    assert "etcd-leases-small" in capsys.readouterr().out
    assert call("plans", "etcd-find") == 0
    plan = yaml.safe_load(capsys.readouterr().out)
    assert call("plans", "--schema") == 0
    jsonschema.validate(plan, json.loads(capsys.readouterr().out))


def test_baselines_are_listed_with_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("baselines") == 0
    assert "seed:juju-2.5.1" in capsys.readouterr().out
    assert call("baselines", "lxd-50-members") == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert any(figure["value"] == 0.27 for figure in figures)


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "nowhere"],
        ["report", "seed:lxd-50-members"],
        ["report", "seed:nothing"],
        ["compare", "seed:etcd2", "seed:lxd-50-members"],
        ["compare", "seed:juju-2.5.0"],
        ["compare", "seed:a", "seed:b", "--tolerance", "-1"],
        ["compare", "seed:a", "seed:b", "--tolerance", "lots"],
        ["import", "nowhere.log"],
        ["clean", "nowhere"],
        ["plans", "nothing"],
        ["baselines", "nothing"],
        ["nonsense"],
    ],
)
def test_bad_input_is_one_line_and_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_no_command_is_a_question_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 0
    said = capsys.readouterr()
    assert said.out.startswith("usage: tippingpoint")
    assert said.err == ""


def test_a_tolerance_that_is_no_number_names_what_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("compare", "seed:a", "seed:b", "--tolerance", "x") == 2
    assert "x: expected a share from 0 to 100, such as 0.10" in capsys.readouterr().err


@pytest.mark.parametrize("plan", ["etcd-leases-small", "etcd-find"])
def test_a_controller_is_only_for_plans_of_juju(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", plan, "--controller", "prod") == 2
    assert (
        capsys.readouterr().err == "tippingpoint: --controller: prod: expected a plan whose target is juju\n"
    )


def test_a_run_that_goes_on_is_not_cleaned(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given a run whose process, this one, is there
    manifest = Manifest.load(imported)
    manifest.status, manifest.pid = "running", os.getpid()
    manifest.pid_started = process_started(os.getpid())
    manifest.save(imported)
    # when it is to be cleaned
    assert call("clean", imported) == 2
    # then it is refused in one line
    said = capsys.readouterr().err
    assert "still running" in said
    assert said.count("\n") == 1


def test_clean_needs_no_readable_journal(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for journal in imported.glob("worker-*"):
        journal.write_bytes(b"\xff\x00")
    assert call("clean", imported) == 0
    assert capsys.readouterr().out == "removed 0\n"


def test_a_clean_that_takes_its_time_says_what_it_is_about(imported: Path, tmp_path: Path) -> None:
    # given a run that made a model on a controller whose only server accepts connections and is silent
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(600)
        credentials = tmp_path / "me.yaml"
        credentials.touch(0o600)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        access = {"addresses": [address], "ca": certificates().ca, "user": "admin", "password": "secret"}
        credentials.write_text(yaml.safe_dump(access))
        prefix = name_prefix(Manifest.load(imported).id)
        target = JujuTarget(kind="juju", credentials=credentials)
        made = JujuEntry(prefix=prefix, model=model_name(prefix), made_model=True, target=target, store=None)
        remember(imported, made)
        # when it is cleaned
        command = [sys.executable, "-m", "tippingpoint", "clean", str(imported)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = silent.accept()
            with connection:
                assert process.stderr is not None
                # then what takes so long is said while it lasts, and not among the results
                said = process.stderr.readline()
                silent.close()
            out, rest = process.communicate(timeout=600)
        assert said == f"tippingpoint: removing model {model_name(prefix)}, which may take minutes\n"
        assert (process.returncode, out, rest.count("\n")) == (3, "", 1)


def test_a_run_with_a_plan_that_is_none_is_refused_in_one_line(
    imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = Manifest.load(imported)
    manifest.plan = {"bogus": 1}
    manifest.save(imported)
    assert call("report", imported) == 2
    assert capsys.readouterr().err.count("\n") == 1
