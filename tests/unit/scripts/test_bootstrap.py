"""What the scripts say while they fetch what a machine lacks."""

from __future__ import annotations

import subprocess
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_WAY = 'say "fetching one thing"; say "fetching another"; (die "it: not fetched") || tell "that is all"'


def words(script: str) -> tuple[list[str], int]:
    """The lines that a script shows which has what the others source."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f". scripts/_bootstrap.sh; {script}", "demo"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout + done.stderr).splitlines(), done.returncode


def test_scripts_say_what_they_fetch() -> None:
    assert words(_WAY) == (
        [
            "demo: fetching one thing",
            "demo: fetching another",
            "demo: it: not fetched",
            "demo: that is all",
        ],
        0,
    )


def test_a_script_with_one_line_for_all_has_the_rest_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "demo.log"
    shown, code = words(f'said_in={log}; {_WAY}; die "it cannot go on"')
    assert (shown, code) == (["demo: it: not fetched", "demo: that is all", "demo: it cannot go on"], 2)
    assert log.read_text().splitlines() == ["demo: fetching one thing", "demo: fetching another"]


def test_lock_files_of_uv_are_left_in_the_cache_and_not_on_the_machine(tmp_path: Path) -> None:
    # given a uv that tells where it would write them
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\necho "$TMPDIR $UV_PROJECT_ENVIRONMENT $1"\n')
    uv.chmod(0o755)
    shown, code = words(f"uv={uv}; need_environment test; need_deployer")
    assert code == 0
    assert [line for line in shown if line.startswith("/")] == [
        f"{_ROOT}/.cache/tmp {_ROOT}/.venv sync",
        f"{_ROOT}/.cache/tmp {_ROOT}/.cache/deployer sync",
    ]
