"""What a crew makes of its workers' ticks and answers."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.unit.play.run_ticks import tick_of
from tippingpoint.play.interruption import EndedEarly, Interruption
from tippingpoint.play.messages import Pause, Paused, Tick
from tippingpoint.play.record import Record
from tippingpoint.play.watcher import RunnerEvents
from tippingpoint.play.worker_pool import Headway, WorkerPool
from tippingpoint.play.worker_process import WorkerProcess
from tippingpoint.rundir.manifest import Manifest, TargetEntry, WorkerEntry

ANSWERS = """
import pathlib, sys, time
for line in sys.stdin:
    time.sleep(2.0)
    print('{"say": "paused"}', flush=True)
    pathlib.Path(sys.argv[1]).touch()
"""


def stand_still_until(there: Path) -> None:
    while not there.exists():
        time.sleep(0.01)


def ticks(*held: int, waiting: int = 0) -> dict[str, Tick]:
    return {str(worker): tick_of(there, waiting=waiting) for worker, there in enumerate(held)}


def test_a_load_that_grows_gets_on() -> None:
    headway = Headway(removing=False)
    made = [headway.made(ticks(held)) for held in (0, 3, 3, 2, 4)]
    assert made == [True, True, False, False, True]


def test_what_waits_for_a_release_is_there_too() -> None:
    headway = Headway(removing=False)
    assert headway.made(ticks(1, waiting=1))
    assert headway.made(ticks(1, waiting=2))


def test_what_is_still_to_be_made_is_no_headway_and_less_of_it_is() -> None:
    headway = Headway(removing=False, making=True)
    made = [
        headway.made(ticks(held, waiting=waiting)) for held, waiting in ((0, 10), (0, 10), (0, 9), (1, 8))
    ]
    assert made == [True, False, True, True]


def test_a_removal_gets_on_where_things_become_fewer() -> None:
    headway = Headway(removing=True)
    made = [headway.made(ticks(held, waiting=10)) for held in (9, 9, 10, 8, 0)]
    assert made == [True, False, False, True, True]


def test_one_worker_that_gets_on_is_enough_and_each_step_counts_once() -> None:
    headway = Headway(removing=False)
    made = [headway.made(ticks(*held)) for held in ((100, 0), (90, 1), (90, 1), (101, 2), (101, 2))]
    assert made == [True, True, False, True, False]


async def test_a_worker_that_answered_while_the_runner_stood_still_is_not_silent(tmp_path: Path) -> None:
    # given a worker that answers after two seconds
    record = Record("p", tmp_path, "the-run", RunnerEvents())
    record.make_directory()
    pool = WorkerPool(record, Interruption(), RunnerEvents(), lambda worker, tick: None)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ANSWERS, tmp_path / "answered", stdin=PIPE, stdout=PIPE, limit=2**24
    )
    pool.workers.append(WorkerProcess("0", process, lambda worker, message: None))
    # when its runner stands still meanwhile, for longer than it waits for answers
    asyncio.get_running_loop().call_later(0.1, stand_still_until, tmp_path / "answered")
    answers = await pool.ask(Paused, lambda share: Pause(), within=0.5)
    # then the answer is heard, and the worker lives
    assert [type(answer) for answer in answers] == [Paused]
    assert process.stdin is not None
    process.stdin.close()
    await pool.workers[0].ended(600.0)
    assert process.returncode == 0


def crew_of(directory: Path) -> WorkerPool:
    record = Record("p", directory, "the-run", RunnerEvents())
    record.make_directory()
    record.open(Manifest(id="the-run", title="p", target=TargetEntry(kind="etcd"), started=0.0))
    record.manifest.workers = [WorkerEntry(name="0")]
    return WorkerPool(record, Interruption(), RunnerEvents(), lambda worker, tick: None)


async def ended(pool: WorkerPool, directory: Path, code: str) -> str:
    """Why a run ends whose only worker runs this code, in the runner's words."""
    errors = directory / "worker-0.stderr"
    with errors.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdin=PIPE, stdout=PIPE, stderr=stderr, limit=2**24
        )
    pool.workers.append(WorkerProcess("0", process, pool._heard, errors))  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(EndedEarly) as early:
        await pool.wait(600.0)
    process.kill() if process.returncode is None else None
    await pool.workers[0].ended(600.0)
    return str(early.value)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise OSError(24, 'Too many open files', '/proc/self/statm')", "OSError: [Errno 24] Too many open files: "),
        ("class Odd(Exception): pass\nraise Odd('first\\n\\n  second')", "Odd: first"),
        ("import os; os.close(1); raise MemoryError('no more')", "MemoryError: no more"),
        ("try: {}['a']\nexcept KeyError: raise MemoryError", "MemoryError"),
        ("import os; os.write(2, b'Fatal Python error\\n'); os._exit(7)", "Fatal Python error"),
        ("import os; os._exit(7)", "exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL, as for want of memory"),
    ],
)  # fmt: skip
async def test_a_worker_that_ends_too_early_says_why(tmp_path: Path, code: str, words: str) -> None:
    pool = crew_of(tmp_path)
    # given a worker that ends by itself, then the run's end has its own words
    said = await ended(pool, tmp_path, code)
    assert said.startswith(f"every worker ended early: worker 0: {words}")
    assert "\n" not in said
    # and so has the event
    events = (tmp_path / "the-run/events.jsonl").read_text()
    assert words.split(":")[0] in events


async def test_a_worker_that_is_out_of_files_ends_the_run_as_its_own_trouble(tmp_path: Path) -> None:
    code = 'print(\'{"say": "trouble", "problem": "out of open files"}\', flush=True); import time; time.sleep(600)'
    assert await ended(crew_of(tmp_path), tmp_path, code) == "worker 0: out of open files"
