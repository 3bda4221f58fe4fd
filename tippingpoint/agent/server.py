"""The socket for the charm's requests, one JSON line each way. No request waits for a run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import orjson
from pydantic import ValidationError

from tippingpoint.agent.client import LONGEST_REQUEST
from tippingpoint.errors import UserError, describe
from tippingpoint.util.network_errors import in_words
from tippingpoint.util.patience import answers_within

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Answers a request, which is any JSON object; an exception becomes the answer's problem."""

_PATIENCE = 30.0
"""Seconds that a client may take to send its line, or to read the answer."""


class Server:
    """Listens on a unix socket of mode 0660, which replaces an older one."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self._path = path
        self._answer = answer
        self._clients: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen; raises UserError if that is impossible."""
        fresh = self._path.with_name(self._path.name + ".new")
        with contextlib.ExitStack() as undo:
            there = undo.enter_context(socket.socket(socket.AF_UNIX))
            try:
                fresh.unlink(missing_ok=True)
                before = os.umask(0o117)  # whatever takes its place meanwhile does not get our mode
                try:
                    there.bind(str(fresh))
                finally:
                    os.umask(before)
                there.listen(128)
                fresh.replace(self._path)  # it appears only once it answers, with its mode set
            except OSError as problem:
                accepted = f"a path for a socket ({in_words(problem)})"
                raise UserError("--socket", str(self._path), accepted) from None
            self._server = await asyncio.start_unix_server(self._hear, sock=there, limit=LONGEST_REQUEST)
            undo.pop_all()

    async def close(self) -> None:
        """Stop listening."""
        self._path.unlink(missing_ok=True)
        self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            with contextlib.suppress(ConnectionError, TimeoutError):
                await self._serve(reader, writer)
        finally:
            self._clients.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        whole = True
        try:
            async with answers_within(_PATIENCE):
                line = await reader.readline()
        except ValueError:  # longer than the limit
            whole = False
            answer = _refused(
                f"request: more than {LONGEST_REQUEST >> 20} MiB: expected one line, not so long"
            )
        else:
            if not line:
                return
            answer = await self._reply(line)
        writer.write(answer)
        async with answers_within(_PATIENCE):
            await writer.drain()
            while not whole and await reader.read(1 << 20):
                pass  # a client that is still sending would not see our answer otherwise

    async def _reply(self, line: bytes) -> bytes:
        try:
            request: object = orjson.loads(line)
            if not isinstance(request, dict):
                raise ValueError
        except ValueError:
            return _refused("request: expected one line of JSON, an object with `do`")
        try:
            return orjson.dumps({"ok": True, **await self._answer(cast("dict[str, Any]", request))}) + b"\n"
        except ValidationError as problem:
            return _refused(_of_request(problem))
        except Exception as problem:
            return _refused(describe(problem))


def _refused(problem: str) -> bytes:
    return orjson.dumps({"ok": False, "problem": problem}) + b"\n"


def _of_request(problem: ValidationError) -> str:
    """Return the first error in a request."""
    error = problem.errors(include_url=False)[0]
    field = ".".join(str(part) for part in error["loc"]) or "request"
    accepted = str(error["msg"]).removeprefix("Input should be ").removeprefix("Value error, ").lower()
    return str(UserError(field[:120], error["input"] if error["type"] != "missing" else "missing", accepted))
