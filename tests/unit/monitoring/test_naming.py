"""Hosts of a Prometheus by the names that a run's target has for its members."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.monitoring.naming import known_as, member_names, renamed
from tippingpoint.monitoring.prometheus import Sampled, ScrapedTarget
from tippingpoint.rundir.cluster_events import Member, read_cluster

NODE1, NODE2 = Member("node1", "10.0.0.1"), Member("node2", "10.0.0.2")


def target(url: str, **labels: str) -> ScrapedTarget:
    return ScrapedTarget("job", url, labels, "up", "")


def series(*values: float, begin: float = 0.0, **labels: str) -> Sampled:
    return Sampled(labels, begin + np.arange(len(values), dtype=float), np.array(values))


def test_a_juju_unit_is_the_member_at_whose_address_it_is_scraped() -> None:
    # given LXD as COS scrapes it: the labels tell the unit, and only the URL where it is
    targets = [
        target("https://10.0.0.2:8443/1.0/metrics", juju_unit="lxd/0", instance="lxd_4f2a_lxd_lxd/0"),
        target("https://10.0.0.1:8443/1.0/metrics", juju_unit="lxd/1", instance="lxd_4f2a_lxd_lxd/1"),
        target("http://10.0.0.9:9100/metrics", instance="10.0.0.9:9100"),
    ]
    # then each is a member, whatever its number, and the machine beside is none
    assert member_names([NODE1, NODE2], known_as(targets, [], [])) == {"lxd/0": "node2", "lxd/1": "node1"}


def test_what_is_not_scraped_any_more_is_known_by_its_series_and_a_machine_by_its_own_name() -> None:
    instances = [series(1, host="10.0.0.1", instance="10.0.0.1:8443")]
    nodes = [series(1, host="agent/7", nodename="Node2"), series(1, host="agent/8", nodename="elsewhere")]
    known = known_as([], instances, nodes)
    assert member_names([NODE1, NODE2], known) == {"10.0.0.1": "node1", "agent/7": "node2"}


@pytest.mark.parametrize(
    ("member", "url"),
    [
        (Member("a", "fd42::1"), "https://[fd42:0:0::1]:8443/1.0/metrics"),
        (Member("a", "Node1.maas"), "https://node1.maas:8443/1.0/metrics"),
        (Member("node1"), "http://node1.maas:9100/metrics"),
        (Member("Node1"), "http://node1:9100/metrics"),
    ],
)
def test_one_machine_is_known_in_another_spelling(member: Member, url: str) -> None:
    assert member_names([member], known_as([target(url, juju_unit="lxd/0")], [], [])) == {
        "lxd/0": member.name
    }


@pytest.mark.parametrize(
    ("members", "url"),
    [
        ([Member("a", "127.0.0.1")], "http://127.0.0.1:9100/metrics"),  # everybody's
        ([Member("localhost")], "http://localhost:9100/metrics"),
        ([Member("a", "10.0.0.1"), Member("b", "10.0.0.1")], "http://10.0.0.1:9100/metrics"),
        ([Member("10")], "http://10.0.0.1:9100/metrics"),
        ([Member("a", "")], "http://:9100/metrics"),
        ([Member("a", "10.0.0.1")], "http://[10.0.0.1:9100/metrics"),
    ],
)
def test_what_could_be_any_of_them_is_no_member(members: list[Member], url: str) -> None:
    assert member_names(members, known_as([target(url, juju_unit="lxd/0")], [], [])) == {}


def test_a_host_that_is_called_as_a_member_is_left_so() -> None:
    # given labs and lists of targets, where hosts are named by hand
    targets = [target("http://10.0.0.2:9100/metrics", host="node1", instance="10.0.0.2:9100")]
    assert member_names([NODE1, NODE2], known_as(targets, [], [])) == {}


def test_an_address_is_more_than_a_name() -> None:
    # given a machine that is called as one member, at the address of another
    targets = [target("http://10.0.0.2:9100/metrics", juju_unit="lxd/0")]
    nodes = [series(1, host="lxd/0", nodename="node1")]
    assert member_names([NODE1, NODE2], known_as(targets, [], nodes)) == {"lxd/0": "node2"}


def test_what_several_names_of_one_host_gave_becomes_one_series_of_the_larger_values() -> None:
    # given what a member's exporters gave under two names, in part at the same time, and another host's
    found = [
        series(1, 5, host="lxd/0", part="x"),
        series(3, 4, begin=1.0, host="10.0.0.1", part="x"),
        series(7, host="10.0.0.1", part="y"),
        series(8, host="other", part="x"),
    ]
    # when they go by the member's name
    told = renamed(found, {"lxd/0": "node1", "10.0.0.1": "node1"})
    # then there is one series of each part
    assert [(one.labels, one.times.tolist(), one.values.tolist()) for one in told] == [
        ({"host": "node1", "part": "x"}, [0, 1, 2], [1, 5, 4]),
        ({"host": "node1", "part": "y"}, [0], [7]),
        ({"host": "other", "part": "x"}, [0], [8]),
    ]


@given(st.lists(st.text(max_size=40), max_size=6), st.lists(st.text(max_size=40), max_size=6))
def test_whatever_others_wrote_names_are_those_of_members(addresses: list[str], urls: list[str]) -> None:
    members = [Member(f"m{number}", address) for number, address in enumerate(addresses)]
    targets = [target(url, host=f"h{number}") for number, url in enumerate(urls)]
    nodes = [series(1, host="n", nodename=url) for url in urls]
    names = member_names(members, known_as(targets, nodes, nodes))
    assert set(names.values()) <= {member.name for member in members}


def test_a_members_address_is_told_by_the_events_in_which_it_is_there() -> None:
    cluster = read_cluster(
        [
            {"t": 1.0, "event": "member", "member": "m1", "status": "online", "address": "10.0.0.1"},
            {"t": 2.0, "event": "member", "member": "m1", "status": "evicted"},
            {"t": 3.0, "event": "member", "member": "m2", "status": "online"},
        ]
    )
    assert [(member.name, member.address) for member in cluster.members] == [("m1", "10.0.0.1"), ("m2", "")]
