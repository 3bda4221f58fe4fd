"""The limit of open files: raised where that is allowed, and known where it is not.

Each case is a process of its own, as limits are a process's and what is lowered may not come back.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_SPARE = 128
"""Files besides connections (tippingpoint.util.open_files)."""
_CHILD = """
import json, os, resource, subprocess, sys
from tippingpoint.util.open_files import allow_connections

soft, hard, drop, wanted = json.loads(sys.argv[1])
if drop and os.geteuid() == 0:  # give up the right to raise the hard limit
    os.setresuid(65534, 65534, 65534)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
allowed = [allow_connections(number) for number in wanted]
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
opened = []
try:
    while len(opened) < min(allowed[-1], 2000):
        opened.append(os.dup(0))
except OSError:
    pass
for descriptor in opened:
    os.close(descriptor)
inherited = int(subprocess.run(["sh", "-c", "ulimit -n"], capture_output=True, check=True).stdout)
print(json.dumps({"allowed": allowed, "limits": limits, "opened": len(opened), "inherited": inherited}))
"""


def asked(soft: int, hard: int, *wanted: int, unprivileged: bool = True) -> dict[str, Any]:
    """What a process with these limits is told when it asks for so many connections, one after the other."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps([soft, hard, unprivileged, wanted])],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_fits_changes_nothing() -> None:
    found = asked(500, 1000, 300)
    assert (found["allowed"], found["limits"]) == ([300], [500, 1000])


@pytest.mark.parametrize("wanted", [373, 400, 1000 - _SPARE])
def test_the_soft_limit_goes_up_as_far_as_is_needed(wanted: int) -> None:
    found = asked(500, 1000, wanted)
    assert (found["allowed"], found["limits"]) == ([wanted], [wanted + _SPARE, 1000])


@pytest.mark.parametrize("wanted", [1000 - _SPARE + 1, 100_000])
def test_who_may_not_raise_the_hard_limit_is_told_what_fits(wanted: int) -> None:
    found = asked(500, 1000, wanted)
    assert (found["allowed"], found["limits"]) == ([1000 - _SPARE], [1000, 1000])


def test_a_limit_below_what_a_worker_needs_for_itself_fits_nothing() -> None:
    assert asked(100, 100, 10)["allowed"] == [0]


def test_more_is_allowed_stage_by_stage_and_never_less() -> None:
    """Given stages that grow and shrink, then the limit follows the largest."""
    found = asked(200, 1000, 100, 500, 50, 2000, 400)
    assert found["allowed"] == [100, 500, 50, 1000 - _SPARE, 400]
    assert found["limits"] == [1000, 1000]


@pytest.mark.parametrize(("soft", "hard", "wanted"), [(200, 900, 60), (200, 900, 700), (200, 900, 5000)])
def test_what_is_allowed_can_be_opened_and_is_inherited(soft: int, hard: int, wanted: int) -> None:
    found = asked(soft, hard, wanted)
    assert found["opened"] == found["allowed"][0]
    assert found["inherited"] == found["limits"][0]


def test_more_than_any_process_may_have_is_refused_to_everybody() -> None:
    """Given a number beyond the kernel's own limit (fs.nr_open), then whoever asks is told what fits."""
    most = int(Path("/proc/sys/fs/nr_open").read_text())
    found = asked(500, 1000, most, unprivileged=False)
    assert (found["allowed"], found["limits"]) == ([1000 - _SPARE], [1000, 1000])


def test_whoever_may_raise_the_hard_limit_gets_what_it_asked_for() -> None:
    """Given a process like this one, then it has the connections it asked for, or knows how many it has."""
    found = asked(500, 1000, 1500, unprivileged=False)
    assert (found["allowed"][0], found["limits"]) in (
        (1500, [1500 + _SPARE, 1500 + _SPARE]),
        (1000 - _SPARE, [1000, 1000]),
    )
    assert found["opened"] == found["allowed"][0]


@pytest.mark.parametrize(
    ("number", "said"),
    [(24, "out of open files: a higher limit (ulimit -n) than "), (23, "this machine has no open")],
)
def test_a_process_that_ran_out_of_files_knows_it(number: int, said: str) -> None:
    """Given any client's error that says so, in its own words, then it is the process's trouble from then on."""
    code = f"""
from tippingpoint.util import open_files
from tippingpoint.util.network_errors import in_words
print(repr(in_words(OSError(111, ""))), repr(open_files.exhausted()))
in_words(OSError({number}, ""))
print(open_files.exhausted())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    first, second = done.stdout.splitlines()
    assert first == "'Connection refused' ''"
    assert second.startswith(said)
