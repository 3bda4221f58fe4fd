"""Which lists a worker makes for the machines that it waits for, and what it takes from them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.unit.targets.maas.maas_stub import MaasStub, answering, stub_region, way_file
from tippingpoint.targets.maas import watch as watching
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.errors import MaasError, MaasGone
from tippingpoint.targets.maas.names import group_of, machine_name, mark_of
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.targets.maas.status import Machine
from tippingpoint.targets.maas.watch import Watch
from tippingpoint.targets.maas.workspace import MaasWorkspace
from tippingpoint.workloads.spawn.target import Item

PREFIX, RUN = "tp0123abcd", "the-run"
EVERY = 0.05


class Region:
    """A region's list of machines, and the questions that were asked of it."""

    def __init__(self, stub: MaasStub) -> None:
        self.statuses: dict[Item, int] = {}
        self.asked: list[dict[str, list[str]]] = []
        self.at_once = 0
        self.held = asyncio.Event()
        self.held.set()
        self.holds = asyncio.Event()
        stub.answers["GET api/2.0/machines/"] = self.answer

    def entry(self, item: Item) -> dict[str, Any]:
        return {
            "system_id": f"i{item.group}{item.number}",
            "hostname": machine_name(PREFIX, item),
            "description": mark_of(RUN),
            "status": self.statuses[item],
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append({name: request.query.getall(name) for name in request.query})
        self.at_once += 1
        assert self.at_once == 1, "two lists at once"
        listed = [self.entry(item) for item in self.statuses]
        if not self.held.is_set():
            self.holds.set()
        await self.held.wait()
        self.at_once -= 1
        if ids := request.query.getall("id", []):
            return web.json_response([each for each in listed if each["system_id"] in ids])
        group = group_of(PREFIX, request.query["pool"])
        return web.json_response([each for each in listed if f"-{group:03d}-" in each["hostname"]])


@pytest.fixture
async def stub() -> AsyncIterator[MaasStub]:
    async with stub_region() as stub:
        yield stub


@pytest.fixture
def region(stub: MaasStub) -> Region:
    return Region(stub)


@pytest.fixture
async def watch(stub: MaasStub, tmp_path: Path) -> AsyncIterator[Watch]:
    target = MaasTarget(kind="maas", credentials=way_file(stub.url, tmp_path))
    client = MaasClient(access(target))
    watch = Watch(client, MaasWorkspace(run=RUN, prefix=PREFIX, target=target), EVERY)
    for group in range(2):
        watch.add(group)
    yield watch
    await watch.close()
    await client.close()


def ready(machine: Machine | None) -> bool:
    if machine is None:
        raise MaasGone("gone")
    return machine.status == 4


@pytest.fixture(autouse=True)
def fast_wholes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of whole groups cost nothing, however slow this machine is."""
    monkeypatch.setattr(watching, "WHOLE_PART", 0)
    monkeypatch.setattr(watching, "IDLE_PART", 0)


@pytest.fixture
def slow_wholes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of whole groups are as dear as those of 5,000 machines."""
    monkeypatch.setattr(watching, "WHOLE_PART", 1e9)
    monkeypatch.setattr(watching, "IDLE_PART", 1e9)


@pytest.mark.usefixtures("slow_wholes")
async def test_only_machines_that_are_waited_for_are_listed_after_the_whole_group(
    watch: Watch, region: Region
) -> None:
    """Given two machines of two groups that somebody waits for, then one list asks for both, by their ids."""
    items = [Item(0, 0), Item(1, 3)]
    region.statuses = dict.fromkeys([*items, Item(0, 1)], 1)
    for group in range(2):
        await watch.look(group)
    waiting = [
        asyncio.create_task(watch.until(watch.note(item, region.entry(item)), ready)) for item in items
    ]
    await asyncio.sleep(0)
    await watch.look(0)
    assert not any(each.done() for each in waiting)
    region.statuses = dict.fromkeys(items, 4)
    await watch.look(1)
    await asyncio.gather(*waiting)
    whole, ids = [{"pool": [f"{PREFIX}-00{group}"]} for group in range(2)], {"id": ["i00", "i13"]}
    assert region.asked == [*whole, ids, ids]
    assert watch.machine(Item(0, 1)) is not None, "nobody asked for it"


async def test_lists_are_made_one_by_one_and_apart(watch: Watch, region: Region) -> None:
    """Given many who ask at the same time, then they share a list, and the next begins after the interval."""
    loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    region.statuses = {Item(0, 0): 1}
    await watch.look(0)
    waiting = asyncio.create_task(watch.until(watch.note(Item(0, 0), region.entry(Item(0, 0))), ready))
    await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.gather(*(watch.look(0) for _ in range(10)))
    assert len(region.asked) == 4
    assert loop.time() - began >= 3 * EVERY * 0.85
    waiting.cancel()


@pytest.mark.usefixtures("slow_wholes")
async def test_a_contradiction_has_the_whole_group_listed(watch: Watch, region: Region) -> None:
    await watch.look(0)
    region.statuses = {Item(0, 0): 4}
    await watch.look(0)
    assert watch.machine(Item(0, 0)) is None, "no list was due"
    watch.doubt(Item(0, 0))
    await watch.look(0)
    assert watch.machine(Item(0, 0)) is not None


async def test_an_answer_that_is_newer_than_a_list_counts(watch: Watch, region: Region) -> None:
    """Given a machine that is removed while a list is made that has it, then it is gone, for whoever waits too."""
    region.statuses = {Item(0, 0): 4}
    await watch.look(0)
    machine = watch.machine(Item(0, 0))
    assert machine is not None
    region.held.clear()
    look = asyncio.create_task(watch.look(0))
    await region.holds.wait()
    watch.note_gone(Item(0, 0))
    gone = asyncio.create_task(watch.until(machine, lambda shown: shown is None))
    await asyncio.sleep(0)
    region.held.set()
    await look
    assert watch.machine(Item(0, 0)) is None
    assert not gone.done(), "no list showed it"
    region.statuses = {}
    await watch.look(0)
    await gone


async def test_whoever_waits_is_told_without_the_workloads_lists(
    watch: Watch, region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LATE", 0.0)
    region.statuses = {Item(0, 0): 1}
    await watch.look(0)
    waiting = asyncio.create_task(watch.until(watch.note(Item(0, 0), region.entry(Item(0, 0))), ready))
    await asyncio.sleep(0)
    region.statuses = {}
    with pytest.raises(MaasGone):
        await waiting


async def test_whoever_waits_is_told_that_the_key_is_refused(
    watch: Watch, region: Region, stub: MaasStub
) -> None:
    """Given a key that lists are refused with, then nobody waits for what no list will show."""
    region.statuses = {Item(0, 0): 1}
    await watch.look(0)
    waiting = asyncio.create_task(watch.until(watch.note(Item(0, 0), region.entry(Item(0, 0))), ready))
    await asyncio.sleep(0)
    stub.answers["GET api/2.0/machines/"] = answering("Authorization Error: Invalid API key.", 401)
    with pytest.raises(MaasError, match="Invalid API key"):
        await watch.look(0)
    with pytest.raises(MaasError) as problem:
        await waiting
    assert problem.value.kind == "trust"


async def test_a_list_that_fails_tells_nobody_anything(watch: Watch, region: Region, stub: MaasStub) -> None:
    """Given callers who share a list that fails, then each learns of it."""
    region.statuses = {Item(0, 0): 4}
    await watch.look(0)
    del stub.answers["GET api/2.0/machines/"]
    told = await asyncio.gather(*(watch.look(0) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(each, MaasError) for each in told)
    assert watch.machine(Item(0, 0)) is not None
