"""The workers of a run: started, told what to do, listened to, and noticed when they are gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from tippingpoint.errors import Refused
from tippingpoint.run.worker import Job

Listener = Callable[["WorkerProcess", dict[str, Any]], None]


class WorkerProcess:
    """One worker as its runner sees it."""

    def __init__(self, name: str, process: Process, listener: Listener) -> None:
        self.name = name
        self.process = process
        self.tick: dict[str, Any] = {}
        """The last tick it sent."""
        self.said = 0.0
        """When it last said what it is doing (see Runner._ask), on the monotonic clock."""
        self.done: dict[str, Any] | None = None
        """Its last message, when it ended as told."""
        self._listener = listener
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._ended = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    @property
    def alive(self) -> bool:
        """Whether it still sends; a worker that has ended, as told or not, does not."""
        return not self._ended.done()

    def tell(self, **command: object) -> None:
        """Send a command; a worker that is gone misses it, and is noticed by its end of output."""
        stdin = self.process.stdin
        if stdin is not None and not stdin.is_closing():
            with contextlib.suppress(ConnectionError):
                stdin.write(orjson.dumps(command) + b"\n")

    async def reply(self, *messages: str) -> dict[str, Any] | None:
        """The next message of one of these kinds; None when the worker ends without it."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        for message in messages:
            self._replies[message] = future
        await asyncio.wait([future, self._ended], return_when=asyncio.FIRST_COMPLETED)
        return future.result() if future.done() else None

    async def ended(self, within: float) -> None:
        """Wait until the process is gone; after `within` seconds it is killed."""
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
        finally:
            if not self._ended.done():
                self._ended.set_result(None)
            self._listener(self, {"say": "ended"})

    def _hear(self, line: bytes) -> None:
        try:
            message: dict[str, Any] = orjson.loads(line)
        except orjson.JSONDecodeError:
            return  # cut in the middle of a line: killed
        kind = message.pop("say")
        if kind == "tick":
            self.tick = message
        elif kind == "done":
            self.done = message
        future = self._replies.pop(kind, None)
        if future is not None and not future.done():
            future.set_result({"say": kind, **message})
        self._listener(self, {"say": kind, **message})


async def start_worker(job: Job, listener: Listener) -> WorkerProcess:
    """Start a worker process on its job. What it may print in a crash goes to a file beside its journal."""
    command = [sys.executable, "-m", "tippingpoint.run.worker"]
    environment = {**os.environ, "PYTHONPATH": _source_path(), "PYTHONUNBUFFERED": "1"}
    with _stderr(job) as stderr:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=stderr,
            env=environment,
            start_new_session=True,  # a Ctrl-C on the terminal reaches the runner alone
            limit=2**24,
        )
    worker = WorkerProcess(job.name, process, listener)
    assert process.stdin is not None
    process.stdin.write(job.model_dump_json().encode() + b"\n")
    return worker


async def opened(worker: WorkerProcess) -> dict[str, Any]:
    """The target's facts as a worker found them; Refused when it could not begin."""
    reply = await worker.reply("ready", "refused")
    if reply is None:
        raise Refused(f"worker {worker.name}: ended before it was ready (see worker-{worker.name}.stderr)", 4)
    if reply["say"] == "refused":
        raise Refused(reply["problem"], reply["exit_code"])
    return reply


def tidy_stderr(directory: Path) -> None:
    """Remove the error outputs that stayed empty."""
    for path in directory.glob("worker-*.stderr"):
        if path.stat().st_size == 0:
            path.unlink()


def _stderr(job: Job) -> BinaryIO:
    return open(job.directory / f"worker-{job.name}.stderr", "wb")


def _source_path() -> str:
    """Where this package is, so that a worker runs the same code whatever the working directory is."""
    here = str(Path(__file__).resolve().parent.parent)
    rest = os.environ.get("PYTHONPATH")
    return f"{here}{os.pathsep}{rest}" if rest else here
