"""The runner's side of a worker process: starts it, sends commands, receives messages, and notices its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import tippingpoint
from tippingpoint.errors import Refused, one_line
from tippingpoint.play.messages import Command, Done, Message, Ready, Refusal, Tick, line_of, message_in
from tippingpoint.play.worker import Job
from tippingpoint.rundir.files import new_file
from tippingpoint.workloads.load import TargetFacts

M = TypeVar("M", bound=Message)


_LAST_WORDS = 1 << 14
"""The most bytes at the end of a worker's error output that are searched for its error."""
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*: \S|[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)$")
"""How a line of a traceback that names the exception begins."""
_EXIT_WITHIN = 10.0
"""Seconds for a process to end after its output did."""


class Gone:
    """The last event of a worker: its output has ended, requested or not."""


Listener = Callable[["WorkerProcess", Message | Gone], None]


class Input(Protocol):
    """Where a worker's commands are written, as to an asyncio.StreamWriter."""

    def write(self, data: bytes) -> None: ...
    def is_closing(self) -> bool: ...


class Output(Protocol):
    """Where a worker's messages are read, as from an asyncio.StreamReader."""

    async def readline(self) -> bytes: ...


class Process(Protocol):
    """What a worker runs in: an asyncio process, or a task that stands in for one in a simulation."""

    @property
    def stdin(self) -> Input | None: ...
    @property
    def stdout(self) -> Output | None: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def send_signal(self, signal: int) -> None: ...
    def kill(self) -> None: ...


