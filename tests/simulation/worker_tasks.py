"""Workers that are tasks on the simulation's event loop, in place of processes."""

from __future__ import annotations

import asyncio
import signal
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.lives import Life, context_of
from tests.simulation.virtual_time import VirtualLoop
from tippingpoint.play.worker import Commands, Job, Voice, work
from tippingpoint.play.worker_process import Listener, WorkerProcess


class _Pipe(asyncio.WriteTransport):
    """The writing end of a pipe whose reader takes everything at once."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__()
        self._reader = reader
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closed:
            self._reader.feed_data(bytes(data))

    def is_closing(self) -> bool:
        return self._closed

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._reader.feed_eof()


class WorkerTask:
    """A worker, as a process of asyncio's would be to its runner."""

    def __init__(self, errors: Path) -> None:
        self.returncode: int | None = None
        commands = asyncio.StreamReader(limit=2**24)
        self.stdout = asyncio.StreamReader(limit=2**24)
        self.stdin = _Pipe(commands)
        self._said = _Pipe(self.stdout)
        self._errors = errors
        self._gone = asyncio.Event()
        self._life = Life("worker")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop = loop
        self._task = loop.create_task(self._work(commands), context=context_of(self._life))

    async def _work(self, commands: asyncio.StreamReader) -> None:
        code = 0
        try:
            await work(Commands(commands), Voice(self._said))
        except Exception:
            self._errors.write_text(traceback.format_exc())
            code = 1
        finally:
            self._end(code)

    async def wait(self) -> int:
        await self._gone.wait()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, signal: int) -> None:
        if self.returncode is None:
            self._loop.end(self._life)
            self._end(-signal)

    def _end(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self.stdin.close()
            self._said.close()
            self._gone.set()


class WorkerTasks:
    """Starts workers as tasks."""

    def __init__(self) -> None:
        self.started: list[WorkerTask] = []

    async def start(self, job: Job, listener: Listener, inherited: Sequence[int] = ()) -> WorkerProcess:
        """Start a worker on its job, as start_worker does."""
        errors = job.directory / f"worker-{job.name}.stderr"
        task = WorkerTask(errors)
        self.started.append(task)
        task.stdin.write(job.model_dump_json().encode() + b"\n")
        return WorkerProcess(job.name, task, listener, errors)
