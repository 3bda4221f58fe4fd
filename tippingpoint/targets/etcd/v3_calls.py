"""Unary calls of the v3 API, and the meaning of their refusals."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable

from tippingpoint.targets.etcd.access import ANSWER_WITHIN
from tippingpoint.targets.etcd.grpc import (
    INVALID_ARGUMENT,
    LONGEST,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    RpcError,
    UnaryCall,
)
from tippingpoint.targets.etcd.v3_link import Link
from tippingpoint.util.patience import answers_within

Done = Callable[[bytes, RpcError | None], None]


class Request:
    """A unary call. It is repeated once with a new token if the server no longer knows the first one."""

    __slots__ = ("_call", "_done", "_longest", "_message", "_path", "_token", "link")

    def __init__(self, link: Link, path: str, message: bytes, done: Done, longest: int = LONGEST) -> None:
        self.link = link
        self._path = path
        self._message = message
        self._done: Done | None = done
        self._longest = longest
        self._token = link.login.token
        self._call: UnaryCall | None = None
        self._send(self._answered)

    def cancel(self) -> None:
        """Drop the call; `done` is not called."""
        self._done = None
        if self._call is not None:
            self._call.cancel()

    def _send(self, answered: Done) -> None:
        connection = self.link.connection
        if connection is None:
            self._finish(b"", RpcError(UNAVAILABLE, self.link.problem))
            return
        self._call = UnaryCall(answered, self._longest)
        self._call.start(connection, self.link.headers(self._path), self._message)

    def _answered(self, answer: bytes, error: RpcError | None) -> None:
        if error is not None and _token_refused(error) and self._token:
            self._call = None
            self.link.login.renew(self._token, self._again)
        else:
            self._finish(answer, error)

    def _again(self) -> None:
        if self._done is not None:
            self._send(self._finish)

    def _finish(self, answer: bytes, error: RpcError | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(answer, error)


async def ask(
    link: Link, path: str, message: bytes, within: float = ANSWER_WITHIN, longest: int = LONGEST
) -> bytes:
    """Make one call and return its answer of at most `longest` bytes; RpcError or TimeoutError when it fails."""
    future: Future[bytes] = asyncio.get_running_loop().create_future()

    def done(answer: bytes, error: RpcError | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(answer)

    request = Request(link, path, message, done, longest)
    try:
        async with answers_within(within):
            return await future
    finally:
        request.cancel()


def for_administrators(error: RpcError) -> bool:
    """Whether a call is refused to non-administrators; some versions do so without gRPC's code for it."""
    return error.code == PERMISSION_DENIED or "permission denied" in error.message


def _token_refused(error: RpcError) -> bool:
    # etcd gives the second answer after users' rights were changed: an old token carries old rights.
    return error.code == UNAUTHENTICATED or (
        error.code == INVALID_ARGUMENT and "revision of auth store is old" in error.message
    )
