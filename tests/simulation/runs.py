"""Plays whole runs in virtual time, each from its first login to the `clean` that follows. The same seed is the same
run, to the last byte of its journals."""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import itertools
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.simulation.draws import NAME, Drawn, DrawnService, Event
from tests.simulation.lives import MACHINE, Life, context_of, is_dead, pid
from tests.simulation.simulated.machine import simulated_counters
from tests.simulation.simulated.service import SERVICES, Service, Trouble
from tests.simulation.virtual_time import BOOTED, Crashed, NeverEnds, NothingDue, VirtualLoop, virtual_time
from tests.simulation.worker_tasks import WorkerTasks
from tippingpoint.errors import Refused, TargetError, UserError
from tippingpoint.plan import kinds, packages
from tippingpoint.plan.read import Plan, validate_plan
from tippingpoint.play import runner
from tippingpoint.play.cleaning import clean_run
from tippingpoint.play.resume import take_up
from tippingpoint.play.runner import Runner
from tippingpoint.rundir import journal, manifest, standstills
from tippingpoint.rundir.ledger import FILE as LEDGER
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.util import kernel_counters, open_files

T = TypeVar("T")

_FOREIGN = "somebody-else"
_AFTERWARDS = 120.0
"""Seconds that a run's end is watched for load that goes on."""
_LONGEST = 6 * 3600.0
"""Seconds of virtual time in which every run that is drawn has to end."""
_SIMULATED = itertools.count()
_COLLECT_EVERY = 20
"""Simulations after which what they left is collected. Python would never do so, as what it has frozen and thawed again
is not counted; each leaves some 2 MB."""


@dataclass
class Ended:
    """What became of a run, whoever ran it."""

    kept: object
    """What must not be collected before all is asked: the dead would clean up behind themselves."""
    refused: str = ""
    seconds: float = 0.0
    """How long it took, in virtual time."""
    answers: list[tuple[float, str, str]] = field(default_factory=list)
    """The service's answers that reached a worker: when (on the loop's clock), to which operation, what they said."""
    ran_out: list[float] = field(default_factory=list)
    """When leases ran out whose holders took themselves for that, on the loop's clock."""
    loaded_after: int = 0
    """Operations that the service was sent after the run's end."""
    left: list[str] = field(default_factory=list)
    """What the run left, and nobody has removed by the end."""
    gone: list[str] = field(default_factory=list)
    """What was there before and is there no more."""
    at_the_end: list[str] = field(default_factory=list)
    """What was there of the run when it had just ended."""
    unremembered: list[str] = field(default_factory=list)
    """What was made before the ledger said so."""

    @functools.cached_property
    def answered(self) -> Counter[tuple[str, str]]:
        """How many answers reached a worker, by operation and what they said."""
        return Counter((operation, said) for _, operation, said in self.answers)


@dataclass(kw_only=True)
class Played(Ended):
    """A run that was played."""

    drawn: Drawn
    directory: Path | None = None
    """None where it was refused, or cut and not resumed."""
    cut: list[Path] = field(default_factory=list)
    """The directories of runs that were killed, in order."""


@contextmanager
def simulation() -> Generator[VirtualLoop]:
    """Put the engine into a simulation: virtual time, and the kind of target `simulated`."""
    with virtual_time() as loop, pytest.MonkeyPatch.context() as patched:
        patched.setattr(packages, "brought", _with_simulated)
        kinds.section_of.cache_clear()
        # What this process has noted before is nothing that the simulated ones know.
        patched.setattr(open_files, "_exhausted", [])
        append, write = journal.AppendFile.append, journal.AppendFile._write

        def write_if_room(file: journal.AppendFile, chunk: bytes) -> None:
            if loop.time() < loop.disk_full_until:
                raise OSError(errno.ENOSPC, "No space left on device")
            write(file, chunk)

        patched.setattr(journal.AppendFile, "_write", write_if_room)
        patched.setattr(journal.AppendFile, "append", lambda file, chunk: is_dead() or append(file, chunk))

        def started(pid: int) -> int | None:
            return None if pid in loop.dead else pid

        patched.setattr(os, "getpid", pid)
        patched.setattr(manifest, "process_started", started)
        patched.setattr(runner, "process_started", started)
        # What withheld this machine's processors from this process is nothing that happened to a simulated one.
        patched.setattr(standstills, "_stolen", lambda: 0.0)
        patched.setattr(standstills.CauseFinder, "_waited", lambda _: 0.0)
        patched.setattr(kernel_counters, "counters", simulated_counters)
        # No machine of a simulation loses power, and what is written is read back at once.
        patched.setattr(os, "fsync", lambda _: None)
        try:
            yield loop
        finally:
            SERVICES.clear()
            kinds.section_of.cache_clear()


_BROUGHT = packages.brought.__wrapped__


