"""Commands for people: which runs there are, what completes a command, and the skeleton of a target."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tippingpoint.cli.program import main

KEPT = Path(__file__).parents[2] / "data/kept-runs"


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_no_command_at_all_is_a_question_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 0
    assert "positional arguments" in capsys.readouterr().out


def test_an_unknown_plan_names_the_three_that_are_most_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "etcd-rmp") == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "tippingpoint: plan: etcd-rmp: expected a file, or a shipped plan such as etcd-ramp, "
    )
    assert said.endswith(" (tippingpoint plans lists them)\n")
    assert len(said) < 150


def test_runs_are_listed_with_their_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given two runs, one of which nobody can read any more, and something else
    for number, name in enumerate(("etcd-v2", "etcd-search")):
        shutil.copytree(KEPT / name, tmp_path / f"2026112{number}-080000-{name}")
    broken = tmp_path / "20261129-080000-broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{}")
    (tmp_path / "notes").mkdir()
    # when they are listed
    assert call("runs", tmp_path) == 0
    head, ramp, search, last = capsys.readouterr().out.splitlines()
    # then the oldest comes first, and each says what is known of it
    assert head.split("  ")[0] == "run"
    assert ramp.split()[0] == "20261120-080000-etcd-v2"
    assert ramp.split()[-5:] == ["missed", "20", "to", "40", "leases"]
    assert search.split()[0] == "20261121-080000-etcd-search"
    assert "cannot be read" in last


def test_a_directory_without_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("runs", tmp_path) == 2
    assert "expected a directory with runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ("rum etcd-ramp", r": COMMAND: rum: expected one of run, check, .* \(did you mean run\?\)"),
        ("report seed:x --format pdf", " report: --format: pdf: expected one of text, html, md, json, junit"),
        (
            "report nosuch",
            " report: RUN: nosuch: expected `last`, a part of the id of .* or a run's directory",
        ),
        (
            "run etcd-ramp --jsn",
            r" run: unknown: --jsn: expected one of --help, .* \(did you mean --json\?\)",
        ),
        ("run etcd-ramp --passwort me", r" run: unknown: --passwort \(not shown\): expected one of .*"),
        (
            "plans etcd-ramp more",
            r" plans: unknown: more: expected no more arguments \(see tippingpoint plans --help\)",
        ),
        ("serve nosuch", r": RUNS: nosuch: expected a directory with runs \(tippingpoint run makes one\)"),
        ("serve RUN", ": RUNS: .*etcd: expected a directory with runs, such as .*kept-runs; this is one run"),
        ("serve . --port 99999", " serve: --port: 99999: expected a port from 1 to 65535"),
        ("serve . --port web", " serve: --port: web: expected a port from 1 to 65535"),
        ("runs nosuch", r": DIR: nosuch: expected a directory with runs \(tippingpoint run makes one\)"),
        ("runs RUN", ": DIR: .*etcd: expected a directory with runs, such as .*kept-runs; this is one run"),
        (
            "shape nosuch",
            ": STATUS: nosuch: expected a file with what `juju status .* prints .No such file or directory.",
        ),
        ("shape /dev/null", ": STATUS: /dev/null: expected what `juju status --format json` prints"),
        (
            "trend nosuch/",
            r": RUN: nosuch: expected a run, or a directory that has runs \(each with manifest.json\)",
        ),
        (
            "trend RUN --acknowledge me",
            ": --reason: missing: expected both --acknowledge RUN and --reason TEXT",
        ),
        ("compare RUN", ": RUN: .*etcd: expected two runs or more, or a run and seed:NAME"),
        ("new-target etcd", ": NAME: etcd: expected a new name: this kind of target exists"),
    ],
)
def test_a_wrong_use_names_the_argument_its_value_and_what_is_accepted(
    arguments: str, refusal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*arguments.replace("RUN", str(KEPT / "etcd")).split()) == 2
    assert re.fullmatch(f"tippingpoint{refusal}\n", capsys.readouterr().err)


def test_a_report_is_markdown_unless_a_terminal_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("report", KEPT / "etcd-v2") == 0
    assert capsys.readouterr().out.startswith("# kept-etcd: ")
    assert call("report", KEPT / "etcd-v2", "--format", "text") == 0
    assert "\nMissed: extend p99 was 1.56 s at 160 leases" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_plans_and_runs(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("completion", shell) == 0
    script = capsys.readouterr().out
    for word in ("new-target", "--prometheus", "etcd-ramp", "ls -1 runs"):
        assert word in script


def test_the_skeleton_of_a_target_has_its_own_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # when a skeleton is made
    assert call("new-target", "consul", "--out", tmp_path) == 0
    made = tmp_path / "tippingpoint-consul"
    assert str(made) in capsys.readouterr().out
    # then it has every file of the example, under names of its own
    assert {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()} == {
        "pyproject.toml",
        "plan.yaml",
        "tests/test_contract.py",
        *(f"consul_target/{name}.py" for name in ("__init__", "leases", "ledger", "plan", "target")),
    }
    for path in made.rglob("*.*"):
        if path.is_file():
            text = path.read_text()
            compile(text, str(path), "exec") if path.suffix == ".py" else None
            assert not {"lease_directory", "lease-directory", "DirectoryTarget", '"directory"]'} & set(
                text.split()
            )
    assert 'consul = "consul_target"' in (made / "pyproject.toml").read_text()
    # and another one does not replace it
    assert call("new-target", "consul", "--out", tmp_path) == 2


@pytest.mark.parametrize("name", ["etcd", "Consul", "my-target", "../x"])
def test_a_target_is_not_named_like_another_or_like_no_module(name: str, tmp_path: Path) -> None:
    assert call("new-target", name, "--out", tmp_path) == 2
    assert list(tmp_path.iterdir()) == []
