"""A worker: a process that applies its share of a stage to the target and writes a journal.

Its parent, the runner, writes a `Job` to the worker's standard input, then commands. It reads messages from the
worker's standard output (see messages.py): Ready or Refusal, the answers to commands, a Tick each second, and Done.
When the parent is gone, the worker releases what it holds and ends.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path
from typing import Any

import uvloop
from pydantic import BaseModel

from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.plan.read import AnyPlan
from tippingpoint.plan.share import part_of
from tippingpoint.play.cpu_share import CpuShare
from tippingpoint.play.messages import (
    Begun,
    Command,
    Done,
    End,
    Evict,
    Evicted,
    Gauges,
    Hold,
    Message,
    Pause,
    Paused,
    Prepared,
    Preparing,
    Ready,
    Refusal,
    Repair,
    Settle,
    Settled,
    Tick,
    Trouble,
    command_in,
    line_of,
)
from tippingpoint.rundir.journal import Journal
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.rundir.standstills import PULSE, TOLD, Cause, CauseFinder
from tippingpoint.rundir.tags import LOOP_LAG
from tippingpoint.targets.registry import target_of
from tippingpoint.util import timing
from tippingpoint.util.open_files import exhausted
from tippingpoint.util.process import protect
from tippingpoint.workloads.claim.workload import RELEASE_WITHIN
from tippingpoint.workloads.load import (
    DRAIN_TIMEOUT,
    PrepareOrder,
    Settling,
    ShareOrder,
    StageOrder,
    TargetFacts,
    Upkeep,
)
from tippingpoint.workloads.schedule import Schedule

INTERVAL = 1.0
"""Seconds in an interval of the journal: the most that a worker loses if it is killed."""
_LOOK = 0.1
"""Seconds between checks for timeouts. A check costs 0.2 ms."""
_LOST_SINGLY = 100
_MOST_UNHEARD = 2**20
_HEARD_WITHIN = 20.0


class Job(BaseModel):
    """The first message to a worker. The plan names files with credentials, which the worker reads itself."""

    plan: AnyPlan
    """The whole plan; the worker's runner plays `share` of it: a part alone would not validate as a plan."""
    share: tuple[int, int] = (0, 1)
    directory: Path
    rescue: Path
    name: str
    workspace: dict[str, Any]
    """The workspace, as the target's model of it was dumped."""
    started_wall: float
    """The run's start, seconds since the epoch."""
    started: float
    """The run's start on the machine's monotonic clock, which all processes share."""


