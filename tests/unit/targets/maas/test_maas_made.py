"""The ways in which machines are made: what a plan may say of them, and what MAAS then knows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.maas.region import Timings
from lab.maas.simulator import MaasLab
from tippingpoint.errors import UserError
from tippingpoint.plan.read import parse_plan
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.errors import MaasError, MaasExists
from tippingpoint.targets.maas.ledger import MaasEntry
from tippingpoint.targets.maas.made import Composed, Registered
from tippingpoint.targets.maas.names import mac_of, machine_name, mark_of, pool_name
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.targets.maas.removal import remove
from tippingpoint.targets.maas.spawn import MaasMachines
from tippingpoint.targets.maas.workspace import MaasWorkspace
from tippingpoint.workloads.load import untold
from tippingpoint.workloads.spawn.target import Item

PREFIX, RUN = "tp0123abcd", "the-run"
FIRST, SECOND = Item(0, 0), Item(0, 1)


def made_in(text: str) -> Registered | Composed:
    plan = parse_plan(
        f"""
name: machines
target: {{kind: maas, made: {text}}}
workload: {{kind: spawn, until: created, concurrency: 1}}
stages: [{{instances: 1}}]
"""
    )
    assert isinstance(plan.target, MaasTarget)
    assert parse_plan(plan.to_yaml()) == plan
    return plan.target.made


def test_machines_are_registered_and_switched_by_hand_unless_a_plan_says_otherwise() -> None:
    made = MaasTarget(kind="maas").made
    assert made == Registered(kind="registered", power_type="manual", power_parameters={})


def test_a_plan_names_power_parameters_or_vm_hosts() -> None:
    made = made_in(
        "{kind: registered, power_type: webhook, power_parameters: {power_on_uri: 'http://h/{name}/on'}}"
    )
    assert made == Registered(
        kind="registered", power_type="webhook", power_parameters={"power_on_uri": "http://h/{name}/on"}
    )
    assert made_in("{kind: composed, hosts: [host-1]}") == Composed(kind="composed", hosts=["host-1"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("composed", "target.made: composed: expected a mapping"),
        ("{kind: bought}", "target.made.kind: bought: expected one of registered, composed, virtme"),
        ("{hosts: [a]}", "target.made.kind: missing: expected one of registered, composed, virtme"),
        (
            "{kind: composed, host: [a]}",
            "target.made.host: ['a']: expected one of kind, hosts (did you mean hosts?)",
        ),
        (
            "{kind: registered, power_parameters: {power_pass: hush}}",
            "target.made.power_parameters.power_pass: (not shown): expected power_pass in `power` of the "
            "credentials file",
        ),
        (
            "{kind: registered, power_parameters: {power_address: 'http://ann:hush@bmc/'}}",
            "target.made.power_parameters.power_address: with a password (not shown): expected the password "
            "in `power` of the credentials file",
        ),
        (
            "{kind: registered, power_parameters: {power_on_uri: 'http://{host}/'}}",
            "target.made.power_parameters.power_on_uri: {host}: expected one of {name}, {mac}, {number}",
        ),
    ],
)
def test_what_no_machine_is_made_by_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(UserError) as problem:
        made_in(text)
    assert str(problem.value) == said


@pytest.mark.parametrize(
    "name", ["power_pass", "power_token", "password", "key", "certificate", "k_g", "power_token_secret"]
)
def test_secrets_of_every_power_driver_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"(\(not shown\)|a secret): expected"):
        made_in(f"{{kind: registered, power_parameters: {{{name}: hush}}}}")


def test_networks_of_what_is_composed_are_its_hosts_to_choose() -> None:
    with pytest.raises(UserError, match=r"target.machines.small.networks: \['storage'\]: expected \[maas\]"):
        made_in("{kind: composed}, machines: {small: {networks: [storage]}}")


# -- on the lab's region -------------------------------------------------------------------------------


@pytest.fixture
def lab() -> Iterator[MaasLab]:
    with MaasLab(machines=1, timings=Timings(0.05, 0.05, 0.05, power_timeout_s=60.0, timeout_s=0.05)) as lab:
        yield lab


@pytest.fixture
async def client(lab: MaasLab) -> AsyncIterator[MaasClient]:
    client = MaasClient(access(MaasTarget(kind="maas", credentials=lab.credentials)))
    yield client
    await client.close()


async def making(lab: MaasLab, directory: Path, power: dict[str, str], **fields: Any) -> MaasMachines:
    path = directory / "credentials.yaml"
    path.touch(0o600)
    path.write_text(yaml.safe_dump({**yaml.safe_load(lab.credentials.read_text()), "power": power}))
    target = MaasTarget.model_validate({"kind": "maas", "credentials": path, **fields})
    machines = MaasMachines(MaasWorkspace(run=RUN, prefix=PREFIX, target=target), 0.1)
    await machines.open()
    await machines.prepare(range(1), untold)
    return machines


async def shown(client: MaasClient, item: Item) -> dict[str, Any]:
    [found] = await client.get("machines/", [("hostname", machine_name(PREFIX, item))])
    return found


def entry(lab: MaasLab, **fields: Any) -> MaasEntry:
    target = MaasTarget.model_validate({"kind": "maas", "credentials": lab.credentials, **fields})
    return MaasEntry(run=RUN, prefix=PREFIX, target=target)


async def test_power_parameters_are_each_machines_own_and_secrets_are_the_files(
    lab: MaasLab, client: MaasClient, tmp_path: Path
) -> None:
    parameters = {"power_address": "bmc-{number}.example", "power_user": "{name}", "note": "{mac} {2}"}
    made = {"kind": "registered", "power_type": "redfish", "power_parameters": parameters}
    machines = await making(lab, tmp_path, {"power_pass": "hush"}, made=made)
    await machines.create(SECOND, None)
    await machines.close()
    found = await shown(client, SECOND)
    assert found["power_type"] == "redfish"
    assert await client.get(f"machines/{found['system_id']}/", op="power_parameters") == {
        "power_address": "bmc-1.example",
        "power_user": machine_name(PREFIX, SECOND),
        "note": f"{mac_of(RUN, SECOND, 0)} {{2}}",
        "power_pass": "hush",
    }


async def test_machines_switched_by_a_webhook_are_commissioned_and_deployed(
    lab: MaasLab, client: MaasClient, tmp_path: Path
) -> None:
    base = f"{lab.url.removesuffix('/MAAS')}/lab/power/"
    parameters = {f"power_{what}_uri": base + what for what in ("on", "off", "query")}
    made = {"kind": "registered", "power_type": "webhook", "power_parameters": parameters}
    machines = await making(lab, tmp_path, {}, made=made)
    await machines.create(FIRST, None)
    await machines.start(FIRST)
    await machines.probe(FIRST)
    await machines.close()
    assert (await shown(client, FIRST))["power_state"] == "on"


async def add_host(client: MaasClient, name: str) -> None:
    fields = [("type", "virsh"), ("power_address", f"qemu+ssh://{name}/system"), ("name", name)]
    await client.send("POST", "vm-hosts/", fields)


async def test_composed_machines_have_their_size_mark_and_pool_and_leave_their_host(
    lab: MaasLab, client: MaasClient, tmp_path: Path
) -> None:
    """Given a VM host, when machines are composed on it, deployed and removed, then its room is as before."""
    await add_host(client, "host-1")
    sizes = {"small": {"count": 2, "cpu": 2, "memory": "4GiB", "disks": ["10GiB", "60GiB"]}}
    machines = await making(lab, tmp_path, {}, made={"kind": "composed"}, machines=sizes)
    for item in (FIRST, SECOND):
        await machines.create(item, None)
    found = await shown(client, FIRST)
    assert (found["description"], found["pool"]["name"]) == (mark_of(RUN), pool_name(PREFIX, 0))
    assert (found["cpu_count"], found["memory"]) == (2, 4096)
    assert [disk["size"] for disk in found["blockdevice_set"]] == [11 * 10**9, 65 * 10**9]
    with pytest.raises(MaasExists):
        await machines.create(FIRST, None)
    await machines.start(FIRST)
    await machines.probe(FIRST)
    await machines.delete(FIRST)
    [host] = await client.get("vm-hosts/")
    assert host["used"]["cores"] == 2
    await machines.close()
    assert await remove(entry(lab, made={"kind": "composed"})) == 2
    assert lab.counts()["machines"] == 1
    assert lab.counts()["vm-hosts"] == 1


async def test_a_machine_that_one_host_has_no_room_for_is_composed_on_the_next(
    lab: MaasLab, client: MaasClient, tmp_path: Path
) -> None:
    await add_host(client, "host-1")
    await add_host(client, "host-2")
    lab.ask({"do": "vm-host", "name": "host-1", "state": "full"})
    machines = await making(lab, tmp_path, {}, made={"kind": "composed"})
    with pytest.raises(MaasError, match="overcommit ratio") as problem:
        await machines.create(FIRST, None)
    assert problem.value.kind == "full"
    await machines.create(FIRST, None)
    await machines.close()
    assert (await shown(client, FIRST))["pod"]["id"] == 2


async def test_a_host_that_is_not_there_is_a_refused_setting(
    lab: MaasLab, client: MaasClient, tmp_path: Path
) -> None:
    await add_host(client, "host-1")
    machines = await making(lab, tmp_path, {}, made={"kind": "composed", "hosts": ["host-9"]})
    with pytest.raises(MaasError, match=r"target\.made\.hosts: host-9: expected one of host-1") as problem:
        await machines.create(FIRST, None)
    await machines.close()
    assert problem.value.kind == "setting"


async def test_what_was_composed_and_not_marked_is_removed_by_its_name(
    lab: MaasLab, client: MaasClient
) -> None:
    """Given a worker that died between the two calls, then its machine goes, and one of another name stays."""
    await add_host(client, "host-1")
    for name in (machine_name(PREFIX, FIRST), "somebodys"):
        await client.send("POST", "vm-hosts/1/", [("hostname", name)], op="compose")
    assert await remove(entry(lab, made={"kind": "composed"})) == 1
    assert [machine["hostname"] for machine in await client.get("machines/")] == ["machine-1", "somebodys"]
