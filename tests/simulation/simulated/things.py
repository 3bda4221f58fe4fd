"""Things of a simulated service: they are created, started, listed and removed, and may vanish."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.simulation.simulated.service import Service
from tippingpoint.errors import OperationFailed
from tippingpoint.workloads.load import OnProgress, TargetFacts
from tippingpoint.workloads.spawn.target import Exists, Gone, Item, MemberSeen, Seen, SpawnFailed

MEMBER = "s1"


class Things:
    """A worker's access to a service: a SpawnTarget. A thing is held for good, by its state."""

    waits_with_members = False

    def __init__(self, service: Service, prefix: str) -> None:
        self._service = service
        self._prefix = prefix
        self._open: set[Future[Any]] = set()

    async def open(self) -> TargetFacts:
        await asyncio.sleep(self._service.base)
        return TargetFacts(kind="simulated", version="1.0", members=[MEMBER])

    async def prepare(self, groups: range, progress: OnProgress) -> None:
        progress("groups", len(groups), len(groups))

    async def create(self, item: Item, member: str | None) -> None:
        name = self._name(item)

        def create() -> bool:
            if not self._service.free(name):
                return False
            self._service.make_of(self._prefix)
            self._service.keep(name, "stopped")
            return True

        if not await self._ask("create", name, create):
            raise Exists("it exists", "busy")

    async def start(self, item: Item) -> str:
        name = self._name(item)
        if not await self._ask("start", name, partial(self._change, name, "running")):
            raise Gone("not found")
        return MEMBER

    def _change(self, name: str, state: str) -> bool:
        if self._service.free(name):
            return False
        self._service.keep(name, state)
        return True

    def is_failed(self, item: Item) -> bool:
        return False

    async def probe(self, item: Item) -> None:
        raise AssertionError("no thing is probed")

    async def delete(self, item: Item) -> None:
        name = self._name(item)
        await self._ask("delete", name, partial(self._service.let_go, name))

    async def list_group(self, group: int, *, addresses: bool) -> Mapping[Item, Seen]:
        begins = f"{self._prefix}-{group}-"

        def listed() -> Mapping[Item, Seen]:
            return {
                Item(group, int(name.removeprefix(begins))): Seen(state == "running", MEMBER)
                for name, (state, _) in self._service.leases.items()
                if name.startswith(begins)
            }

        return await self._ask("list", begins, listed)

    async def members(self) -> list[MemberSeen]:
        await asyncio.sleep(self._service.base)
        return [MemberSeen(MEMBER, online=True, leader=True)]

    async def evict(self, member: str) -> None:
        raise AssertionError("no member is evicted")

    async def observe(self, what: str, group: int, running: Item | None) -> bool:
        raise AssertionError("nothing is observed")

    async def close(self) -> None:
        for future in self._open:
            future.cancel()

    def _name(self, item: Item) -> str:
        return f"{self._prefix}-{item.group}-{item.number}"

    async def _ask(self, operation: str, name: str, do: Callable[[], Any]) -> Any:
        future = self._service.answer(operation, name, None, do)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        try:
            return await future
        except OperationFailed as failed:
            raise SpawnFailed(str(failed), "busy") from None