class _Worker:
    def __init__(self, job: Job, journal: Journal, voice: Voice) -> None:
        self._job = job
        self._voice = voice
        self._journal = journal
        self._recorder = Recorder()
        self._loop_lag = self._recorder.appender(LOOP_LAG)
        self._schedule = Schedule(asyncio.get_running_loop())
        # Beats have a schedule of their own, because the load's is cleared when a stage's load is dropped.
        self._beats = Schedule(asyncio.get_running_loop())
        plan = part_of(job.plan, *job.share)
        target = target_of(plan.target.kind)
        workspace = target.workspace.model_validate(job.workspace)
        self._load = target.make_load(plan, workspace, job.name, self._recorder, self._schedule)
        self._asides: set[asyncio.Task[None]] = set()
        self._opened = 0.0
        self._worst_lag = 0.0
        self._witness = CauseFinder()
        self._cpu = CpuShare(timing.monotonic(), timing.cpu())
        self._stage: StageOrder | None = None
        self._in_trouble = False
        # Once open, it can be read when the process is out of files.
        self._memory = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    async def open(self) -> TargetFacts:
        facts = await self._load.open()
        self._opened = timing.monotonic()
        self._beat(self._opened)
        self._look(self._opened)
        self._next_interval(self._opened + INTERVAL)
        return facts

    def _now(self) -> float:
        return timing.monotonic() - self._job.started

    def _beat(self, intended: float) -> None:
        now = timing.monotonic()
        lag = now - intended
        self._worst_lag = max(self._worst_lag, lag)
        self._loop_lag(max(1, int(lag * 1e6)))
        pulse = self._recorder.pulse
        if pulse.beat(intended, now) >= TOLD:
            self._tell_stall(intended, lag, self._witness.cause(lag))
        slept = self._witness.slept()
        if slept >= TOLD:
            self._tell_stall(now, slept, "suspend")
        self._witness.look()
        following = max(intended + PULSE, now)
        pulse.expect(following)
        self._beats.at(following, self._beat)

    def _tell_stall(self, begin: float, seconds: float, cause: Cause) -> None:
        t = begin - self._job.started
        self._journal.events.write(t, "stall", seconds=round(seconds, 3), cause=cause)

    def _look(self, intended: float) -> None:
        self._load.expire_calls()
        self._beats.at(max(intended + _LOOK, timing.monotonic()), self._look)

    def _next_interval(self, when: float) -> None:
        self._beats.at(when, self._interval_over)

    def _interval_over(self, intended: float) -> None:
        self._next_interval(max(intended + INTERVAL, timing.monotonic()))
        self._close_interval()
        if not self._in_trouble and (problem := exhausted()):
            self._in_trouble = True
            self._voice.say(Trouble(problem=problem))

    def _close_interval(self) -> None:
        """Write what was recorded since the last close, and send a tick to the runner."""
        begin, end = self._opened, timing.monotonic()
        if end - begin < 0.001:
            return
        self._opened = end
        since, until = begin - self._job.started, end - self._job.started
        load = self._load.gauge
        gauges = Gauges(
            held=load.held,
            waiting=load.waiting,
            in_flight=load.in_flight,
            up=load.up,
            cpu=round(self._cpu.at(end, timing.cpu()), 3),
            loop_lag=round(self._worst_lag * 1000, 3),
            rss=round(_resident_mib(self._memory), 1),
        ).model_dump()
        self._worst_lag = 0.0
        self._witness.settle()
        lines = self._journal.interval(since, until, self._recorder.drain())
        events = self._journal.events
        self._journal.tick(until, **gauges)
        for (operation, outcome, message), count in self._load.errors.items():
            events.write(until, "error", operation=operation, outcome=outcome, error=message, count=count)
        self._load.errors.clear()
        for moment, lease, unit, held_for in self._load.lost[:_LOST_SINGLY]:
            events.write(
                moment - self._job.started,
                "lost",
                lease=lease,
                unit=unit,
                held_for=round(held_for, 3),
                count=1,
            )
        if len(self._load.lost) > _LOST_SINGLY:
            events.write(until, "lost", count=len(self._load.lost) - _LOST_SINGLY)
        self._load.lost.clear()
        counted = dict.fromkeys(("retry", "lost"), 0)
        for moment, event, fields in self._load.events:
            events.write(moment - self._job.started, event, **fields)
            if event in counted:
                counted[event] += fields["count"]
        self._load.events.clear()
        self._voice.say(
            Tick(
                t=until,
                seconds=end - begin,
                lines=lines,
                oldest=round(load.oldest, 3),
                unwritten=self._journal.waiting,
                retries=counted["retry"],
                lost=counted["lost"],
                **gauges,
            )
        )

    def _mark(self, phase: str) -> None:
        """Close the interval, because each belongs to one phase of one stage, and write the new phase."""
        self._close_interval()
        assert self._stage is not None
        stage = self._stage
        self._journal.events.write(
            self._opened - self._job.started,
            "stage",
            stage=stage.number,
            size=stage.size,
            kind=stage.kind,
            phase=phase,
        )

    async def prepare(self, order: PrepareOrder) -> str:
        """Prepare what the stages need; returns what failed, in one line, or an empty text."""
        begun = timing.monotonic()
        made: dict[str, int] = {}

        def progress(what: str, done: int, goal: int) -> None:
            made[what] = done
            self._voice.say(Preparing(what=what, done=done, goal=goal))

        try:
            await self._load.prepare(order, progress)
        except (OperationFailed, TargetError, UserError) as problem:
            return str(problem)
        if made:
            self._journal.events.write(
                self._now(), "prepared", seconds=round(timing.monotonic() - begun, 3), **made
            )
        return ""

    def aside(self, command: Command) -> bool:
        """Execute a command that can run alongside all others; returns False if it is not such a command."""
        match command:
            case ShareOrder():
                self._load.revise(part_of(self._job.plan, command.index, command.of))
            case Repair():
                if isinstance(self._load, Upkeep):
                    self._load.repair()
            case Evict():
                evicting = asyncio.create_task(self._evict(command.member))
                self._asides.add(evicting)
                evicting.add_done_callback(self._asides.discard)
            case _:
                return False
        return True

    async def _evict(self, member: str) -> None:
        problem = ""
        try:
            if isinstance(self._load, Upkeep):
                await self._load.evict(member)
        except OperationFailed as failed:
            problem = str(failed)
        self._voice.say(Evicted(problem=problem))

    async def begin_stage(self, stage: StageOrder) -> None:
        if self._stage is not None:
            self._mark("end")
        self._stage = stage
        self._mark("begin")
        await self._load.begin_stage(stage)

    def hold(self) -> None:
        self._mark("hold")
        # Objects made while the load came up live as long as it: collecting them would stop the event loop.
        gc.freeze()

    async def stop_load(self, *, cut: bool = False) -> None:
        """Send nothing more, wait a few seconds for answers unless `cut`, and close the stage's figures.

        An operation without an answer then counts as timed out, so that the end of a stage does not flatter a target
        that hangs. With `cut`, unanswered operations are not counted.
        """
        self._load.stop()
        if self._stage is None:
            return
        self._mark("drain")
        try:
            if cut:
                self._load.cut()
            else:
                await self._load.drain(DRAIN_TIMEOUT)
        finally:
            self._mark("end")
            self._stage = None

    async def settle(self, *, count: bool) -> dict[str, list[float]]:
        """Wait for what is in flight, as `stop_load` does, and close the stage's figures; the load goes on.

        Returns what had no answer, unless that is to `count`; see Settling. Whatever a load makes is finished when it
        is up.
        """
        settling = self._load if isinstance(self._load, Settling) else None
        unanswered = await settling.settle(DRAIN_TIMEOUT, count=count) if settling is not None else {}
        if self._stage is not None:
            self._mark("end")
            self._stage = None
        return unanswered

    async def end(self, release: bool) -> None:
        """Close the last stage and release everything; if this is cancelled, the remaining leases will expire."""
        await self.stop_load(cut=not release)
        left = await self._load.give_back(RELEASE_WITHIN if release else 0.0)
        if left:
            self._journal.events.write(self._now(), "left-to-expire", leases=left)

    async def close(self) -> None:
        """Close the connections and the last interval."""
        await self._load.close()
        self._close_interval()
        self._schedule.close()
        self._beats.close()
        self._witness.close()
        os.close(self._memory)


