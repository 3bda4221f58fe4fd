"""Standard streams that are closed or full, disks that are full, and defects: one line and a documented code."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.test_kept_runs import KEPT
from tippingpoint.cli import program
from tippingpoint.cli.program import main
from tippingpoint.util.exit_codes import BAD_INPUT, CRASHED, MET, MISSED, TARGET_FAILED

PLAN = """\
name: nobody
target: {kind: etcd, endpoints: ["http://127.0.0.1:1"]}
workload: {units: 2, claim_time: 10s, renew_time: 1s}
stages: [{leases: 2, hold: 1s}]
"""
LOG = " 1.000s extended a1/0 held for 1m30s in 3ms\n"
EXECUTED: dict[str, tuple[int, str]] = {"plans": (MET, "plans"), "clean": (BAD_INPUT, "clean nowhere")}
"""Commands that Python is started for: their exit codes with streams that work, and what a user types."""
FORKED: dict[str, tuple[int, str]] = {
    "--help": (MET, "--help"),
    "no command": (MET, ""),
    "run --help": (MET, "run --help"),
    "a plan": (MET, "plans etcd-demo"),
    "baselines": (MET, "baselines"),
    "report": (MET, f"report {KEPT / 'etcd'}"),
    "compare": (MET, f"compare {KEPT / 'etcd'} {KEPT / 'etcd-v2'}"),
    "trend": (BAD_INPUT, "trend nowhere"),
    "resume": (BAD_INPUT, "resume nowhere"),
    "collect": (BAD_INPUT, "collect nowhere --prometheus http://127.0.0.1:1"),
    "atlas": (BAD_INPUT, "atlas check nowhere"),
    "import": (MET, "import claims.log --stage 1@1 --out runs"),
    "run": (TARGET_FAILED, "run plan.yaml --out runs"),
}
"""The same for commands that are forked, as it takes Python a second or two to import what some need."""
SPEECHLESS = {"trend", "clean", "resume", "collect", "atlas", "run"}
"""They have nothing to say on standard output."""
FORKS = """
import gc, glob, importlib, json, os, pkgutil, shlex, sys
import tippingpoint
from tippingpoint.__main__ import main
lines, keeps_messages = json.loads(sys.argv[1])
for module in pkgutil.walk_packages(tippingpoint.__path__, "tippingpoint."):
    if not module.name.endswith(".__main__"):
        importlib.import_module(module.name)
gc.freeze()
codes = {}
for name, line in lines.items():
    child = os.fork()
    if not child:
        if keeps_messages:
            said = os.open(f"{name}.said", os.O_WRONLY | os.O_CREAT)
            os.dup2(said, 2)
            os.close(said)
        named = [glob.glob(word) or [word] for word in shlex.split(line)]
        sys.argv = ["tippingpoint", *[path for paths in named for path in paths]]
        main()
        sys.exit()
    codes[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
with open("codes.json", "w") as file:
    json.dump(codes, file)
"""
"""Commands, one after the other, each in a fork of an interpreter that was started with its streams."""


def shell(line: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """A line as a shell carries it out."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=600,
        check=False,
    )


def typed(line: str, streams: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """A command with its streams redirected."""
    return shell(f"{shlex.quote(sys.executable)} -m tippingpoint {line} {streams}", directory)


def forked(lines: Mapping[str, str], streams: str, directory: Path) -> dict[str, tuple[int, list[str]]]:
    """The exit codes of commands with their streams redirected, and what they say on standard error, if that is
    open."""
    asked = shlex.quote(json.dumps([lines, "2>" not in streams]))
    done = shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(FORKS)} {asked} {streams}", directory)
    assert (done.returncode, done.stderr) == (0, "")
    codes: dict[str, int] = json.loads((directory / "codes.json").read_text())
    said = {name: directory / f"{name}.said" for name in codes}
    return {
        name: (code, said[name].read_text().splitlines() if said[name].exists() else [])
        for name, code in codes.items()
    }


@pytest.fixture
def typist(tmp_path: Path) -> Path:
    """Where commands are typed."""
    (tmp_path / "claims.log").write_text(LOG)
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path


def all_of(streams: str, directory: Path) -> dict[str, tuple[int, list[str]]]:
    """What each command ends with, and says on standard error."""
    found = {}
    for name, (_, line) in EXECUTED.items():
        done = typed(line, streams, directory)
        found[name] = done.returncode, done.stderr.splitlines()
    return found | forked({name: line for name, (_, line) in FORKED.items()}, streams, directory)


