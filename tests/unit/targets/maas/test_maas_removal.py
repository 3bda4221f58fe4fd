"""What a run made in a MAAS is removed, in whatever state it is, and nothing of others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from lab.maas.region import Timings
from lab.maas.simulator import MaasLab
from tippingpoint.errors import TargetError
from tippingpoint.targets.maas import removal
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.ledger import MaasEntry
from tippingpoint.targets.maas.made import Registered
from tippingpoint.targets.maas.names import tag_name
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.targets.maas.pools import make_pool, pools
from tippingpoint.targets.maas.removal import remove
from tippingpoint.targets.maas.spawn import MaasMachines
from tippingpoint.targets.maas.workspace import MaasWorkspace
from tippingpoint.workloads.load import untold
from tippingpoint.workloads.spawn.target import Item

PREFIX, RUN = "tp0123abcd", "the-run"


@pytest.fixture
def lab() -> Iterator[MaasLab]:
    with MaasLab(machines=3, timings=Timings(0.05, 0.05, 0.05, 0.05, 0.05)) as lab:
        yield lab


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for in vain is given up soon."""
    monkeypatch.setattr(removal, "_PAUSE", 0.05)
    monkeypatch.setattr(removal, "STUCK_AFTER", 0.5)


@pytest.fixture
def target(lab: MaasLab) -> MaasTarget:
    return MaasTarget(kind="maas", credentials=lab.credentials)


@pytest.fixture
def entry(target: MaasTarget) -> MaasEntry:
    return MaasEntry(run=RUN, prefix=PREFIX, target=target)


@pytest.fixture
async def machines(target: MaasTarget) -> AsyncIterator[MaasMachines]:
    machines = MaasMachines(MaasWorkspace(run=RUN, prefix=PREFIX, target=target), 0.1)
    await machines.prepare(range(2), untold)
    yield machines
    await machines.close()


@pytest.fixture
async def client(target: MaasTarget) -> AsyncIterator[MaasClient]:
    client = MaasClient(access(target))
    yield client
    await client.close()


async def names(client: MaasClient) -> list[str]:
    return [each["hostname"] for each in await client.get("machines/")]


async def test_all_of_a_run_goes_and_nothing_of_others(
    machines: MaasMachines, client: MaasClient, entry: MaasEntry
) -> None:
    """Given machines that are new, commissioned and deployed, then all go with their pools, and others stay."""
    before = await names(client)
    items = [Item(0, 0), Item(0, 1), Item(1, 0)]
    for item in items:
        await machines.create(item, None)
    await machines.start(items[1])
    await machines.start(items[2])
    await machines.probe(items[2])
    foreign: list[tuple[str, str]] = [
        ("hostname", f"{PREFIX}-000-0007"),
        ("architecture", "amd64"),
        ("mac_addresses", "06:00:00:00:00:01"),
        ("power_type", "manual"),
        ("commission", "false"),
    ]
    await client.send("POST", "machines/", foreign)
    await make_pool(client, PREFIX, "another-run", 7)
    for name, comment in ((tag_name(PREFIX), f"tippingpoint {RUN}"), ("web", "")):
        await client.send("POST", "tags/", [("name", name), ("comment", comment)])
    assert await remove(entry) == 3 + 2 + 1
    assert [each["name"] for each in await client.get("tags/")] == ["web"]
    assert await names(client) == [*before, f"{PREFIX}-000-0007"]
    assert [each["name"] for each in await pools(client) if each["name"].startswith(PREFIX)] == [
        f"{PREFIX}-007"
    ]
    assert await remove(entry) == 0


async def test_progress_counts_to_the_end(machines: MaasMachines, entry: MaasEntry) -> None:
    await machines.create(Item(0, 0), None)
    told: list[tuple[str, int, int]] = []

    def progress(what: str, done: int, goal: int) -> None:
        told.append((what, done, goal))

    await remove(entry, progress)
    assert told[-1] == ("machines", 3, 3)


async def test_a_machine_that_cannot_be_released_is_named_as_still_there(lab: MaasLab) -> None:
    """Given a region without rack controllers, then the removal ends with why, and succeeds when they are back.

    The machine has a power controller: MAAS releases others without anybody's help."""
    item = Item(0, 0)
    parameters = {"power_address": "qemu+ssh://root@10.0.0.9/system", "power_id": "{name}"}
    made = Registered(kind="registered", power_type="virsh", power_parameters=parameters)
    target = MaasTarget(kind="maas", credentials=lab.credentials, made=made)
    entry = MaasEntry(run=RUN, prefix=PREFIX, target=target)
    machines = MaasMachines(MaasWorkspace(run=RUN, prefix=PREFIX, target=target), 0.1)
    await machines.prepare(range(1), untold)
    await machines.create(item, None)
    await machines.start(item)
    await machines.probe(item)
    await machines.close()
    lab.kill("rack-1")
    with pytest.raises(TargetError, match="machines and pools are still there: 2, POST machines/ID/ release"):
        await remove(entry)
    lab.start("rack-1")
    assert await remove(entry) == 2


async def test_a_refused_key_ends_a_removal_in_one_line(entry: MaasEntry, lab: MaasLab) -> None:
    lab.ask({"do": "revoke-keys"})
    with pytest.raises(TargetError) as problem:
        await remove(entry)
    assert problem.value.refused
