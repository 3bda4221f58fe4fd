"""What the cluster's own tests do, await and check, on a model of a cluster."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.targets.pacemaker.model_cluster import ModelCluster, Unmet, play, scene_of
from tippingpoint.plan.cts import CTS_TESTS, WITHOUT_LAB, CtsTest
from tippingpoint.targets.pacemaker.cts_tests import Skipped, steps_of
from tippingpoint.targets.pacemaker.cts_view import View, active_once, members, unmet
from tippingpoint.targets.pacemaker.status import Resource


@given(
    test=st.sampled_from(CTS_TESTS),
    nodes=st.integers(min_value=3, max_value=16),
    seed=st.integers(min_value=0, max_value=1000),
)
def test_every_test_passes_on_a_good_cluster_of_any_size(test: CtsTest, nodes: int, seed: int) -> None:
    cluster = ModelCluster(nodes)
    steps = play(cluster, steps_of(test, scene_of(cluster, Random(seed))))
    assert steps


@given(test=st.sampled_from(CTS_TESTS), seed=st.integers(min_value=0, max_value=1000))
def test_a_test_ends_on_a_whole_cluster_unless_it_is_about_stopping(test: CtsTest, seed: int) -> None:
    cluster = ModelCluster(5)
    scene = scene_of(cluster, Random(seed))
    play(cluster, steps_of(test, scene))
    if test not in ("SimulStop", "PartialStart", "NearQuorumPoint"):
        assert unmet(scene.whole(), cluster.view()) is None
    assert cluster.properties == {"stonith-enabled": "true"}
    assert not cluster.standby
    assert not cluster.spare


@pytest.mark.parametrize(
    ("test", "broken", "assertion"),
    [
        ("Flip", "boot", "members online"),
        ("Restart", "shut-down", "nodes on"),
        ("StartOnebyOne", "boot", "one DC"),
        ("SimulStart", "boot", "one DC"),
        ("SimulStop", "shut-down", "nodes on"),
        ("StandbyNodes", "standby", "node empty"),
        ("StandbyNodes", "unstandby", "resources active once"),
        ("Reattach", "forget", "no restart"),
        ("MaintenanceMode", "set_property", "property set"),
        ("ResourceRecover", "fail-resource", "failure counted"),
        ("SplitBrain", "split", "partitions"),
        ("SplitBrain", "heal", "one DC"),
        ("NearQuorumPoint", "shut-down", "nodes on"),
        ("ResyncCIB", "boot", "nodes answer"),
        ("Crash", "kill", "fenced"),
    ],
)
def test_a_cluster_that_does_not_follow_is_told_by_the_assertion(
    test: CtsTest, broken: str, assertion: str
) -> None:
    # Given a cluster that ignores one kind of request or change
    cluster = ModelCluster(4, breaks={broken})
    # When a test needs it
    with pytest.raises(Unmet) as failed:
        play(cluster, steps_of(test, scene_of(cluster, Random(3))))
    # Then the assertion that failed is named
    assert failed.value.args[0] == assertion


def test_a_cluster_that_is_too_small_skips_a_test() -> None:
    two, one = ModelCluster(2), ModelCluster(1)
    with pytest.raises(Skipped, match="3 nodes"):
        play(two, steps_of("SplitBrain", scene_of(two, Random(1))))
    with pytest.raises(Skipped, match="2 nodes"):
        play(one, steps_of("Flip", scene_of(one, Random(1))))


@pytest.mark.parametrize("test", WITHOUT_LAB)
def test_a_test_that_needs_no_lab_asks_none(test: CtsTest) -> None:
    cluster = ModelCluster(3)
    steps = play(cluster, steps_of(test, scene_of(cluster, Random(1), lab=False)))
    assert not any("failed" in name or "stop" in name for name in steps)


def test_only_what_a_test_kills_may_be_fenced() -> None:
    cluster = ModelCluster(4)
    scene = scene_of(cluster, Random(1))
    play(cluster, steps_of("Crash", scene))
    assert scene.may_fence == set(cluster.fenced)
    flip = scene_of(cluster, Random(1))
    play(cluster, steps_of("Flip", flip))
    assert not flip.may_fence


def test_a_resource_that_the_cib_has_lost_is_told_from_one_that_is_stopped() -> None:
    cluster = ModelCluster(3)
    first = scene_of(cluster, Random(1)).resources[0]
    (side,) = cluster.view().sides
    assert side.status.resources[first].active

    for resources, missing in (
        (
            side.status.resources | {first: Resource(first, "")},
            f"{first} is inactive; expected on exactly one node",
        ),
        ({}, f"{first} is not in the CIB; expected on exactly one node"),
    ):
        view = View((replace(side, status=replace(side.status, resources=resources)),))
        assert active_once([first], cluster.names).lacks(view) == missing


def test_a_node_that_stays_pending_is_told_from_one_that_is_gone() -> None:
    # Given a cluster whose last node is there, and has not joined, or is not there
    cluster = ModelCluster(3)
    (side,) = cluster.view().sides
    nodes = side.status.nodes
    for online, missing in (
        (True, "members are node1 node2; expected node1 node2 node3; node3 pending"),
        (False, "members are node1 node2; expected node1 node2 node3"),
    ):
        last = replace(nodes["node3"], online=online, pending=online)
        view = View((replace(side, status=replace(side.status, nodes=nodes | {"node3": last})),))
        # When all of them are expected, then only one that is there is said to be pending
        assert members(cluster.names).lacks(view) == missing
