"""A machine's steps, on the lab's simulated region: each ends when a list shows it, and fails in MAAS's words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.maas.region import Timings
from lab.maas.simulator import MaasLab
from tests.unit.targets.maas.maas_stub import answering, stub_region, way_file
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.errors import MaasError, MaasExists, MaasGone
from tippingpoint.targets.maas.names import machine_name, mark_of, pool_name, tag_name
from tippingpoint.targets.maas.plan import MACHINE_OBSERVATIONS, MaasTarget
from tippingpoint.targets.maas.pools import pools
from tippingpoint.targets.maas.spawn import MaasMachines
from tippingpoint.targets.maas.workspace import MaasWorkspace
from tippingpoint.workloads.load import untold
from tippingpoint.workloads.spawn.target import Item, Seen, SpawnFailed

PREFIX, RUN = "tp0123abcd", "the-run"
FIRST, SECOND, OTHER = Item(0, 0), Item(0, 1), Item(1, 0)
ENLISTED, COMMISSIONED = Seen(False, ""), Seen(True, "", address=True)
DEPLOYED = Seen(True, "", address=True, in_use=True)


@pytest.fixture
def lab() -> Iterator[MaasLab]:
    with MaasLab(racks=2, timings=Timings(0.05, 0.05, 0.05, 0.05, 0.05)) as lab:
        yield lab


def target(lab: MaasLab, **fields: Any) -> MaasTarget:
    return MaasTarget.model_validate({"kind": "maas", "credentials": lab.credentials, **fields})


def of(run: str, target: MaasTarget) -> MaasMachines:
    return MaasMachines(MaasWorkspace(run=run, prefix=PREFIX, target=target), 0.1)


@pytest.fixture
async def machines(lab: MaasLab) -> AsyncIterator[MaasMachines]:
    sizes = {"small": {"count": 2, "networks": ["maas", "storage"]}}
    machines = of(RUN, target(lab, machines=sizes))
    await machines.prepare(range(2), untold)
    yield machines
    await machines.close()


@pytest.fixture
async def client(lab: MaasLab) -> AsyncIterator[MaasClient]:
    client = MaasClient(access(target(lab)))
    yield client
    await client.close()


async def shown(client: MaasClient, item: Item) -> dict[str, Any]:
    [found] = await client.get("machines/", [("hostname", machine_name(PREFIX, item))])
    return found


async def test_the_region_tells_its_version_and_rack_controllers(machines: MaasMachines) -> None:
    facts = await machines.open()
    assert facts.kind == "maas"
    assert facts.version.startswith("3.3")
    assert facts.members == ["rack-1", "rack-2"]


async def test_a_machine_lives_from_its_enlistment_to_its_removal(
    machines: MaasMachines, client: MaasClient
) -> None:
    """Given a machine, when it goes through its steps, then each has ended when it is answered."""
    await machines.create(FIRST, None)
    assert await machines.list_group(0, addresses=True) == {FIRST: ENLISTED}
    assert (await shown(client, FIRST))["status_name"] == "New"
    assert await machines.start(FIRST) == ""
    assert (await shown(client, FIRST))["status_name"] == "Ready"
    assert await machines.list_group(0, addresses=True) == {FIRST: COMMISSIONED}
    await machines.probe(FIRST)
    assert (await shown(client, FIRST))["status_name"] == "Deployed"
    await machines.delete(FIRST)
    assert await machines.list_group(0, addresses=True) == {}
    assert await client.get("machines/", [("hostname", machine_name(PREFIX, FIRST))]) == []


async def test_a_machine_has_an_address_on_each_of_its_networks_and_its_groups_pool(
    machines: MaasMachines, client: MaasClient
) -> None:
    await machines.create(OTHER, None)
    found = await shown(client, OTHER)
    assert len({nic["mac_address"] for nic in found["interface_set"]}) == 2
    assert found["pool"]["name"] == pool_name(PREFIX, 1)
    assert found["description"] == f"tippingpoint {RUN}"
    assert await machines.list_group(0, addresses=True) == {}


async def test_many_machines_are_commissioned_together(machines: MaasMachines) -> None:
    for item in (FIRST, SECOND, OTHER):
        await machines.create(item, None)
    await asyncio.gather(*(machines.start(item) for item in (FIRST, SECOND, OTHER)))
    assert await machines.list_group(0, addresses=True) == {FIRST: COMMISSIONED, SECOND: COMMISSIONED}


async def test_pools_that_are_there_already_serve_again(machines: MaasMachines, client: MaasClient) -> None:
    await machines.prepare(range(2), untold)
    ours = [each["name"] for each in await pools(client) if each["name"].startswith(PREFIX)]
    assert sorted(ours) == [pool_name(PREFIX, 0), pool_name(PREFIX, 1)]


async def test_a_pool_of_somebody_else_is_not_used(machines: MaasMachines, lab: MaasLab) -> None:
    another = of("another-run", target(lab))
    with pytest.raises(MaasError, match="resource pool tp0123abcd-000: exists, and is not the run's"):
        await another.prepare(range(1), untold)
    await another.close()


async def test_a_machine_that_exists_is_not_made_twice(machines: MaasMachines) -> None:
    await machines.create(FIRST, None)
    with pytest.raises(MaasExists):
        await machines.create(FIRST, None)


async def test_a_mac_of_somebody_elses_machine_is_no_machine_of_ours(
    machines: MaasMachines, client: MaasClient
) -> None:
    """Given a machine with our MAC addresses and another name, then ours is not counted as made."""
    await machines.create(FIRST, None)
    await client.send(
        "PUT", f"machines/{(await shown(client, FIRST))['system_id']}/", [("hostname", "web-1")]
    )
    with pytest.raises(MaasError, match="already in use on another machine") as problem:
        await machines.create(FIRST, None)
    assert not isinstance(problem.value, MaasExists)
    assert problem.value.kind == "setting"


async def test_a_machine_that_never_boots_fails_in_maas_words(machines: MaasMachines, lab: MaasLab) -> None:
    """Given machines that never boot, then commissioning fails, and succeeds when it is tried again without that."""
    await machines.create(FIRST, None)
    lab.ask({"do": "boots", "lost": 1.0})
    with pytest.raises(MaasError, match=r"^Failed commissioning") as problem:
        await machines.start(FIRST)
    assert problem.value.kind == "timeout"
    assert not machines.is_failed(FIRST)
    lab.ask({"do": "boots", "lost": 0.0})
    await machines.start(FIRST)
    assert await machines.list_group(0, addresses=True) == {FIRST: COMMISSIONED}


async def test_a_machine_that_failed_to_deploy_is_released_and_deployed_again(
    machines: MaasMachines, client: MaasClient, lab: MaasLab
) -> None:
    await machines.create(FIRST, None)
    await machines.start(FIRST)
    lab.ask({"do": "boots", "lost": 1.0})
    with pytest.raises(MaasError, match=r"^Failed deployment"):
        await machines.probe(FIRST)
    lab.ask({"do": "boots", "lost": 0.0})
    await machines.probe(FIRST)
    assert (await shown(client, FIRST))["status_name"] == "Deployed"


async def test_a_machine_that_is_deployed_no_more_is_lost(machines: MaasMachines, client: MaasClient) -> None:
    # given a deployed machine that somebody released
    await machines.create(FIRST, None)
    await machines.start(FIRST)
    await machines.probe(FIRST)
    await client.send("POST", f"machines/{(await shown(client, FIRST))['system_id']}/", op="release")
    # then a list shows it as not running: the next that is made whole
    while (await machines.list_group(0, addresses=True))[FIRST].running:
        pass
    # until it is deployed again
    await machines.start(FIRST)
    assert await machines.list_group(0, addresses=True) == {FIRST: COMMISSIONED}


async def test_another_worker_goes_on_with_a_machine(machines: MaasMachines, lab: MaasLab) -> None:
    await machines.create(FIRST, None)
    another = of(RUN, target(lab))
    await another.prepare(range(1), untold)
    await another.start(FIRST)
    await another.delete(FIRST)
    await another.close()
    assert await machines.list_group(0, addresses=True) == {}


async def test_a_machine_that_does_not_exist_is_gone_and_its_removal_is_no_failure(
    machines: MaasMachines,
) -> None:
    with pytest.raises(MaasGone):
        await machines.start(FIRST)
    with pytest.raises(MaasGone):
        await machines.probe(FIRST)
    await machines.delete(FIRST)


async def test_what_a_failure_was_is_read_from_the_events_where_the_status_does_not_say_it(
    tmp_path: Path,
) -> None:
    """Given a failed machine without a message, then its last error is the failure's text."""
    name, identity = machine_name(PREFIX, FIRST), "abc123"
    entry = {
        "system_id": identity,
        "hostname": name,
        "description": mark_of(RUN),
        "status": 0,
        "status_name": "New",
    }
    failed = {**entry, "status": 2, "status_name": "Failed commissioning", "status_message": ""}
    events = [{"node": identity, "type": "Marking node failed", "description": "no DHCP offer"}]
    async with stub_region() as region:
        region.answers["POST api/2.0/resourcepools/"] = answering({})
        region.answers["POST api/2.0/machines/abc123/"] = answering(entry | {"status": 1})
        region.answers["GET api/2.0/machines/"] = answering([entry])
        region.answers["GET api/2.0/events/"] = answering({"count": 1, "events": events})
        credentials = way_file(region.url, tmp_path)
        machines = of(RUN, MaasTarget(kind="maas", credentials=credentials))
        await machines.prepare(range(1), untold)
        await machines.list_group(0, addresses=True)
        region.answers["GET api/2.0/machines/"] = answering([failed])
        with pytest.raises(MaasError, match=r"^Failed commissioning: no DHCP offer$"):
            await machines.start(FIRST)
        await machines.close()


