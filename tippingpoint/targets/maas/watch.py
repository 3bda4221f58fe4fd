"""The run's machines as lists show them, and the callers that wait for changes.

MAAS cannot list only some of the fields, and one machine has some 6 KB of them. So a list requests only the awaited
machines, by their ids. A whole group is listed now and then: such lists take a small part of the time, however long the
group is. A worker makes one list at a time, and begins the next `every` seconds later.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, Task
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.maas.client import MaasClient, mapping
from tippingpoint.targets.maas.errors import MaasError, MaasGone
from tippingpoint.targets.maas.names import machine_name, pool_name
from tippingpoint.targets.maas.status import Machine, machine_of
from tippingpoint.targets.maas.workspace import MaasWorkspace
from tippingpoint.workloads.spawn.target import Item

MOST_IDS = 500
"""Machines that one list requests by their ids. With ten characters each, that is a URL that proxies permit (8 KB)."""
WHOLE_PART = 20
"""The least time between lists of a whole group, in multiples of what one took, while few machines are awaited."""
IDLE_PART = 4
"""The same, while no machine is awaited."""
_NEARLY = 0.9
"""A list requested after this part of the interval since the last one is on time."""
_LATE = 1.0
"""Seconds that the workload's next list may be late before a list is made here."""
_NEVER = float("-inf")

Met = Callable[[Machine | None], bool]
"""Whether a machine, as a list shows it, is in the awaited state; it gets None if the list does not show the machine.
It raises MaasError if that state will never come."""


@dataclass
class _Wait:
    id: str
    met: Met
    since: float
    """When the call was answered: a list that began earlier does not count."""
    shown: Future[None]


@dataclass
class _Group:
    machines: dict[Item, Machine] = field(default_factory=dict[Item, Machine])
    changed: dict[Item, float] = field(default_factory=dict[Item, float])
    """When a call's answer last showed a machine, or removed it: an older list does not count for it."""
    waits: dict[Item, _Wait] = field(default_factory=dict[Item, _Wait])
    doubted: bool = False
    """Whether an answer contradicted what is known: the next list is whole."""
    whole: float = _NEVER
    """When the latest list of the whole group began."""
    took: float = 0.0
    """How many seconds it took."""


