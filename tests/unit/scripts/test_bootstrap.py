"""What the scripts say while they fetch what a machine lacks."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

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


_APT = """#!/bin/sh
echo "$@" >>{calls}
case "$*" in
*install*)
    echo $$ >{pid}
    while [ ! -e {go} ]; do sleep 0.05; done
    echo finished >>{calls} ;;
esac
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_effect_once_apt_has_finished(tmp_path: Path, number: signal.Signals) -> None:
    # given a script in a process group of its own, whose apt-get is at work
    calls, pid, go = (tmp_path / name for name in ("calls", "pid", "go"))
    apt = tmp_path / "apt-get"
    apt.write_text(_APT.format(calls=calls, pid=pid, go=go))
    apt.chmod(0o755)
    script = subprocess.Popen(
        [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            f". scripts/_bootstrap.sh; cache={tmp_path}; run_apt install x; echo on",
        ],
        cwd=_ROOT,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (pid.exists() and pid.read_text()):
        assert script.poll() is None
        time.sleep(0.02)
    # when the whole group gets a signal, twice, as by Ctrl-C
    os.killpg(script.pid, number)
    assert script.stderr is not None
    assert "stopping as soon as apt-get has finished" in script.stderr.readline()
    os.killpg(script.pid, number)
    # then apt-get goes on, and the script ends by the signal once it has finished
    assert script.stderr is not None
    script.stderr.readline()
    go.touch()
    out, _ = script.communicate()
    assert calls.read_text() == "install x\nfinished\n"
    assert (script.returncode, out) == (-number, "")


def test_what_apt_said_last_is_in_the_error(tmp_path: Path) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\necho Reading...\necho 'E: Unable to locate package nothing' >&2\nexit 100\n")
    apt.chmod(0o755)
    policy = tmp_path / "policy"
    policy.touch()
    shown, code = words(
        f"PATH={tmp_path}:$PATH; cache={tmp_path}; policy={policy}; install_packages LXD nothing"
    )
    assert code == 2
    assert shown[-1] == (
        "demo: LXD: not installed: E: Unable to locate package nothing (more in .cache/apt.log): expected the packages "
        "of Debian 12 or 13"
    )