class WorkerProcess:
    """One worker, as its runner sees it."""

    def __init__(self, name: str, process: Process, listener: Listener, errors: Path | None = None) -> None:
        self.name = name
        self.process = process
        self._errors = errors
        self.tick: Tick | None = None
        """Its latest tick."""
        self.said = 0.0
        """When it last reported what it is doing (see WorkerPool.ask), on the monotonic clock."""
        self.done: Done | None = None
        """Its last message, if it ended when it was told to."""
        self._listener = listener
        loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[Message] = loop.create_future()
        # This is awaited from the start: a fast worker is ready before the others are started.
        self._replies: dict[type[Message], asyncio.Future[Message]] = {
            Ready: self._opened,
            Refusal: self._opened,
        }
        self._ended = loop.create_future()
        self._reading = asyncio.create_task(self._read())

    @property
    def alive(self) -> bool:
        """Whether its output is still open; the output of a worker that has ended in any way is closed."""
        return not self._ended.done()

    @property
    def refused(self) -> bool:
        """Whether it reported that it cannot begin; it ends by itself after that."""
        return self._opened.done() and isinstance(self._opened.result(), Refusal)

    @property
    def last_words(self) -> str:
        """Why it ended early, in one line: its error, or the signal that ended it; empty if unknown."""
        with contextlib.suppress(OSError, TypeError):
            assert self._errors is not None
            text = self._errors.read_bytes()[-_LAST_WORDS:].decode(errors="replace")
            if found := _error_in(text.splitlines()):
                return one_line(found)
        code = self.process.returncode
        if code is None or code >= 0:
            return f"exit code {code}" if code else ""
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return f"killed by {name}" + (", as for want of memory" if -code == signal.SIGKILL else "")

    def tell(self, command: Command) -> None:
        """Send a command; a worker that is gone misses it, and is noticed by the end of its output."""
        stdin = self.process.stdin
        if stdin is not None and not stdin.is_closing():
            with contextlib.suppress(ConnectionError):
                stdin.write(line_of(command))

    async def opening(self) -> Ready | Refusal | None:
        """Return its first message, Ready or Refusal; None if it ends without either."""
        return await self._first(self._opened, (Ready, Refusal))

    def reply(self, *kinds: type[M]) -> Coroutine[Any, Any, M | None]:
        """Return the next message of one of these kinds from now on; None if the worker ends without one."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        for kind in kinds:
            self._replies[kind] = future
        return self._first(future, kinds)

    async def _first(self, future: asyncio.Future[Message], kinds: tuple[type[M], ...]) -> M | None:
        await asyncio.wait([future, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            return None
        message = future.result()
        assert isinstance(message, kinds)
        return message

    async def ended(self, within: float) -> None:
        """Wait until the process is gone; it is killed after `within` seconds."""
        await asyncio.wait([self._ended], timeout=within)
        if self.process.returncode is None:
            try:
                await asyncio.wait_for(self.process.wait(), 1.0)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self.process.send_signal(signal.SIGKILL)
                await self.process.wait()
        await self._reading

    async def _read(self) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        try:
            while line := await stdout.readline():
                self._hear(line)
            if self.done is None and not self.refused:
                # Its output ends before it writes why.
                await asyncio.wait([asyncio.ensure_future(self.process.wait())], timeout=_EXIT_WITHIN)
        finally:
            if not self._ended.done():
                self._ended.set_result(None)
            self._listener(self, Gone())

    def _hear(self, line: bytes) -> None:
        message = message_in(line)
        if message is None:
            return
        if isinstance(message, Tick):
            self.tick = message
        elif isinstance(message, Done):
            self.done = message
        future = self._replies.pop(type(message), None)
        if future is not None and not future.done():
            future.set_result(message)
        self._listener(self, message)


class StartWorker(Protocol):
    """Starts a worker on its job, as start_worker does."""

    async def __call__(
        self, job: Job, listener: Listener, inherited: Sequence[int] = ()
    ) -> WorkerProcess: ...


async def start_worker(job: Job, listener: Listener, inherited: Sequence[int] = ()) -> WorkerProcess:
    """Start a worker process on its job. The output of a crash goes to a file beside its journal.

    `inherited` are the descriptors that paths of the job lead through (HeldDirectory).
    """
    # -P: otherwise anything called tippingpoint where the runner was started, such as another checkout, would run
    # instead.
    command = [sys.executable, "-P", "-m", "tippingpoint.play.worker"]
    environment = {**os.environ, "PYTHONPATH": _source_path(), "PYTHONUNBUFFERED": "1"}
    with _stderr(job) as stderr:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=stderr,
            env=environment,
            start_new_session=True,  # so that Ctrl-C on the terminal reaches only the runner
            limit=2**24,
            pass_fds=inherited,
        )
    worker = WorkerProcess(job.name, process, listener, _stderr_path(job))
    assert process.stdin is not None
    process.stdin.write(job.model_dump_json().encode() + b"\n")
    return worker


async def opened(worker: WorkerProcess) -> TargetFacts:
    """Return the target's facts as a worker found them; raises Refused if the worker could not start."""
    reply = await worker.opening()
    if reply is None:
        why = f": {worker.last_words}" if worker.last_words else ""
        raise Refused(f"worker {worker.name}: ended before it was ready{why}", 4)
    if isinstance(reply, Refusal):
        raise Refused(reply.problem, reply.exit_code)
    return reply.facts


def tidy_stderr(directory: Path) -> None:
    """Remove the empty files of the workers' error output."""
    for path in directory.glob("worker-*.stderr"):
        if path.stat().st_size == 0:
            path.unlink()


def _stderr(job: Job) -> BinaryIO:
    return open(new_file(_stderr_path(job)), "wb")


def _stderr_path(job: Job) -> Path:
    return job.directory / f"worker-{job.name}.stderr"


def _error_in(lines: Sequence[str]) -> str:
    """Return the last line that names an exception; else the last one that is not empty."""
    named = [line for line in lines if _EXCEPTION.match(line)]
    return (named or [line for line in lines if line.strip()] or [""])[-1]


def _source_path() -> str:
    """Return a PYTHONPATH by which a worker runs the same code, whatever its working directory is."""
    here = str(Path(tippingpoint.__file__).resolve().parents[1])
    rest = os.environ.get("PYTHONPATH")
    return f"{here}{os.pathsep}{rest}" if rest else here