def _resident_mib(statm: int) -> float:
    return int(os.pread(statm, 200, 0).split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


class Voice:
    """Sends messages to the runner without waiting for it: a stopped runner must not stop the load."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport

    @classmethod
    async def of_standard_output(cls) -> Voice:
        """Return the voice on this process's standard output."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
        return cls(transport)

    def say(self, message: Message) -> None:
        """Send a message. Ticks are dropped while the runner does not read: the journal has the same data."""
        unheard = self._transport.get_write_buffer_size()
        dropped = isinstance(message, Tick) and unheard >= _MOST_UNHEARD
        if not self._transport.is_closing() and not dropped:
            self._transport.write(line_of(message))

    async def close(self) -> None:
        """Wait until the runner has read everything, is gone, or does not read for some seconds."""
        deadline = timing.monotonic() + _HEARD_WITHIN
        while self._transport.get_write_buffer_size() and not self._transport.is_closing():
            if timing.monotonic() > deadline:
                break
            await asyncio.sleep(0.01)
        self._transport.close()


class Commands:
    """The commands from the runner, in order, which begin with the job."""

    def __init__(self, lines: asyncio.StreamReader) -> None:
        self._lines = lines
        self._coming: asyncio.Task[Command | None] | None = None

    @classmethod
    async def of_standard_input(cls) -> Commands:
        """Return the commands on this process's standard input."""
        lines = asyncio.StreamReader(limit=2**24)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        return cls(lines)

    async def job(self) -> Job | None:
        """Return the job; None if the runner is gone before it sent one."""
        line = await self._lines.readline()
        return Job.model_validate_json(line) if line else None

    def coming(self) -> asyncio.Task[Command | None]:
        """Return the next command, which stays the next until it is taken; None when the runner is gone."""
        if self._coming is None:
            self._coming = asyncio.create_task(self._read())
        return self._coming

    async def take(self) -> Command | None:
        """Take the next command; None when the runner is gone."""
        command = await self.coming()
        self._coming = None
        return command

    async def _read(self) -> Command | None:
        line = await self._lines.readline()
        return command_in(line) if line else None


async def work(commands: Commands, voice: Voice) -> None:
    """Be a worker, from its job to its end."""
    job = await commands.job()
    if job is None:
        return
    try:
        journal = Journal(job.directory, job.name, job.started_wall)
        worker = _Worker(job, journal, voice)
        facts = await worker.open()
    except (UserError, TargetError) as refusal:
        voice.say(Refusal(exit_code=2 if isinstance(refusal, UserError) else 3, problem=str(refusal)))
        await voice.close()
        return
    voice.say(Ready(facts=facts))
    release = await _obey(worker, commands, voice)
    await _end(worker, commands, release)
    done = Done()
    try:
        journal.close(job.rescue)
    except OSError as problem:
        done = Done(problem=f"{job.rescue}: {problem.strerror}")
    voice.say(done)
    await voice.close()


async def _obey(worker: _Worker, commands: Commands, voice: Voice) -> bool:
    """Execute commands until the end is ordered, or the runner is gone; returns whether to release leases."""
    while command := await commands.take():
        match command:
            case PrepareOrder():
                await _prepare(worker, command, commands, voice)
            case StageOrder():
                await worker.begin_stage(command)
                voice.say(Begun())
            case Hold():
                worker.hold()
            case Pause():
                await worker.stop_load()
                voice.say(Paused())
            case Settle():
                voice.say(Settled(unanswered=await worker.settle(count=command.count)))
            case End():
                return command.release
            case _:
                worker.aside(command)
    return True


async def _prepare(worker: _Worker, order: PrepareOrder, commands: Commands, voice: Voice) -> None:
    """Prepare, which may take minutes. A command that cannot run beside it stops it; what was made stays."""
    preparing = asyncio.create_task(worker.prepare(order))
    while True:
        await asyncio.wait([preparing, commands.coming()], return_when=asyncio.FIRST_COMPLETED)
        command = commands.coming().result() if commands.coming().done() else None
        if command is None or not worker.aside(command):
            break
        await commands.take()
    if preparing.done():
        voice.say(Prepared(problem=preparing.result()))
    else:
        preparing.cancel()
        await asyncio.wait([preparing])


async def _end(worker: _Worker, commands: Commands, release: bool) -> None:
    """End in an orderly way, unless a second command says that there is no time to release leases."""
    ending = asyncio.create_task(worker.end(release))

    async def hurry() -> None:
        while command := await commands.take():
            if isinstance(command, End) and not command.release:
                ending.cancel()

    hurrying = asyncio.create_task(hurry())
    await asyncio.wait([ending])
    hurrying.cancel()
    if not ending.cancelled():
        ending.result()
    await worker.close()


async def _work() -> None:
    await work(await Commands.of_standard_input(), await Voice.of_standard_output())


def main() -> None:
    """Run one worker on standard input and output."""
    protect()
    # Ctrl-C on the terminal is for the runner, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # modules live as long as the process
    uvloop.run(_work())


if __name__ == "__main__":
    main()
