"""Keys by etcd's v2 API: a tree that members keep in memory, and write out as a whole now and then.

The store's index is the revision of v3. There are no transactions and no pages: several keys are put one after the
other, a conflict is followed by a read, and a range is the whole directory. Values are text, so they are sent in an
alphabet of 64 letters. Every watcher has a socket of its own, and etcd remembers the last 1000 events only.
"""

from __future__ import annotations

import asyncio
import itertools
from asyncio import Future, Task
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import orjson

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.etcd.access import Scope, access, pause
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.etcd.v2_link import (
    DELETIONS,
    FAILURES,
    INDEX_CLEARED,
    KEY_NOT_FOUND,
    LARGEST,
    NODE_EXISTS,
    TEST_FAILED,
    Answer,
    Link,
    Operations,
    answer_of,
    greet,
    index_of,
    path_of,
)
from tippingpoint.util.network_errors import CLOSED, in_words
from tippingpoint.util.rest import cause_of, read_body
from tippingpoint.workloads.load import TargetFacts
from tippingpoint.workloads.store.target import Change, Page, Read, Update, Watching

T = TypeVar("T")

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_TEXT = 4 * _LETTERS
"""The letter for each byte; none needs more than a byte in a form."""


class V2Store:
    """A StoreTarget on the v2 API."""

    def __init__(self, target: EtcdTarget, scope: Scope) -> None:
        self._access = access(target)
        self._scope = scope
        self._links: list[Link] = []
        self._of_watches: list[Link] = []
        self._watches: dict[int, Task[None]] = {}
        self._operations: Operations | None = None
        self._numbers = itertools.count()

    async def open(self) -> TargetFacts:
        """Connect; see StoreTarget."""
        self._loop = asyncio.get_running_loop()
        self._operations = Operations()
        self._make_links()
        try:
            facts, _ = await greet(self._access, self._links, self._scope.prefix)
        except BaseException:
            await self.close()
            raise
        return facts

    def _make_links(self) -> None:
        endpoints = self._access.endpoints
        connections = self._access.target.connections
        self._links = [Link(each, self._access) for _ in range(connections) for each in endpoints]
        self._of_watches = [Link(each, self._access, sockets=0) for each in endpoints]
        for link in self._links:
            link.live = True

    # --- operations

    def put(self, key: bytes, value: bytes) -> Future[int]:
        """Put a key; see StoreTarget."""
        return self._start(lambda link: self._put(link, key, value))

    def put_all(self, pairs: Sequence[tuple[bytes, bytes]]) -> Future[list[int]]:
        """Put several keys, one after the other; see StoreTarget."""

        async def put(link: Link) -> list[int]:
            return [await self._put(link, key, value) for key, value in pairs]

        return self._start(put)

    async def _put(self, link: Link, key: bytes, value: bytes, **more: str) -> int:
        return _modified(link, await self._ask(link, "PUT", _path(key), {"value": _text(value), **more}))

    def get(self, key: bytes, *, serializable: bool) -> Future[Read]:
        """Read a key; see StoreTarget."""
        return self._start(lambda link: self._get(link, key, serializable=serializable))

    async def _get(self, link: Link, key: bytes, *, serializable: bool = False) -> Read:
        answer = await self._ask(link, "GET", _path(key) + ("" if serializable else "?quorum=true"))
        if answer.code == KEY_NOT_FOUND:
            return Read(answer.index, 0)
        return Read(answer.index, _modified(link, answer))

    def page(
        self, first: bytes, end: bytes, limit: int, revision: int, *, serializable: bool
    ) -> Future[Page]:
        """Read a directory, whatever the limit is; see StoreTarget."""

        async def read(link: Link) -> Page:
            answer, _ = await self._list(link, first, serializable=serializable)
            return Page(answer.index, False, b"")

        return self._start(read)

    def revisions(self, first: bytes, end: bytes, limit: int) -> Future[list[tuple[bytes, int]]]:
        """List keys with their revisions; see StoreTarget."""

        async def read(link: Link) -> list[tuple[bytes, int]]:
            _, nodes = await self._list(link, first)
            keys = sorted((str(node["key"]).encode(), int(node["modifiedIndex"])) for node in nodes)
            return [found for found in keys if first <= found[0] < end][:limit]

        return self._start(read)

    async def _list(
        self, link: Link, first: bytes, *, serializable: bool = False
    ) -> tuple[Answer, list[dict[str, Any]]]:
        """Return the answer about the directory of a key, and its nodes."""
        query = "" if serializable else "?quorum=true"
        answer = await self._ask(link, "GET", _path(first[: first.rindex(b"/")]) + query)
        if answer.code == KEY_NOT_FOUND:
            return answer, []
        link.check(answer)
        return answer, cast("list[dict[str, Any]]", _node(link, answer).get("nodes", []))

    def update(self, key: bytes, modified: int, value: bytes | None) -> Future[Update]:
        """Put or delete a key if its revision is this one; see StoreTarget."""

        async def update(link: Link) -> Update:
            if value is None:
                answer = await self._ask(link, "DELETE", f"{_path(key)}?prevIndex={modified}")
            else:
                expected = {"prevIndex": str(modified)} if modified else {"prevExist": "false"}
                answer = await self._ask(link, "PUT", _path(key), {"value": _text(value), **expected})
            if answer.code in (TEST_FAILED, NODE_EXISTS, KEY_NOT_FOUND):
                read = await self._get(link, key)
                return Update(read.revision, False, read.modified)
            return Update(_modified(link, answer), True, 0)

        return self._start(update)

    def delete(self, key: bytes) -> Future[int]:
        """Delete a key; see StoreTarget."""

        async def delete(link: Link) -> int:
            answer = await self._ask(link, "DELETE", _path(key))
            return 0 if answer.code == KEY_NOT_FOUND else _modified(link, answer)

        return self._start(delete)

    def clear(self, first: bytes, end: bytes) -> Future[None]:
        """Delete a directory; see StoreTarget."""

        async def clear(link: Link) -> None:
            answer = await self._ask(link, "DELETE", _path(first.rstrip(b"/")) + "?recursive=true")
            if answer.code != KEY_NOT_FOUND:
                link.check(answer)

        return self._start(clear)

    def lease(self, seconds: int, pairs: Sequence[tuple[bytes, bytes]]) -> Future[int]:
        """Put keys that live for some seconds, one after the other; see StoreTarget."""

        async def put(link: Link) -> int:
            return max([await self._put(link, key, value, ttl=str(seconds)) for key, value in pairs])

        return self._start(put)

    def _start(self, work: Callable[[Link], Coroutine[Any, Any, T]]) -> Future[T]:
        if self._operations is None:
            raise RuntimeError("open() comes first")
        link = self._link(self._links)
        return self._operations.start(link, work(link))

    def _link(self, links: Sequence[Link]) -> Link:
        """Return the next connection to a member that answered last, or the next one of all."""
        number = next(self._numbers)
        turns = [links[(number + step) % len(links)] for step in range(len(links))]
        return next((link for link in turns if link.live), turns[0])

    async def _ask(self, link: Link, method: str, path: str, form: dict[str, str] | None = None) -> Answer:
        try:
            return await link.operate(method, path, form)
        except OperationFailed:
            if link.live and self._operations is not None:
                link.live = False
                self._operations.start(link, self._wait_for(link))
            raise

    async def _wait_for(self, link: Link) -> None:
        """Use a connection again once its member answers."""
        for failures in itertools.count(1):
            await asyncio.sleep(pause(failures))
            with suppress(OperationFailed):
                await link.operate("GET", "/version")
                link.live = True
                return

    # --- watches

    def watch(
        self, number: int, prefix: bytes, start: int, watching: Watching, *, deletions: bool = False
    ) -> Future[None]:
        """Watch a directory; see StoreTarget."""
        begun: Future[None] = self._loop.create_future()
        follow = self._follow(number, prefix, start, watching, deletions, begun)
        self._watches[number] = self._loop.create_task(follow)
        return begun

    async def _follow(
        self,
        number: int,
        prefix: bytes,
        start: int,
        watching: Watching,
        deletions: bool,
        begun: Future[None],
    ) -> None:
        live = {link.endpoint for link in self._links if link.live}
        links = [link for link in self._of_watches if link.endpoint in live] or self._of_watches
        link = links[number % len(links)]
        path = f"{_path(prefix.rstrip(b'/'))}?wait=true&recursive=true&stream=true"
        next_index, compacted = start, 0
        try:
            while True:
                query = f"&waitIndex={next_index}" if next_index else ""
                async with link.stream(path + query) as response:
                    if response.status != 200:
                        answer = answer_of(response.status, 0, await read_body(response, LARGEST))
                        compacted = answer.index if answer.code == INDEX_CLEARED else 0
                        raise link.failed(answer.problem)
                    known = index_of(response)
                    next_index = next_index or known + 1
                    if not begun.done():
                        watching.began(next_index)
                        begun.set_result(None)
                    async for line in response.content:
                        change = _change(line)
                        next_index = change.revision + 1
                        if change.deleted or not deletions:
                            watching.happened([change])
                        if change.revision <= known:
                            break  # it was history, after which etcd sends nothing more
                    else:
                        raise link.failed(CLOSED)
        except OperationFailed as failure:
            problem = failure
        except FAILURES as error:
            problem = link.failed(in_words(cause_of(error)))
        except (ValueError, LookupError, TypeError) as error:
            problem = link.failed(f"broken event: {in_words(error)}")
        except asyncio.CancelledError:
            begun.cancel()
            raise
        if self._watches.pop(number, None) is None or begun.cancelled():
            return
        if begun.done():
            watching.ended(str(problem), compacted)
        else:
            begun.set_exception(problem)

    def unwatch(self, number: int) -> None:
        """End a watch; see StoreTarget."""
        task = self._watches.pop(number, None)
        if task is not None:
            task.cancel()

    # --- the end

    async def drop(self) -> None:
        """Connect afresh; see StoreTarget."""
        await self.close()
        self._make_links()

    async def close(self) -> None:
        """Close every connection; see StoreTarget."""
        watches = list(self._watches.values())
        self._watches.clear()
        for task in watches:
            task.cancel()
        if watches:
            await asyncio.wait(watches)
        if self._operations is not None:
            await self._operations.end()
        for link in [*self._links, *self._of_watches]:
            await link.close()


def _path(key: bytes) -> str:
    return path_of(key.decode())


def _text(value: bytes) -> str:
    return value.translate(_TEXT).decode()


def _node(link: Link, answer: Answer) -> dict[str, Any]:
    node: object = answer.body.get("node")
    if not isinstance(node, dict):
        raise link.failed("broken answer: no node")
    return cast("dict[str, Any]", node)


def _modified(link: Link, answer: Answer) -> int:
    """Return the index of the change that an answer is about; OperationFailed if it is an error."""
    link.check(answer)
    index: object = _node(link, answer).get("modifiedIndex")
    if not isinstance(index, int):
        raise link.failed("broken answer: no modifiedIndex")
    return index


def _change(line: bytes) -> Change:
    """Return an event of a stream; ValueError, LookupError or TypeError if it is none."""
    event: dict[str, Any] = orjson.loads(line)
    node: dict[str, Any] = event["node"]
    return Change(int(node["modifiedIndex"]), str(node["key"]).encode(), event["action"] in DELETIONS)
