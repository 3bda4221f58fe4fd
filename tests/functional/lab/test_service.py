"""Programs of labs with their workers: a group that is told to have ended has ended."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.places import Places
from lab.service import Service, Starter, group, kill_group
from tests.functional.program import until

_ITS_FIRST_THREAD_ENDS = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=[3600]).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Starter]:
    with ExitStack() as cleanup:
        yield Starter(cleanup, tmp_path, Places.everywhere())


def test_a_process_has_not_ended_while_any_of_its_threads_runs(starter: Starter) -> None:
    """Given a first thread that is a zombie before the others have ended, as in a process that is killed on a busy
    machine, then it still counts: its sockets are still bound."""
    service = Service(starter, "threads", [sys.executable, "-c", _ITS_FIRST_THREAD_ENDS], {})
    service.start()
    pid = service.pid
    assert pid is not None
    stat = Path(f"/proc/{pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "a first thread that has ended")

    assert group(pid) == [pid]

    kill_group(pid)
    until(lambda: group(pid) == [], "a group that has ended")