@pytest.mark.parametrize("streams", ["<&-", "<&- 2>&-", "2>/dev/full", "| true"])
def test_a_command_ends_as_ever_without_input_messages_or_a_reader(streams: str, typist: Path) -> None:
    found = all_of(streams, typist)

    expected = {name: code for name, (code, _) in (EXECUTED | FORKED).items()}
    assert {name: code for name, (code, _) in found.items()} == expected
    assert not [name for name, (_, said) in found.items() if "Traceback" in "".join(said)]
    speaks = {name for name, (_, said) in found.items() if len(said) == 1}
    assert speaks == {name for name, code in expected.items() if code != MET and "2>" not in streams}


@pytest.mark.parametrize("streams", [">&-", "<&- >&- 2>&-", ">/dev/full"])
def test_output_that_cannot_be_written_is_one_line_and_a_documented_code(streams: str, typist: Path) -> None:
    found = all_of(streams, typist)

    expected = {
        name: code if name in SPEECHLESS else BAD_INPUT for name, (code, _) in (EXECUTED | FORKED).items()
    }
    assert {name: code for name, (code, _) in found.items()} == expected
    for name, (_, said) in found.items():
        assert len(said) == ("2>" not in streams), name
        if said and name not in SPEECHLESS:
            assert re.fullmatch(
                "tippingpoint: standard output: (Bad file descriptor|No space left on device)", said[0]
            ), name


def test_a_reader_that_is_gone_hides_no_regression(tmp_path: Path) -> None:
    compare = "compare before1/* before2/* --with after1/* after2/* --format html"
    lines: dict[str, str] = {}
    for name, milliseconds in (("before", 20), ("after", 90)):
        for number in (1, 2):
            held = [
                f" 9.0s extended a{n:04}/0 held for 30s in {milliseconds + n % 7}ms\n" for n in range(900)
            ]
            out = f"{name}{number}"
            (tmp_path / f"{out}.log").write_text("".join(held))
            lines[out] = f"import {out}.log --stage 100@1 --out {out}"
    lines["compare"] = compare

    codes = {name: code for name, (code, _) in forked(lines, "", tmp_path).items()}

    assert codes == dict.fromkeys(lines, MET) | {"compare": MISSED}
    assert typed(compare, "| true", tmp_path).returncode == MISSED


def full_disk() -> None:
    """Let no file grow beyond 200 bytes, which this process can do as any user."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))


@pytest.mark.parametrize(
    ("line", "blamed"),
    [
        ("import claims.log --stage 1@1 --out small/o", "--out: small/o: "),
        ("import rally.json --out small/o", "--out: small/o: "),
    ],
)
def test_a_write_that_fails_blames_the_path_that_it_went_to(line: str, blamed: str, tmp_path: Path) -> None:
    (tmp_path / "claims.log").write_text(LOG * 400)
    recorded = Path(__file__).parents[2] / "recorded" / "rally-5.1.1.json"
    (tmp_path / "rally.json").write_bytes(recorded.read_bytes())
    (tmp_path / "small").mkdir()

    done = subprocess.run(
        [sys.executable, "-m", "tippingpoint", *line.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        preexec_fn=full_disk,
        timeout=600,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert done.returncode == BAD_INPUT
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"tippingpoint: {blamed}")
    assert "File too large" in said or "room" in said
    assert not [path for path in tmp_path.glob("small/**/*") if path.is_file()], "nothing is left"


def test_a_defect_has_a_code_of_its_own_and_keeps_its_traceback_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(options: object) -> int:
        raise KeyError("nobody thought of this\n")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(program, "_do", broken)
    with pytest.raises(SystemExit) as ended:
        main(["plans"])

    assert ended.value.code == CRASHED
    assert CRASHED not in (MET, MISSED, BAD_INPUT, TARGET_FAILED)
    (said,) = capsys.readouterr().err.splitlines()
    (kept,) = tmp_path.iterdir()
    assert said.startswith("tippingpoint: unexpected KeyError: 'nobody thought of this")
    assert said.endswith(f"its traceback is in {kept}")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "raise KeyError" in kept.read_text()


def test_a_defect_without_room_for_its_traceback_is_one_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(options: object) -> int:
        raise RecursionError

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    monkeypatch.setattr(program, "_do", broken)
    with pytest.raises(SystemExit) as ended:
        main(["plans"])

    assert ended.value.code == CRASHED
    assert "no room for its traceback (No such file or directory)" in capsys.readouterr().err
