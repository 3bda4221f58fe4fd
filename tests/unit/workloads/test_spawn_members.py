"""Who of a cluster is there: by the members' own word over several polls."""

from __future__ import annotations

from tippingpoint.workloads.spawn.members import Change, Members
from tippingpoint.workloads.spawn.target import MemberSeen


def poll(members: Members, **online: bool) -> list[Change]:
    changes = members.see([MemberSeen(name, there) for name, there in online.items()])
    return sorted(changes, key=lambda change: change.member)


def test_the_first_poll_says_who_is_there() -> None:
    members = Members(3)
    assert not members.known
    assert not members.is_online("a")
    assert poll(members, a=True, b=False) == [("a", "online"), ("b", "offline")]
    assert members.known
    assert members.is_online("a")
    assert not members.is_online("b")


def test_a_member_is_lost_when_it_was_offline_in_so_many_polls_one_after_the_other() -> None:
    members = Members(3)
    poll(members, a=True, b=True)
    assert poll(members, a=True, b=False) == [("b", "offline")]
    assert poll(members, a=True, b=False) == []
    assert members.lost == []
    assert poll(members, a=True, b=False) == [("b", "lost")]
    assert members.lost == ["b"]
    assert members.is_lost("b")
    assert poll(members, a=True, b=False) == []


def test_a_member_that_answers_in_between_is_not_lost() -> None:
    members = Members(2)
    poll(members, a=True)
    for _ in range(3):
        assert poll(members, a=False) == [("a", "offline")]
        assert poll(members, a=True) == [("a", "online")]
    assert members.lost == []


def test_a_member_of_which_the_word_is_stale_is_not_lost_for_that() -> None:
    """Given a member that is told to be offline by a cluster that may say so of old, then those polls do not count."""
    members = Members(2)
    poll(members, a=True, b=True)
    stale = [MemberSeen("a", True), MemberSeen("b", False, stale=True)]
    assert members.see(stale) == [("b", "offline")]
    for _ in range(3):
        assert members.see(stale) == []
    assert not members.is_online("b")
    assert members.lost == []
    assert poll(members, a=True, b=False) == [("b", "lost")]


def test_a_lost_member_that_answers_again_is_back() -> None:
    members = Members(1)
    poll(members, a=True, b=True)
    assert poll(members, a=True, b=False) == [("b", "offline"), ("b", "lost")]
    assert poll(members, a=True, b=True) == [("b", "back")]
    assert members.is_online("b")


def test_a_member_that_is_removed_and_added_again_has_joined() -> None:
    members = Members(1)
    poll(members, a=True, b=True)
    poll(members, a=True, b=False)
    assert poll(members, a=True) == [("b", "evicted")]
    assert not members.is_lost("b")
    assert not members.is_online("b")
    assert poll(members, a=True, b=True, c=True) == [("b", "joined"), ("c", "joined")]


def test_what_is_on_no_member_in_particular_is_where_we_are() -> None:
    assert Members(1).is_online("")


def test_the_next_thing_goes_where_the_fewest_are() -> None:
    members = Members(1)
    members.see(
        [
            MemberSeen("a", True),
            MemberSeen("b", True),
            MemberSeen("c", True, takes=False),
            MemberSeen("d", False),
        ]
    )
    assert members.emptiest({"a": 2, "b": 1}, 0) == "b"
    assert members.emptiest({"a": 1, "b": 1}, 0) == "a"
    assert members.emptiest({"a": 1, "b": 1}, 1) == "b"
    assert members.emptiest({"a": 1, "b": 1}, 2) == "a"


def test_the_next_thing_goes_nowhere_when_nobody_takes_it() -> None:
    members = Members(1)
    assert members.emptiest({}, 0) is None
    members.see([MemberSeen("a", True, takes=False), MemberSeen("b", False)])
    assert members.emptiest({}, 0) is None


def test_the_leader_is_who_was_last_said_to_lead() -> None:
    members = Members(1)
    members.see([MemberSeen("a", True, leader=True), MemberSeen("b", True)])
    assert members.leader == "a"
    members.see([MemberSeen("a", False), MemberSeen("b", True)])
    assert members.leader == "a"
    members.see([MemberSeen("a", False), MemberSeen("b", True, leader=True)])
    assert members.leader == "b"
