"""Machines as lists show them: which are the run's, and what their statuses mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.targets.maas.errors import MaasError
from tippingpoint.targets.maas.names import item_of, mac_of, machine_name, pool_name
from tippingpoint.targets.maas.status import Machine, Status, machine_of
from tippingpoint.workloads.spawn.target import Item

PREFIX, RUN = "tp0123abcd", "the-run"
items = st.builds(Item, st.integers(0, 20_000), st.integers(0, 200_000))


def entry(**changed: Any) -> dict[str, Any]:
    """A machine as a list has it, without most of its fields."""
    return {
        "system_id": "abc123",
        "hostname": f"{PREFIX}-002-0017",
        "description": f"tippingpoint {RUN}",
        "status": 4,
        "status_name": "Ready",
        "status_message": "",
        "error_description": "",
        "power_state": "off",
        "interface_set": [],
        **changed,
    }


@given(items)
def test_a_name_tells_the_machine(item: Item) -> None:
    name = machine_name(PREFIX, item)
    assert item_of(PREFIX, name) == item
    assert name.startswith(pool_name(PREFIX, item.group))


@pytest.mark.parametrize(
    "name",
    [f"{PREFIX}-2-17", f"{PREFIX}-0002-0017", f"{PREFIX}-002-0017-1", f"x{PREFIX}-002-0017", "", None, 7],
)
def test_another_name_is_none_of_the_runs(name: object) -> None:
    assert item_of(PREFIX, name) is None


@given(items, st.integers(0, 15))
def test_a_mac_is_a_single_hosts_own_and_stays(item: Item, interface: int) -> None:
    """Given any interface, then its address is no group's, is locally administered, and is the same every time."""
    mac = mac_of(RUN, item, interface)
    first = int(mac[:2], 16)
    assert (first & 1, first & 2) == (0, 2)
    assert mac == mac_of(RUN, item, interface)
    assert mac != mac_of(RUN, item, interface + 1)
    assert mac != mac_of("another-run", item, interface)


def test_a_thousand_machines_have_addresses_of_their_own() -> None:
    assert len({mac_of(RUN, Item(0, number), nic) for number in range(1000) for nic in range(4)}) == 4000


def test_a_machine_of_the_run_is_read_with_its_status() -> None:
    found = machine_of(PREFIX, RUN, entry())
    assert found is not None
    assert found == Machine("abc123", Item(2, 17), Status.READY, "Ready", "", "off")
    assert found.fault is None


@pytest.mark.parametrize("changed", [{"hostname": "web-1"}, {"description": "tippingpoint another-run"}])
def test_a_machine_of_somebody_else_is_left_out(changed: dict[str, Any]) -> None:
    assert machine_of(PREFIX, RUN, entry(**changed)) is None


@pytest.mark.parametrize("broken", [{"system_id": None}, {"status": "4"}])
def test_a_list_that_is_none_is_a_failure(broken: dict[str, Any]) -> None:
    with pytest.raises(MaasError, match="an invalid list of machines"):
        machine_of(PREFIX, RUN, entry(**broken))
    with pytest.raises(MaasError, match="an invalid list of machines"):
        machine_of(PREFIX, RUN, "abc123")


def test_a_machine_that_failed_says_why() -> None:
    """Given a machine that never booted, then its failure has MAAS's words, and is one by time."""
    late = "Node commissioning timed out after 20 minutes"
    found = machine_of(
        PREFIX, RUN, entry(status=2, status_name="Failed commissioning", error_description=late)
    )
    assert found is not None
    assert found.fault is not None
    assert str(found.fault) == f"Failed commissioning: {late}"
    assert found.fault.kind == "timeout"


def test_a_status_that_is_new_to_the_suite_is_no_failure() -> None:
    found = machine_of(PREFIX, RUN, entry(status=99, status_name=None))
    assert found is not None
    assert found == Machine("abc123", Item(2, 17), 99, "status 99", "", "off")
    assert found.fault is None