class Watch:
    """One worker's machines, by group. `every` is the least number of seconds from one list to the next."""

    def __init__(self, client: MaasClient, workspace: MaasWorkspace, every: float) -> None:
        self._client = client
        self._workspace = workspace
        self._every = every
        self._groups: dict[int, _Group] = {}
        self._listing = asyncio.Lock()
        self._began = self._ended = _NEVER
        self._shown = _NEVER
        """When the latest answered list began."""
        self._ticker: Task[None] | None = None

    def add(self, group: int) -> None:
        """Watch a group; nothing is known of its machines yet."""
        self._groups.setdefault(group, _Group())

    def machine(self, item: Item) -> Machine | None:
        """Return a machine as it was last seen."""
        return self._groups[item.group].machines.get(item)

    def machines(self, group: int) -> Mapping[Item, Machine]:
        """Return the machines of a group as they were last seen."""
        return self._groups[group].machines

    def note(self, item: Item, answer: object) -> Machine:
        """Note a machine as the answer to a call shows it."""
        machine = machine_of(self._workspace.prefix, self._workspace.run, answer)
        if machine is None or machine.item != item:
            raise MaasError("an answer about another machine")
        self._change(item, machine)
        return machine

    def note_gone(self, item: Item) -> None:
        """Note that a machine no longer exists."""
        self._change(item, None)

    def doubt(self, item: Item) -> None:
        """Make the next list show the machine's whole group, because MAAS contradicted what is known of the machine."""
        self._groups[item.group].doubted = True

    async def known(self, item: Item) -> Machine:
        """Return a machine as it was last seen, after a list if it was never seen; MaasGone if it does not exist."""
        machine = self.machine(item)
        if machine is None:
            self.doubt(item)
            await self.look(item.group)
            machine = self.machine(item)
        if machine is None:
            raise self._gone(item)
        return machine

    async def until(self, machine: Machine, met: Met) -> None:
        """Wait until a list shows a machine in the wanted state; raises what `met` raises."""
        group, item = self._groups[machine.item.group], machine.item
        if item not in group.changed and met(group.machines.get(item)):
            return
        loop = asyncio.get_running_loop()
        wait = group.waits[item] = _Wait(machine.id, met, loop.time(), loop.create_future())
        if self._ticker is None or self._ticker.done():
            self._ticker = loop.create_task(self._list_while_awaited())
        try:
            await wait.shown
        finally:
            if group.waits.get(item) is wait:
                del group.waits[item]

    async def look(self, number: int) -> None:
        """List the awaited machines, or a whole group where that is due. Concurrent callers share the next list."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        async with self._listing:
            group = self._groups[number]
            if self._shown >= asked and group.whole > _NEVER and not group.doubted:
                return
            if group.whole > _NEVER:
                await asyncio.sleep(self._began + self._every * _NEARLY - loop.time())
            awaited = [wait for each in self._groups.values() for wait in each.waits.values()]
            if self._is_whole_due(group, len(awaited)):
                await self._list_whole(number)
            elif awaited:
                await self._list_some([wait.id for wait in awaited])

    async def close(self) -> None:
        """Make no more lists."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)

    def _change(self, item: Item, machine: Machine | None) -> None:
        group = self._groups[item.group]
        _put(group.machines, item, machine)
        group.changed[item] = asyncio.get_running_loop().time()

    def _gone(self, item: Item) -> MaasGone:
        return MaasGone(f"{machine_name(self._workspace.prefix, item)}: does not exist")

    def _is_whole_due(self, group: _Group, awaited: int) -> bool:
        if group.doubted or (awaited > MOST_IDS and group.waits):
            return True
        among, part = (len(self._groups), WHOLE_PART) if awaited else (1, IDLE_PART)
        since = asyncio.get_running_loop().time() - group.whole
        return since >= max(self._every * (among - 1 + _NEARLY) * _NEARLY, part * group.took)

    async def _list_whole(self, number: int) -> None:
        group, began = self._groups[number], self._begin()
        shown = await self._read([("pool", pool_name(self._workspace.prefix, number))])
        group.doubted = False
        machines = {machine.item: machine for machine in shown if machine.item.group == number}
        group.whole, group.took = began, self._ended - began
        for item in machines.keys() | group.machines.keys():
            self._see(group, item, machines.get(item), began)
        await self._tell([number], began)

    async def _list_some(self, ids: Collection[str]) -> None:
        began, waits = (
            self._begin(),
            {number: dict(group.waits) for number, group in self._groups.items() if group.waits},
        )
        machines = {machine.item: machine for machine in await self._read([("id", each) for each in ids])}
        for number, awaited in waits.items():
            for item in awaited:
                self._see(self._groups[number], item, machines.get(item), began)
        await self._tell(waits, began)

    def _begin(self) -> float:
        self._began = asyncio.get_running_loop().time()
        return self._began

    async def _read(self, query: list[tuple[str, str]]) -> list[Machine]:
        prefix, run = self._workspace.prefix, self._workspace.run
        began = self._began
        try:
            found = await self._client.each("machines/", lambda entry: machine_of(prefix, run, entry), query)
            self._shown = began
            return found
        except MaasError as problem:
            if problem.kind == "trust":  # no later list will show anything either
                for wait in [wait for group in self._groups.values() for wait in group.waits.values()]:
                    if not wait.shown.done():
                        wait.shown.set_exception(problem)
            raise
        finally:
            self._ended = asyncio.get_running_loop().time()

    def _see(self, group: _Group, item: Item, machine: Machine | None, began: float) -> None:
        """Note a machine as a list shows it, unless an answer is newer than the list."""
        if group.changed.get(item, _NEVER) >= began:
            return
        group.changed.pop(item, None)
        _put(group.machines, item, machine)

    async def _tell(self, numbers: Collection[int], began: float) -> None:
        """Wake the callers that wait in these groups, by what a list has shown."""
        told = [
            (item, wait, self._groups[number].machines.get(item))
            for number in numbers
            for item, wait in self._groups[number].waits.items()
            if wait.since <= began and not wait.shown.done()
        ]
        silent = [machine.id for _, _, machine in told if machine and machine.fault and not machine.said]
        reasons = await self._reasons(silent) if silent else {}
        for item, wait, machine in told:
            if wait.shown.done():
                continue
            if machine and machine.id in reasons:
                machine = replace(machine, said=reasons[machine.id])
                self._groups[item.group].machines[item] = machine
            try:
                if wait.met(machine):
                    wait.shown.set_result(None)
            except MaasError as problem:
                wait.shown.set_exception(problem)

    async def _reasons(self, ids: Collection[str]) -> dict[str, str]:
        """Return why machines failed, if their status does not show it: the last error of each in MAAS's events."""
        query = [("level", "ERROR"), ("limit", "1000"), *(("id", each) for each in [*ids][:MOST_IDS])]
        try:
            found: Any = mapping(await self._client.get("events/", query, op="query")).get("events")
        except MaasError:
            return {}
        reasons: dict[str, str] = {}
        events = cast("list[Any]", found) if isinstance(found, list) else []
        for event in map(mapping, events):  # newest first
            text: Any = event.get("description") or event.get("type")
            reasons.setdefault(str(event.get("node")), str(text or ""))
        return reasons

    async def _list_while_awaited(self) -> None:
        """List awaited machines when the workload does not: its lists stop at the end of a stage."""
        loop = asyncio.get_running_loop()
        while waiting := [number for number, group in self._groups.items() if group.waits]:
            await asyncio.sleep(self._every)
            took = self._ended - self._began
            quiet = loop.time() - max(self._began, self._ended)
            if not self._listing.locked() and quiet > max(1.5 * self._every, took) + _LATE:
                with suppress(OperationFailed):
                    await self.look(min(waiting, key=lambda number: self._groups[number].whole))


def _put(machines: dict[Item, Machine], item: Item, machine: Machine | None) -> None:
    if machine is None:
        machines.pop(item, None)
    else:
        machines[item] = machine
