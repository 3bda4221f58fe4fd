"""What a CIB's histories say of nodes and resources, node by node, as Pacemaker's crm_simulate shows the same CIBs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.targets.pacemaker.status import ClusterStatus, Node, read_status

MEMBER = 'in_ccm="true" crmd="online" join="member" expected="member"'
LEFT = 'in_ccm="false" crmd="offline" join="down" expected="down"'
LOST = 'in_ccm="false" crmd="offline" join="down" expected="member"'
STONITH = "stonith-enabled"
FENCING = '<primitive id="fence" class="stonith" type="fence_xvm"/>'


@dataclass(frozen=True)
class Done:
    """One operation in a history."""

    name: str
    code: int = 0
    status: int = 0
    every: int = 0
    call: int | None = None
    """Its place; by default that in the list. A greater one is newer."""
    at: int | None = None
    source: str = ""
    target: str = ""
    expected: int | None = None

    def xml(self, resource: str, node: str, place: int) -> str:
        """As the cluster writes it."""
        call = place + 1 if self.call is None else self.call
        probe = self.name == "monitor" and not self.every
        expected = (7 if probe else 0) if self.expected is None else self.expected
        moves = f' migrate_source="{self.source}" migrate_target="{self.target}"' if self.source else ""
        return (
            f'<lrm_rsc_op id="{resource}_{place}" operation="{self.name}"'
            f' operation_key="{resource}_{self.name}_{self.every}"'
            f' interval="{self.every}" call-id="{call}" rc-code="{self.code}" op-status="{self.status}"'
            f' last-rc-change="{1000 + (10 * call if self.at is None else self.at)}" on_node="{node}"'
            f' transition-key="1:1:{expected}:x" transition-magic="{self.status}:{self.code};1:1:{expected}:x"{moves}/>'
        )


Histories = dict[str, dict[str, list[Done]]]
"""By node and resource."""


def cluster(
    histories: Histories,
    resources: str = '<primitive id="d" class="ocf" provider="pacemaker" type="Dummy"/>',
    *,
    nodes: tuple[str, ...] = ("n1", "n2"),
    states: dict[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> ClusterStatus:
    """Read a cluster of these nodes, which are all members unless `states` says otherwise; an empty state is none."""
    said = {
        "stonith-enabled": "true",
        **(properties or {}),
    }
    states = dict.fromkeys(nodes, MEMBER) | (states or {})
    options = "".join(f'<nvpair id="{name}" name="{name}" value="{value}"/>' for name, value in said.items())
    listed = "".join(f'<node id="{name}-id" uname="{name}"/>' for name in nodes)
    found = ""
    for name, state in states.items():
        if state:
            entries = "".join(
                f'<lrm_resource id="{id}" class="ocf" provider="pacemaker" type="Dummy">'
                + "".join(each.xml(id, name, place) for place, each in enumerate(operations))
                + "</lrm_resource>"
                for id, operations in histories.get(name, {}).items()
            )
            id = f"{name}-id" if name in nodes else name
            found += (
                f'<node_state id="{id}" uname="{name}" {state}><lrm><lrm_resources>{entries}'
                "</lrm_resources></lrm></node_state>"
            )
    return read_status(
        f'<cib admin_epoch="0" epoch="1" num_updates="1" have-quorum="1" dc-uuid="n1-id"><configuration><crm_config>'
        f'<cluster_property_set id="o">{options}</cluster_property_set></crm_config><nodes>{listed}</nodes>'
        f"<resources>{FENCING}{resources}</resources></configuration><status>{found}</status></cib>".encode()
    )


def up(node: Node) -> tuple[bool, bool, bool]:
    """Whether a node is online, unclean, and takes resources."""
    return node.online, node.unclean, node.takes


PROBED = [Done("monitor", 7)]
STARTED = [Done("start"), Done("monitor", every=10_000)]
FAR = '<primitive id="far" class="ocf" provider="pacemaker" type="remote"/>'
D = '<primitive id="d" class="ocf" provider="pacemaker" type="Dummy"/>'


# -- a history is of one node (B3) -----------------------------------------------------------------------


@pytest.mark.parametrize("first", ["n1", "n2"])
def test_a_probe_on_another_node_clears_no_failure(first: str) -> None:
    # given a connection that was lost on one node, and that another node was asked for
    other = "n2" if first == "n1" else "n1"
    lost = [Done("start"), Done("monitor", 1, 4, every=60_000)]
    status = cluster(
        {first: {"far": lost}, other: {"far": PROBED}}, FAR, states={"far": 'remote_node="true"'}
    )
    # then the remote node is lost, and takes nothing
    assert up(status.nodes["far"]) == (False, True, False)
    assert (status.resources["far"].active, status.resources["far"].failed) == ((first,), True)
    assert not status.idle


def test_a_newer_operation_on_the_same_node_clears_a_failure() -> None:
    failed = [Done("start"), Done("monitor", 1, 4, every=60_000)]
    for after in ([Done("stop")], [Done("stop"), Done("start")]):
        status = cluster({"n1": {"d": failed + after}, "n2": {"d": PROBED}})
        assert not status.resources["d"].failed
        assert status.resources["d"].active == (("n1",) if len(after) == 2 else ())


def test_call_ids_order_a_history_not_its_elements() -> None:
    stopped = [Done("stop", call=9), Done("start", call=4)]
    assert cluster({"n1": {"d": stopped}}).resources["d"].active == ()
    started = [Done("start", call=9), Done("stop", call=4)]
    assert cluster({"n1": {"d": started}}).resources["d"].active == ("n1",)


def to(source: str, target: str, code: int = 0, **known: int) -> Done:
    return Done("migrate_to", code, source=source, target=target, **known)


def arrives(source: str, target: str, code: int = 0, **known: int) -> Done:
    return Done("migrate_from", code, source=source, target=target, **known)


def test_what_migrated_away_came_back_and_stopped_is_nowhere() -> None:
    # given a machine that left n1 for n2, left n2 for n1 again, and was stopped on n1
    n1 = [
        Done("stop", call=11, at=500),
        arrives("n2", "n1", call=9, at=300),
        to("n1", "n2", call=5, at=100),
    ]
    n2 = [arrives("n1", "n2", call=4, at=110), to("n2", "n1", call=6, at=290), Done("stop", call=7, at=310)]
    status = cluster({"n1": {"d": n1}, "n2": {"d": n2}})
    assert status.resources["d"].active == ()
    # and where n2's stop is not recorded yet, it is still nowhere else than n1, which has newer records
    status = cluster({"n1": {"d": n1}, "n2": {"d": n2[:2]}})
    assert status.resources["d"].active == ()


def test_a_migration_that_has_only_left_may_be_on_both_sides() -> None:
    n1 = [Done("start", at=10), to("n1", "n2", at=500)]
    status = cluster({"n1": {"d": n1}, "n2": {"d": [Done("monitor", 7, at=5)]}})
    assert status.resources["d"].active == ("n2", "n1")
    # and as soon as it has arrived it is where it went, though n1 has yet to stop it
    status = cluster({"n1": {"d": n1}, "n2": {"d": [arrives("n1", "n2", at=520)]}})
    assert status.resources["d"].active == ("n2",)


def test_a_failed_migration_is_active_where_nothing_newer_says_otherwise() -> None:
    n1 = [Done("start", at=10), to("n1", "n2", 1, at=500)]
    status = cluster({"n1": {"d": n1}, "n2": {"d": [Done("monitor", 7, at=5)]}})
    assert set(status.resources["d"].active) == {"n1", "n2"}
    assert status.resources["d"].failed
    status = cluster({"n1": {"d": n1}, "n2": {"d": [Done("monitor", 7, at=5), Done("stop", at=600)]}})
    assert status.resources["d"].active == ("n1",)


def test_a_start_in_flight_or_failed_is_begun_and_not_active() -> None:
    for start in (Done("start", 193, -1, call=-1), Done("start", 1)):
        resource = cluster({"n1": {"d": [Done("monitor", 7), start]}}).resources["d"]
        assert (resource.active, resource.begun) == ((), ("n1",))


PLAIN = st.sampled_from(
    [
        Done("monitor", 7),
        Done("monitor"),
        Done("monitor", 1, 4),
        Done("monitor", 5, 4),
        Done("start"),
        Done("start", 1),
        Done("stop"),
        Done("stop", 1),
        Done("monitor", every=10_000),
        Done("monitor", 7, every=10_000),
        Done("monitor", 1, 4, every=10_000),
        Done("monitor", 190, every=10_000),
        Done("monitor", 193, 1, every=10_000),
    ]
)
HISTORY = st.lists(PLAIN, max_size=6)


@given(st.lists(HISTORY, min_size=2, max_size=3), st.sampled_from(["true", "false"]))
def test_what_nodes_say_of_a_resource_adds_up(histories: list[list[Done]], fencing: str) -> None:
    """Whatever two nodes recorded, neither changes what the other's records mean.

    But for a stop that failed without fencing: it blocks the resource everywhere.
    """
    if fencing == "false":
        histories = [[each for each in history if each != Done("stop", 1)] for history in histories]
    names = [f"n{number}" for number in range(1, len(histories) + 1)]

    def read(known: Histories) -> ClusterStatus:
        return cluster(known, nodes=tuple(names), properties={STONITH: fencing})

    alone = [read({name: {"d": history}}) for name, history in zip(names, histories, strict=True)]
    both = read({name: {"d": history} for name, history in zip(names, histories, strict=True)})
    found = both.resources["d"]
    assert found.active == tuple(node for each in alone for node in each.resources["d"].active)
    assert found.begun == tuple(node for each in alone for node in each.resources["d"].begun)
    assert found.failed == any(each.resources["d"].failed for each in alone)
    assert {(each.node, each.name, each.call) for each in both.failed} == {
        (each.node, each.name, each.call) for status in alone for each in status.failed
    }
    assert [both.nodes[name].unclean for name in names] == [
        each.nodes[name].unclean for name, each in zip(names, alone, strict=True)
    ]


# -- absence is not health (B4) --------------------------------------------------------------------------


def test_a_node_that_was_never_seen_is_unclean_with_fencing() -> None:
    status = cluster({"n1": {"d": STARTED}}, states={"n2": ""})
    assert up(status.nodes["n2"]) == (False, True, False)
    assert not status.idle


@pytest.mark.parametrize("properties", [{STONITH: "false"}, {"startup-fencing": "false"}])
def test_without_startup_fencing_it_is_just_offline(properties: dict[str, str]) -> None:
    status = cluster({"n1": {"d": STARTED}}, states={"n2": ""}, properties=properties)
    assert up(status.nodes["n2"]) == (False, False, False)
    assert status.idle


def test_a_remote_node_that_was_never_seen_is_unclean_until_its_connection_is_up() -> None:
    assert up(cluster({"n1": {"far": PROBED}}, FAR).nodes["far"]) == (False, True, False)
    there = cluster({"n1": {"far": STARTED}}, FAR, states={"far": 'remote_node="true"'})
    assert up(there.nodes["far"]) == (True, False, True)


def test_a_state_without_a_membership_is_no_membership() -> None:
    assert cluster({}, states={"n2": 'crmd="online" join="member"'}).nodes["n2"].unclean


def test_a_node_that_left_with_something_running_is_unclean() -> None:
    status = cluster({"n2": {"d": STARTED}}, states={"n2": LEFT})
    assert (up(status.nodes["n2"]), status.resources["d"].active) == ((False, True, False), ("n2",))
    # and one that left in order is not
    status = cluster({"n2": {"d": [*STARTED, Done("stop")]}}, states={"n2": LEFT})
    assert (up(status.nodes["n2"]), status.resources["d"].known) == ((False, False, False), ())


def test_a_failed_stop_has_its_node_fenced() -> None:
    status = cluster({"n1": {"d": [*STARTED, Done("stop", 1)]}})
    assert up(status.nodes["n1"]) == (True, True, False)
    assert status.resources["d"].active == ("n1",)
    assert not status.idle
    # and a stop that succeeded later ends that
    status = cluster({"n1": {"d": [*STARTED, Done("monitor", 1, 4, every=10_000), Done("stop")]}})
    assert up(status.nodes["n1"]) == (True, False, True)


def test_without_fencing_a_failed_stop_blocks_the_resource() -> None:
    status = cluster({"n1": {"d": [*STARTED, Done("stop", 1)]}}, properties={STONITH: "false"})
    assert up(status.nodes["n1"]) == (True, False, True)
    resource = status.resources["d"]
    assert (resource.active, resource.failed, resource.blocked) == (("n1",), True, True)


@pytest.mark.parametrize(
    ("on_fail", "unclean", "standby", "blocked", "failed"),
    [
        ("fence", True, False, False, True),
        ("standby", False, True, False, True),
        ("block", False, False, True, True),
        ("ignore", False, False, False, False),
        ("restart", False, False, False, True),
    ],
)
def test_what_a_failure_brings_about_is_configured(
    on_fail: str, unclean: bool, standby: bool, blocked: bool, failed: bool
) -> None:
    resource = (
        '<primitive id="d" class="ocf" provider="pacemaker" type="Dummy"><operations>'
        f'<op id="m" name="monitor" interval="10s" on-fail="{on_fail}"/></operations></primitive>'
    )
    status = cluster({"n1": {"d": [Done("start"), Done("monitor", 1, 4, every=10_000)]}}, resource)
    node, found = status.nodes["n1"], status.resources["d"]
    assert (node.unclean, node.standby, found.blocked) == (unclean, standby, blocked)
    assert (found.active, len(status.failed)) == (("n1",), 1)
    assert found.failed == failed


def test_a_guest_node_is_down_with_what_it_runs_in() -> None:
    machine = (
        '<primitive id="vm" class="ocf" provider="heartbeat" type="VirtualDomain"><meta_attributes id="a">'
        f'<nvpair id="b" name="remote-node" value="guest"/></meta_attributes></primitive>{D}'
    )
    running: Histories = {"n1": {"vm": STARTED, "guest": STARTED}, "guest": {"d": STARTED}}
    state = {"guest": 'remote_node="true"'}
    status = cluster(running, machine, states=state)
    assert (up(status.nodes["guest"]), status.resources["d"].active) == ((True, False, True), ("guest",))
    failed: Histories = {
        **running,
        "n1": {"vm": [*STARTED, Done("monitor", 1, 4, every=10_000)], "guest": STARTED},
    }
    assert not cluster(failed, machine, states=state).nodes["guest"].takes


def test_bundles_have_containers_connections_and_nodes() -> None:
    bundle = (
        '<bundle id="web"><docker image="i" replicas="2"/><network control-port="9999"/>'
        '<primitive id="httpd" class="ocf" provider="heartbeat" type="apache"/></bundle>'
    )
    status = cluster(
        {"n1": {"web-docker-0": STARTED, "web-0": STARTED}, "web-0": {"httpd": STARTED}},
        bundle,
        states={"web-0": 'remote_node="true"'},
    )
    assert [status.nodes[name].online for name in ("web-0", "web-1")] == [True, False]
    assert status.resources["httpd"].active == ("web-0",)
    assert status.resources["web-docker-0"].configured
    assert status.resources["web-docker-1"].active == ()


def test_a_state_of_a_node_that_is_configured_no_more_is_ignored() -> None:
    status = cluster({"gone": {"d": STARTED}}, states={"gone": LOST})
    assert "gone" not in status.nodes
    assert status.resources["d"].active == ()


def test_without_quorum_and_with_that_policy_all_are_to_be_fenced() -> None:
    cib = (
        '<cib have-quorum="0" no-quorum-panic="1"><configuration><crm_config><cluster_property_set id="o">'
        '<nvpair id="q" name="no-quorum-policy" value="suicide"/></cluster_property_set></crm_config>'
        f'<nodes><node id="1" uname="n1"/></nodes></configuration><status><node_state id="1" uname="n1" {MEMBER}/>'
        "</status></cib>"
    )
    assert up(read_status(cib.encode()).nodes["n1"]) == (True, True, False)
