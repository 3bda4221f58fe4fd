"""What a CIB tells about a cluster: nodes, DC, quorum, versions, and where resources are active.

The CIBs were recorded from 3 nodes of Pacemaker 2.1.5.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.pacemaker.status import INFINITY, ClusterStatus, Version, read_status

DATA = Path(__file__).parents[3] / "data" / "pacemaker"


def recorded(name: str) -> bytes:
    return (DATA / f"{name}.xml").read_bytes()


def active(status: ClusterStatus) -> dict[str, tuple[str, ...]]:
    return {id: resource.active for id, resource in status.resources.items() if resource.active}


def as_since_2_1_7(cib: bytes) -> bytes:
    """The same CIB with moments as memberships."""
    cib = cib.replace(b'in_ccm="true"', b'in_ccm="1795396363"').replace(b'in_ccm="false"', b'in_ccm="0"')
    return cib.replace(b'crmd="online"', b'crmd="1795396364"').replace(b'crmd="offline"', b'crmd="0"')


def test_a_whole_cluster_with_two_failed_operations() -> None:
    # Given a cluster where the start of `nope` failed on node1, and a monitor of `d1` once on node3
    # When its CIB is read
    status = read_status(recorded("failed"))
    # Then everything is as crm_mon had shown it
    assert (status.version, status.dc, status.quorum) == (Version(0, 8, 71), "node2", True)
    assert (status.release, status.properties["stonith-enabled"]) == ("2.1.5", "true")
    assert status.online == ["node1", "node2", "node3"]
    assert all(node.takes for node in status.nodes.values())
    assert active(status) == {
        "fence-lab": ("node1",),
        "d0": ("node2",),
        "d1": ("node3",),
        "nope": ("node2",),
        "g0": ("node1",),
        "c0": ("node3", "node2", "node1"),
    }
    assert [(each.resource, each.node, each.name, each.code) for each in status.failed] == [
        ("d1", "node3", "monitor", 7),
        ("nope", "node1", "start", 1),
    ]
    assert status.fail_counts == {("d1", "node3"): 1, ("nope", "node1"): INFINITY}
    assert status.idle


def test_what_a_resource_is_part_of() -> None:
    status = read_status(recorded("failed"))
    group, clone, alone = (status.resources[id] for id in ("g0", "c0", "d0"))
    assert (group.parent, group.cloned) == ("g", False)
    assert (clone.parent, clone.cloned) == ("c", True)
    assert (alone.parent, alone.agent, alone.configured) == ("", "ocf:pacemaker:Dummy", True)


def test_resources_that_are_being_started() -> None:
    # Given six resources of which four run, while one is being started and another probed
    status = read_status(recorded("starting"))
    assert {id for id in active(status) if id.startswith("d")} == {"d0", "d1", "d2", "d3"}
    assert [(each.resource, each.node, each.name, each.is_probe) for each in status.pending] == [
        ("d4", "node3", "start", False),
        ("slow", "node2", "monitor", True),
        ("fence-lab", "node1", "start", False),
    ]
    assert not status.idle
    assert set(status.resources["d2"].known) == {"node1", "node2", "node3"}


def test_a_dead_node_that_is_not_fenced_yet_keeps_its_resources() -> None:
    status = read_status(recorded("unclean"))
    node = status.nodes["node3"]
    assert (node.online, node.unclean, node.takes) == (False, True, False)
    assert status.resources["d4"].active == ("node3",)


def test_a_node_in_standby_and_one_that_was_shut_down() -> None:
    status = read_status(recorded("standby"))
    assert status.online == ["node1", "node2"]
    assert (status.nodes["node2"].standby, status.nodes["node2"].takes) == (True, False)
    assert (status.nodes["node3"].online, status.nodes["node3"].unclean) == (False, False)
    # Its history says that `nope` runs there, which was before it left.
    assert "node3" not in {node for nodes in active(status).values() for node in nodes}


@pytest.mark.parametrize("name", ["failed", "starting", "unclean", "standby"])
def test_memberships_since_2_1_7_mean_the_same(name: str) -> None:
    assert read_status(as_since_2_1_7(recorded(name))) == read_status(recorded(name))


def test_without_fencing_a_dead_node_is_just_offline() -> None:
    cib = recorded("unclean").replace(
        b'name="stonith-enabled" value="true"', b'name="stonith-enabled" value="false"'
    )
    node = read_status(cib).nodes["node3"]
    assert (node.online, node.unclean) == (False, False)


def test_a_node_whose_controller_has_not_joined_is_pending() -> None:
    cib = re.sub(
        rb'join="member" expected="member"', b'join="down" expected="down"', recorded("failed"), count=1
    )
    status = read_status(cib)
    pending = [node for node in status.nodes.values() if node.pending]
    assert len(pending) == 1
    assert not pending[0].takes


def test_without_a_dc() -> None:
    cib = re.sub(rb' have-quorum="1" dc-uuid="2"', b' have-quorum="0"', recorded("failed"))
    status = read_status(cib)
    assert (status.dc, status.quorum, status.idle) == ("", False, False)


def test_maintenance_of_the_cluster_is_that_of_each_node() -> None:
    cib = recorded("failed").replace(
        b'name="dc-deadtime" value="2s"', b'name="maintenance-mode" value="true"'
    )
    assert all(node.maintenance for node in read_status(cib).nodes.values())


WITHOUT_FENCING = (
    b'<crm_config><cluster_property_set id="o"><nvpair id="f" name="stonith-enabled" value="false"/>'
    b"</cluster_property_set></crm_config>"
)
REMOTE = (
    b'<cib epoch="1" num_updates="2" admin_epoch="0" dc-uuid="1" have-quorum="1"><configuration><crm_config/>'
    b'<nodes><node id="1" uname="node1"/></nodes><resources>'
    b'<primitive id="far" class="ocf" provider="pacemaker" type="remote"/>'
    b'<primitive id="d0" class="ocf" provider="pacemaker" type="Dummy"/></resources></configuration><status>'
    b'<node_state id="1" uname="node1" in_ccm="true" crmd="online" join="member" expected="member"><lrm id="1">'
    b'<lrm_resources><lrm_resource id="far" type="remote" class="ocf" provider="pacemaker">'
    b'<lrm_rsc_op operation="start" call-id="4" rc-code="0" op-status="0" interval="0"/>'
    b"</lrm_resource></lrm_resources></lrm></node_state>"
    b'<node_state remote_node="true" id="far" uname="far" in_ccm="true"><lrm id="far"><lrm_resources>'
    b'<lrm_resource id="d0" type="Dummy" class="ocf" provider="pacemaker">'
    b'<lrm_rsc_op operation="start" call-id="4" rc-code="0" op-status="0" interval="0"/>'
    b"</lrm_resource></lrm_resources></lrm></node_state></status></cib>"
)


def test_a_remote_node_is_online_while_what_connects_it_is_active() -> None:
    online = read_status(REMOTE)
    assert (online.nodes["far"].remote, online.nodes["far"].online) == (True, True)
    assert online.resources["d0"].active == ("far",)
    offline = read_status(REMOTE.replace(b'operation="start"', b'operation="stop"', 1))
    # What ran there may still run, so the node is to be fenced: crm_simulate shows "Started far (UNCLEAN)".
    assert (offline.nodes["far"].online, offline.nodes["far"].unclean) == (False, True)
    assert offline.resources["d0"].active == ("far",)
    # Without fencing its history says nothing.
    nobody = REMOTE.replace(b"<crm_config/>", WITHOUT_FENCING).replace(
        b'operation="start"', b'operation="stop"', 1
    )
    assert read_status(nobody).resources["d0"].active == ()


def test_the_answer_to_a_query_is_read_like_a_file() -> None:
    answer = b'<cib_result cib_rc="0"><cib_calldata>' + recorded("failed") + b"</cib_calldata></cib_result>\0"
    assert read_status(answer) == read_status(recorded("failed"))


@pytest.mark.parametrize("garbage", [b"", b"HTTP/1.1 400 Bad Request", b"<cib_result/>", b"<cib><status>"])
def test_what_is_no_cib_is_refused_in_a_line(garbage: bytes) -> None:
    with pytest.raises(OperationFailed, match="an answer"):
        read_status(garbage)


def test_a_probe_that_finds_no_agent_is_a_failure() -> None:
    status = read_status(
        REMOTE.replace(
            b'operation="start" call-id="4" rc-code="0"', b'operation="monitor" call-id="4" rc-code="5"', 1
        )
    )
    assert [(each.resource, each.node, each.code, each.is_probe) for each in status.failed] == [
        ("far", "node1", 5, True)
    ]
    assert status.resources["far"].active == ()


def test_a_resource_that_migrates_is_where_it_goes() -> None:
    # Given a connection that has left node1 for node2, which has not said so yet
    moves = b'operation="migrate_to" migrate_source="node1" migrate_target="node2"'
    leaving = REMOTE.replace(b'operation="start"', moves, 1)
    other = (
        b'<node_state id="2" uname="node2" in_ccm="true" crmd="online" join="member" expected="member"><lrm id="2">'
        b'<lrm_resources><lrm_resource id="far" type="remote" class="ocf" provider="pacemaker"><lrm_rsc_op id="p" '
        b'operation="monitor" call-id="1" rc-code="7" op-status="0" interval="0" on_node="node2"/></lrm_resource>'
        b"</lrm_resources></lrm></node_state></status>"
    )
    node = b'<node id="2" uname="node2"/></nodes>'
    status = read_status(leaving.replace(b"</nodes>", node).replace(b"</status>", other))
    # It may be on both until node1 has stopped it; where it goes comes first.
    assert status.resources["far"].active == ("node2", "node1")
    assert status.nodes["far"].online
