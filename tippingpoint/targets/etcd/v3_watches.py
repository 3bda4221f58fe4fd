"""Watches of prefixes through the v3 API: each connection has one Watch stream for all of its watches."""

from __future__ import annotations

import asyncio
from asyncio import Future

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.etcd import messages as pb
from tippingpoint.targets.etcd.grpc import MAX_MESSAGE, UNAUTHENTICATED, Call, RpcError, framed
from tippingpoint.targets.etcd.v3_cluster import Cluster
from tippingpoint.targets.etcd.v3_link import Link
from tippingpoint.workloads.store.target import Change, Watching


class _Watch:
    """One watch, and the future that ends when it has begun."""

    __slots__ = ("begun", "future", "number", "start", "stream", "watching")

    def __init__(self, number: int, start: int, watching: Watching, future: Future[None]) -> None:
        self.number = number
        self.start = start
        self.watching = watching
        self.future = future
        self.begun = False
        self.stream: _Stream | None = None

    def end(self, failure: OperationFailed, compacted: int = 0) -> None:
        """Report that it is over."""
        if self.begun:
            self.watching.ended(str(failure), compacted)
        elif not self.future.done():
            self.future.set_exception(failure)


class _Stream(Call):
    """A connection's Watch stream."""

    __slots__ = ("_last", "_last_change", "_owner", "link", "watches")

    def __init__(self, owner: Watches, link: Link) -> None:
        super().__init__(MAX_MESSAGE)
        self._owner = owner
        self.link = link
        self.watches: dict[int, _Watch] = {}
        self._last = b""
        self._last_change = Change(0, b"", False)

    def on_message(self, message: bytes) -> None:
        number = compacted = 0
        created = canceled = False
        header = reason = b""
        changes: list[Change] = []
        for field, value in pb.fields(message):
            if field == 11 and isinstance(value, bytes):
                # Watchers of one prefix are sent the same event, one after the other.
                if value != self._last:
                    self._last_change = Change(*pb.event(value))
                    self._last = value
                changes.append(self._last_change)
            elif field == 1 and isinstance(value, bytes):
                header = value
            elif field == 2 and isinstance(value, int):
                number = value
            elif field == 3:
                created = value == 1
            elif field == 4:
                canceled = value == 1
            elif field == 5 and isinstance(value, int):
                compacted = value
            elif field == 6 and isinstance(value, bytes):
                reason = value
        watch = self.watches.get(number)
        if watch is None:
            return
        if canceled:
            self._owner.forget(watch)
            said = reason.decode("utf-8", "replace") or "canceled by the server"
            watch.end(self.link.failed(f"watch: {said}"), compacted)
            return
        if created and not watch.begun:
            watch.begun = True
            watch.watching.began(watch.start or pb.header_revision(header) + 1)
            if not watch.future.done():
                watch.future.set_result(None)
        if changes:
            watch.watching.happened(changes)

    def on_close(self, error: RpcError | None) -> None:
        if error is not None and error.code == UNAUTHENTICATED:
            self.link.login.renew()
        self._owner.over(self, error.message if error is not None else "the server ended the watch stream")


class Watches:
    """The watches of one worker. They are spread over its connections, and end with them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._streams: dict[Link, _Stream] = {}
        self._watches: dict[int, _Watch] = {}
        cluster.on_down = self._link_down

    def begin(self, number: int, request: bytes, start: int, watching: Watching) -> Future[None]:
        """Begin a watch; the future ends when it has begun."""
        future: Future[None] = self._loop.create_future()
        link = self._cluster.link(number, 0)
        if link is None or link.connection is None:
            future.set_exception(self._cluster.nowhere(number, 0))
            return future
        stream = self._streams.get(link)
        if stream is None:
            stream = self._streams[link] = _Stream(self, link)
            link.connection.open(stream, link.headers(pb.WATCH), first=True)
        watch = _Watch(number, start, watching, future)
        watch.stream = stream
        stream.watches[number] = watch
        self._watches[number] = watch
        stream.send(framed(request))
        return future

    def end(self, number: int) -> None:
        """End a watch; does nothing if no watch has that number."""
        watch = self._watches.get(number)
        if watch is not None:
            stream = watch.stream
            self.forget(watch)
            if stream is not None:
                stream.send(framed(pb.watch_cancel(number)))

    def forget(self, watch: _Watch) -> None:
        """Ignore everything else that arrives for a watch."""
        self._watches.pop(watch.number, None)
        if watch.stream is not None:
            watch.stream.watches.pop(watch.number, None)
            watch.stream = None

    def over(self, stream: _Stream, reason: str) -> None:
        """End the watches of a stream that ended."""
        if self._streams.get(stream.link) is stream:
            del self._streams[stream.link]
        watches = list(stream.watches.values())
        for watch in watches:
            self.forget(watch)
        for watch in watches:
            watch.end(stream.link.failed(reason))

    def clear(self) -> None:
        """Forget all watches without reporting it."""
        for watch in list(self._watches.values()):
            self.forget(watch)
        self._streams.clear()

    def _link_down(self, link: Link) -> None:
        stream = self._streams.get(link)
        if stream is not None:
            stream.cancel()
            self.over(stream, link.problem)
