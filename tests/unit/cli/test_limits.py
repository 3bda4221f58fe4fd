"""Commands under limits of the system that are too low for them: one line, and a documented exit code."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tippingpoint.util.exit_codes import BAD_INPUT, MET, TARGET_FAILED

_ROOT = Path(__file__).resolve().parents[3]
_KEPT = _ROOT / "tests/data/kept-runs/etcd"
_CAP_SYS_RESOURCE, _PR_CAPBSET_DROP = 24, 24
_LIBC = ctypes.CDLL(None)


def limited(kind: int, limit: int) -> Callable[[], None]:
    """What a process does to live under a limit that it cannot raise, not even as root."""

    def begin() -> None:
        if os.geteuid() == 0:
            _LIBC.prctl(_PR_CAPBSET_DROP, _CAP_SYS_RESOURCE, 0, 0, 0)
        resource.setrlimit(kind, (limit, limit))

    return begin


def ended(tmp_path: Path, begin: Callable[[], None], *arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "tippingpoint", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        preexec_fn=begin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()


COMMANDS = (
    ["run", "etcd-leases", "--set", "target.endpoints=[http://127.0.0.1:1]"],
    ["report", str(_KEPT), "--format", "json"],
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("files", [5, 8, 12, 16, 24, 32, 63])
def test_too_few_open_files_are_refused_in_one_line(tmp_path: Path, files: int, arguments: list[str]) -> None:
    code, said = ended(tmp_path, limited(resource.RLIMIT_NOFILE, files), *arguments)
    assert (code, said) == (
        BAD_INPUT,
        [f"tippingpoint: ulimit -n: {files}: expected at least 64 open files"],
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "files", "code"), [(COMMANDS[0], 129, TARGET_FAILED), (COMMANDS[1], 64, MET)]
)
def test_as_many_open_files_as_are_asked_for_are_enough(
    tmp_path: Path, arguments: list[str], files: int, code: int
) -> None:
    assert ended(tmp_path, limited(resource.RLIMIT_NOFILE, files), *arguments)[0] == code


def test_a_run_whose_connections_need_more_open_files_says_how_many(tmp_path: Path) -> None:
    code, (said,) = ended(tmp_path, limited(resource.RLIMIT_NOFILE, 64), *COMMANDS[0])
    assert code == BAD_INPUT
    assert said.startswith(
        "tippingpoint: target.connections: 1: expected a limit of open files (ulimit -n) of at least 129, "
        "as each of the run's workers has 1 connection"
    )


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("kib", [80_000, 100_000, 150_000, 260_000])
def test_too_little_memory_is_refused_in_one_line(tmp_path: Path, kib: int, arguments: list[str]) -> None:
    code, said = ended(tmp_path, limited(resource.RLIMIT_AS, kib << 10), *arguments)
    assert (code, said) == (
        BAD_INPUT,
        [f"tippingpoint: ulimit -v: {kib} KiB: expected at least 262144 KiB of memory"],
    )


def test_a_low_limit_of_open_files_is_raised_where_that_may_be(tmp_path: Path) -> None:
    def begin() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (12, hard))

    assert ended(tmp_path, begin, *COMMANDS[0])[0] == TARGET_FAILED


def test_a_command_leaves_no_core_and_keeps_a_strict_umask() -> None:
    script = (
        "import os, resource, sys; from tippingpoint.__main__ import main; os.umask(int(sys.argv.pop(1), 8))\n"
        "try:\n    main()\nexcept SystemExit:\n"
        "    print(*resource.getrlimit(resource.RLIMIT_CORE), oct(os.umask(0)), file=sys.stderr)"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", script, umask, "plans"],
            capture_output=True,
            text=True,
            check=True,
        ).stderr.split()
        for umask in ("000", "022", "077")
    ]
    assert found == [["0", "0", "0o22"], ["0", "0", "0o22"], ["0", "0", "0o77"]]