async def test_every_observation_is_answered(machines: MaasMachines) -> None:
    assert not await machines.observe("machine", 0, None)
    await machines.create(FIRST, None)
    for what in MACHINE_OBSERVATIONS:
        assert await machines.observe(what, 0, FIRST)


async def test_a_tag_is_put_on_all_machines_of_a_group_and_removed(
    machines: MaasMachines, client: MaasClient
) -> None:
    """Given machines, then the tag is there until it is removed, and none is made or removed twice."""
    for item in (FIRST, SECOND, OTHER):
        await machines.create(item, None)
    assert not await machines.observe("untag-machines", 0, None)
    assert await machines.observe("tag-machines", 0, None)
    tags = {item: (await shown(client, item))["tag_names"] for item in (FIRST, SECOND, OTHER)}
    assert tags == {FIRST: [tag_name(PREFIX)], SECOND: [tag_name(PREFIX)], OTHER: []}
    assert not await machines.observe("tag-machines", 0, None)
    assert await machines.observe("untag-machines", 0, None)
    assert (await shown(client, FIRST))["tag_names"] == []
    assert not await machines.observe("untag-machines", 0, None)


async def test_machines_are_switched_until_a_list_shows_it(lab: MaasLab, client: MaasClient) -> None:
    """Given a deployed machine, when its power controller is silent, then switching it fails, and later succeeds."""
    made = {"kind": "registered", "power_type": "ipmi", "power_parameters": {"power_address": "bmc"}}
    machines = of(RUN, target(lab, made=made))
    await machines.prepare(range(1), untold)
    await machines.create(FIRST, None)
    await machines.start(FIRST)
    await machines.probe(FIRST)
    await machines.switch(FIRST, on=False)
    assert (await shown(client, FIRST))["power_state"] == "off"
    lab.ask({"do": "power", "state": "silent"})
    with pytest.raises(MaasError, match="its power controller failed, or gave no answer") as problem:
        await machines.switch(FIRST, on=True)
    assert problem.value.kind == "timeout"
    lab.ask({"do": "power", "state": "normal"})
    await machines.switch(FIRST, on=True)
    assert (await shown(client, FIRST))["power_state"] == "on"
    await machines.close()


async def test_a_deployed_machine_is_in_use_until_it_is_released(
    machines: MaasMachines, client: MaasClient
) -> None:
    await machines.create(FIRST, None)
    await machines.start(FIRST)
    await machines.probe(FIRST)
    assert await machines.list_group(0, addresses=True) == {FIRST: DEPLOYED}
    await machines.release(FIRST)
    assert (await shown(client, FIRST))["status_name"] == "Ready"
    assert await machines.list_group(0, addresses=True) == {FIRST: COMMISSIONED}
    await machines.delete(FIRST)
    assert await machines.list_group(0, addresses=True) == {}


async def test_without_rack_controllers_commissioning_is_unreachable(
    machines: MaasMachines, lab: MaasLab
) -> None:
    await machines.create(FIRST, None)
    lab.kill("rack-1")
    lab.kill("rack-2")
    with pytest.raises(SpawnFailed) as problem:
        await machines.start(FIRST)
    assert problem.value.kind == "unreachable"
