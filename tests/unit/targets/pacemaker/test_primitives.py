"""The XML of a run's resources, and the ids that lead back to things."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.targets.pacemaker.plan import REMOTE
from tippingpoint.targets.pacemaker.primitives import Names, configured, primitive
from tippingpoint.workloads.spawn.target import Item

numbers = st.integers(min_value=0, max_value=10**6)


@given(numbers, numbers)
def test_an_id_leads_back_to_its_thing(group: int, number: int) -> None:
    names = Names("tp12345678")
    assert names.item(names.of(Item(group, number))) == Item(group, number)


@given(st.text(max_size=30))
def test_other_ids_are_no_things(text: str) -> None:
    item = Names("tp12345678").item(text)
    assert item is None or Names("tp12345678").of(item) == text


def test_ids_of_remote_nodes_are_no_things() -> None:
    names = Names("tp12345678")
    assert names.item(names.remote(3)) is None


@given(st.dictionaries(st.text("abc&<>\"'-", min_size=1), st.text("xyz&<>\"' \n", max_size=9), max_size=3))
def test_parameters_arrive_as_they_are(parameters: dict[str, str]) -> None:
    element = ElementTree.fromstring(primitive("r", "ocf:pacemaker:Dummy", parameters, 2500))
    assert (element.get("class"), element.get("provider"), element.get("type")) == (
        "ocf",
        "pacemaker",
        "Dummy",
    )
    pairs = {each.get("name"): each.get("value") for each in element.iterfind("instance_attributes/nvpair")}
    assert pairs == parameters
    operation = element.find("operations/op")
    assert operation is not None
    assert operation.get("interval") == "2500ms"


def test_an_agent_without_provider_and_a_resource_that_is_not_to_start() -> None:
    element = ElementTree.fromstring(primitive("r", "systemd:cron", {}, 0, stopped=True))
    assert (element.get("class"), element.get("provider"), element.get("type")) == ("systemd", None, "cron")
    role = element.find("meta_attributes/nvpair")
    assert role is not None
    assert (role.get("name"), role.get("value")) == ("target-role", "Stopped")
    assert element.find("operations") is None


def test_a_remote_node_always_has_a_monitor() -> None:
    element = ElementTree.fromstring(primitive("r", REMOTE, {"server": "10.0.0.1"}, 0))
    assert element.find("operations/op") is not None


def test_the_path_of_resources_has_all_constraints_that_name_them() -> None:
    # A constraint whose resource is gone is refused by the schema.
    assert configured(["a", "b"]) == (
        "/cib/configuration/resources/*[@id='a' or @id='b']"
        "|/cib/configuration/constraints/*[@*[.='a' or .='b']]"
    )
