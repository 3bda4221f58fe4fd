"""One process's access to libvirt: a program for the distribution's Python, which answers lines of JSON."""

from __future__ import annotations

import asyncio
import itertools
import os
from asyncio import Future, Task
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from tippingpoint.errors import TargetError, UserError
from tippingpoint.targets.maas.errors import MaasError
from tippingpoint.workloads.spawn.target import Trouble

PYTHON = "/usr/bin/python3"
"""The distribution's Python, because the libvirt binding (python3-libvirt) is made for no other."""
PLACE = "target.made.libvirt"
_PROGRAM = Path(__file__).with_name("program.py")
ANSWERS_WITHIN = 60.0
"""Seconds for the first answer. A libvirt that hangs gives none."""
ENDS_WITHIN = 10.0
"""Seconds for the program to finish its work when it is to end."""
_LONGEST_ANSWER = 1 << 24

# The first text that matches counts, ignoring case, or else the error's number (virterror.h).
_BY_TEXT: tuple[tuple[str, Trouble], ...] = (
    ("no space left", "full"),
    ("quota exceeded", "full"),
    ("cannot allocate memory", "full"),
    ("permission denied", "trust"),
    ("authentication", "trust"),
    ("state change lock", "busy"),
    ("asynchronous jobs", "busy"),
    ("client socket is closed", "unreachable"),
    ("end of file while reading", "unreachable"),
    ("failed to connect", "unreachable"),
    ("unable to connect", "unreachable"),
    ("cannot recv data", "unreachable"),
    ("cannot write data", "unreachable"),
)
_BY_CODE: dict[int, Trouble] = {
    8: "setting",  # VIR_ERR_INVALID_ARG
    27: "setting",  # VIR_ERR_XML_ERROR
    45: "trust",  # VIR_ERR_AUTH_FAILED
    55: "busy",  # VIR_ERR_OPERATION_INVALID
    67: "setting",  # VIR_ERR_CONFIG_UNSUPPORTED
    68: "timeout",  # VIR_ERR_OPERATION_TIMEOUT
    79: "trust",  # VIR_ERR_AUTH_CANCELLED
    88: "trust",  # VIR_ERR_ACCESS_DENIED
    94: "trust",  # VIR_ERR_AUTH_UNAVAILABLE
}


class Libvirt:
    """The libvirt at a URI, used from one event loop. It is reached again when the connection has ended."""

    def __init__(self, uri: str, python: str = PYTHON) -> None:
        self._uri = uri
        self._python = python
        self._starting = asyncio.Lock()
        self._process: Process | None = None
        self._reader: Task[None] | None = None
        self._answers: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()

    async def reach(self) -> dict[str, Any]:
        """Return the facts of a libvirt that answers.

        TargetError if it does not answer, and UserError if this machine has no libvirt binding.
        """
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                return await self.ask("facts")
        except MaasError as problem:
            raise TargetError(PLACE, f"{self._uri}: {problem}", "a libvirt that answers") from None
        except TimeoutError:
            said = f"{self._uri}: no answer within {ANSWERS_WITHIN:g} s"
            raise TargetError(PLACE, said, "a libvirt that answers") from None

    async def ask(self, do: str, **arguments: Any) -> Any:
        """Have the program do something (a method of `program.Server`), and return its answer.

        Raises MaasError with libvirt's message. A cancelled request is still carried out.
        """
        process = await self._started()
        assert process.stdin is not None
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        request = {"id": number, "uri": self._uri, "do": do, "with": arguments}
        try:
            process.stdin.write(orjson.dumps(request) + b"\n")
            return await answer
        finally:
            self._answers.pop(number, None)

    async def close(self) -> None:
        """End the program. It first finishes what was requested, unless libvirt hangs."""
        if self._process is None or self._reader is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDS_WITHIN):
                await asyncio.shield(self._reader)
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._reader

    async def _started(self) -> Process:
        """Return the program, started anew if it has ended."""
        async with self._starting:
            if self._process is not None and self._process.returncode is None:
                return self._process
            try:
                process = await asyncio.create_subprocess_exec(
                    *(self._python, "-I", str(_PROGRAM)),
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=DEVNULL,
                    env={**os.environ, "LC_ALL": "C"},  # the language of its error messages
                    start_new_session=True,  # Ctrl-C ends the run, which still has to remove what it made
                    limit=_LONGEST_ANSWER,
                )
            except OSError:
                raise _no_binding(self._python) from None
            assert process.stdout is not None
            if not await process.stdout.readline():  # it says that it is ready
                await process.wait()
                raise _no_binding(self._python)
            self._process = process
            self._reader = asyncio.get_running_loop().create_task(self._read(process))
            return process

    async def _read(self, process: Process) -> None:
        """Hand out the program's answers until it ends."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            said: dict[str, Any] = orjson.loads(line)
            answer = self._answers.get(said["id"])
            if answer is None or answer.done():
                continue
            if "problem" in said:
                answer.set_exception(
                    _error(said["problem"], said["code"], refused=said.get("refused", False))
                )
            else:
                answer.set_result(said["done"])
        await process.wait()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(MaasError("libvirt: its program has ended", "unreachable"))


def _no_binding(python: str) -> UserError:
    return UserError(
        "target.made.kind",
        "virtme",
        f"the distribution's package python3-libvirt, which {python} does not find",
    )


def _error(said: str, code: int, *, refused: bool) -> MaasError:
    """Return the error for what the program says of a request."""
    text = said.lower()
    kinds: list[Trouble] = ["setting"] if refused else [kind for sign, kind in _BY_TEXT if sign in text]
    return MaasError(f"libvirt: {said}", kinds[0] if kinds else _BY_CODE.get(code, "other"))