@functools.cache
def _with_simulated() -> Mapping[str, str]:
    """Return the packages of other targets as if the simulated ones were installed: that is looked up once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(Path(__file__).parent / "installed"))
        return _BROUGHT()


def simulate(
    seed: int,
    of: DrawnService,
    longest: float,
    out: Path,
    play: Callable[[VirtualLoop, Service], Coroutine[Any, Any, T]],
) -> T:
    """Play a run on a service of its own; raises NeverEnds if it goes on after `longest` virtual seconds, and Crashed
    with what nobody handled. What finds no room on a full disk is in a directory `rescued` of `out`."""
    if next(_SIMULATED) % _COLLECT_EVERY == 0:
        gc.collect()
    rescued = out / "rescued"
    rescued.mkdir(parents=True, exist_ok=True)
    with simulation() as loop, pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(rescued))  # what finds no room elsewhere goes there
        service = SERVICES[NAME] = Service(
            of.capacity,
            random.Random(seed + 1),
            of.base,
            of.longest_queue,
            [Trouble(kind, BOOTED + begin, BOOTED + end) for kind, begin, end in of.troubles],
            None
            if of.foreign is None
            else [(BOOTED + begin, BOOTED + end, share) for begin, end, share in of.foreign],
        )
        random.seed(seed)  # of pauses, and of who comes first
        gc.freeze()  # the engine collects garbage at each stage, and all that was imported is none
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(_within(longest, play(loop, service)))
        except (NothingDue, NeverEnds, Crashed):
            raise
        except Exception as problem:
            raise Crashed(repr(problem)) from problem
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            with suppress(Crashed):  # what is cut off in the middle may say so
                loop.run_until_complete(asyncio.sleep(0))
            asyncio.set_event_loop(None)
            gc.unfreeze()


async def _within(seconds: float, playing: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(playing)
    await asyncio.wait([task], timeout=seconds)
    if not task.done():
        raise NeverEnds(f"it goes on after {seconds:g} s")
    return task.result()


def hold_foreign(service: Service, run_id: str) -> set[str]:
    """Have somebody else hold leases, one of a name like the run's; returns the names of all that are there."""
    service.hold(f"{_FOREIGN}-1", "nobody", 1e8)
    service.hold(f"{name_prefix(run_id)}x-1", "nobody", 1e8)
    return set(service.leases)


def look_around(ended: Ended, service: Service, before: set[str]) -> None:
    """Note what the run left on the service, and what it took away of what was there before."""
    there = {name for name in service.leases if not service.free(name)}
    ended.left, ended.gone = sorted(there - before), sorted(before - there)
    ended.unremembered = service.unremembered
    ended.answers, ended.ran_out = service.answers, service.ran_out


def play(drawn: Drawn, out: Path) -> Played:
    """Play a run from its first login to the `clean` that follows. Its directory is in `out`."""
    return simulate(drawn.seed, drawn.service, _LONGEST, out, partial(_play, drawn, out))


class _Machine:
    """Where a run is played: its runner, which may be killed and started again, and the workers."""

    def __init__(self, drawn: Drawn, out: Path, loop: VirtualLoop) -> None:
        self._drawn = drawn
        self._out = out
        self._loop = loop
        self._workers = WorkerTasks()
        self._life: Life | None = None
        self._runner: Runner | None = None
        self._running: asyncio.Task[Path] | None = None
        self._killed = asyncio.Event()
        self._resumed_after = 0.0
        for event in drawn.events:
            loop.call_at(BOOTED + event.at, self._happen, event)

    async def play(self, played: Played) -> None:
        """Play the run to its end, however often it is killed and resumed."""
        plan: Plan = validate_plan(self._drawn.plan)
        taken_up, number = None, 0
        while True:
            name = f"simulated-{self._drawn.seed}" + (f"-{number}" if number else "")
            self._life, self._killed = Life("runner"), asyncio.Event()
            context = context_of(self._life)
            start = functools.partial(
                Runner, takes_up=taken_up, run_id=name, start_worker=self._workers.start
            )
            self._runner = context.run(start, plan, self._out)
            self._running = self._loop.create_task(self._runner.run(), context=context)
            killed = asyncio.create_task(self._killed.wait())
            await asyncio.wait([self._running, killed], return_when=asyncio.FIRST_COMPLETED)
            if self._running.done():
                killed.cancel()
                played.directory = self._running.result()
                return
            played.cut.append(self._out / name)
            await asyncio.sleep(self._resumed_after)
            try:
                plan, taken_up = take_up(played.cut[-1])
            except UserError:
                return
            number += 1

    def _happen(self, event: Event) -> None:
        match event.do:
            case "kill":
                alive = [worker for worker in self._workers.started if worker.returncode is None]
                if alive:
                    alive[0].kill()
            case "stand still":
                self._loop.stand_still(event.seconds)
            case "set clock":
                MACHINE.get().clock_ahead += event.seconds
            case "interrupt":
                if self._runner is not None and not self._killed.is_set():
                    self._runner.interrupt()
            case "slow work":
                self._loop.work_takes = event.seconds
            case "disk full":
                self._loop.disk_full_until = self._loop.time() + event.seconds
            case "crash" | "power cut":
                self._kill(event)
            case _:
                raise AssertionError(event.do)

    def _kill(self, event: Event) -> None:
        if self._life is None or self._running is None or self._life.dead or self._running.done():
            return
        self._resumed_after = event.seconds
        self._loop.end(self._life)
        for worker in self._workers.started:
            worker.stdin.close()
            if event.do == "power cut":
                worker.kill()
        self._killed.set()


async def _play(drawn: Drawn, out: Path, loop: VirtualLoop, service: Service) -> Played:
    before = hold_foreign(service, f"simulated-{drawn.seed}")
    played = Played(kept=loop, drawn=drawn)
    try:
        await _Machine(drawn, out, loop).play(played)
        played.at_the_end = sorted(service.held() - before)
    except (UserError, TargetError, Refused) as refused:
        played.refused = str(refused)
    played.seconds = loop.time() - BOOTED
    if played.cut and played.directory is None and not played.refused:
        # Whoever does not resume a run removes what it made, when its workers have seen that it is over.
        await asyncio.sleep(_AFTERWARDS)
    sent = len(service.served)
    await asyncio.sleep(_AFTERWARDS)
    played.loaded_after = len(service.served) - sent
    for directory in [*played.cut, *([played.directory] if played.directory is not None else [])]:
        if (directory / LEDGER).exists():
            await clean_run(directory)
    look_around(played, service, before)
    return played
