"""A group's servers, put together from lists of what has changed: none is lost, and none stays that is gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tippingpoint.targets.openstack.errors import OpenstackError
from tippingpoint.targets.openstack.servers import (
    MARK,
    OVERLAP,
    WHOLE_EVERY,
    ListedServers,
    Servers,
    group_name,
    group_of,
    is_marked,
    item_of,
    names_of_many,
    read_page,
    server_name,
)
from tippingpoint.workloads.spawn.target import Item, Seen

PREFIX, RUN = "tp0123abcd", "the-run"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)

items = st.builds(Item, st.integers(0, 20_000), st.integers(0, 2_000_000))


@given(items)
def test_a_server_is_known_by_its_name(item: Item) -> None:
    assert item_of(PREFIX, server_name(PREFIX, item)) == item
    assert group_of(PREFIX, group_name(PREFIX, item.group)) == item.group


@given(items, st.integers(1, 1000))
def test_servers_that_are_made_together_are_known_by_the_names_that_nova_gives_them(
    item: Item, count: int
) -> None:
    name = names_of_many(PREFIX, item, count)
    made = [item_of(PREFIX, f"{name}-{place}") for place in (1, count)]
    assert made == [item, Item(item.group, item.number + count - 1)]
    assert item_of(PREFIX, f"{name}-{count + 1}") is None
    assert item_of(PREFIX, f"{name}-0") is None


@given(st.text(max_size=30) | st.integers() | st.none())
def test_other_names_are_none_of_ours(name: object) -> None:
    assert item_of(PREFIX, name) is None
    assert item_of(PREFIX, f"{PREFIX}{name}-") is None


def entry(item: Item, identity: str, status: str = "ACTIVE", **more: Any) -> dict[str, Any]:
    return {
        "id": identity,
        "name": server_name(PREFIX, item),
        "status": status,
        "metadata": {MARK: RUN},
        "OS-EXT-SRV-ATTR:host": "compute-1",
        **more,
    }


def seen(servers: Servers, *listed: dict[str, Any], whole: bool = False, now: float = 0.0) -> None:
    servers.see(
        read_page(PREFIX, RUN, listed),
        whole=whole,
        answered=BEGAN + timedelta(seconds=now),
        now=now,
        took=0.5,
    )


FIRST = Item(0, 0)


def test_what_is_of_others_is_not_seen() -> None:
    servers = Servers(PREFIX, RUN, 0)
    other = entry(FIRST, "b", metadata={MARK: "another-run"})
    seen(servers, other, entry(Item(1, 0), "c"), entry(FIRST, "d", name="x", metadata={}), whole=True)
    assert [*servers.there] == []
    assert not is_marked(RUN, {"metadata": None})


def test_what_a_list_of_changes_does_not_have_is_as_it_was() -> None:
    servers = Servers(PREFIX, RUN, 0)
    seen(servers, entry(FIRST, "a", "BUILD"), whole=True)
    seen(servers)
    server = servers.get(FIRST)
    assert server is not None
    assert (server.status, server.host) == ("BUILD", "compute-1")


def test_a_deleted_server_is_gone_though_its_metadata_is_too() -> None:
    """Given nova, which drops a server's metadata with it, then that it is DELETED is seen all the same."""
    servers = Servers(PREFIX, RUN, 0)
    servers.made(FIRST, "a", -1.0)
    seen(servers, entry(FIRST, "a", "DELETED", metadata={}))
    assert servers.by_id("a") is None
    assert [*servers.there] == []


def test_what_one_whole_list_misses_is_looked_for_among_changes_and_then_by_another() -> None:
    servers = Servers(PREFIX, RUN, 0)
    servers.made(FIRST, "a", -1.0)
    seen(servers, whole=True)
    assert servers.get(FIRST) is not None
    assert servers.since(0.0) is not None, "the next list tells whether it was deleted"
    seen(servers)
    assert servers.get(FIRST) is not None
    assert servers.since(0.0) is None, "the next list is a whole one"
    seen(servers, whole=True)
    assert servers.get(FIRST) is None


def test_what_was_deleted_before_a_whole_list_is_asked_for_from_the_list_before_on() -> None:
    """Given a server that is deleted between two lists which are far apart, then the whole list, which does not show
    it, is followed by one of what has changed since the list before."""
    servers = Servers(PREFIX, RUN, 0)
    seen(servers, entry(FIRST, "a"), whole=True)
    before = servers.since(1.0)
    seen(servers, whole=True, now=WHOLE_EVERY + 1)
    assert servers.since(WHOLE_EVERY + 2) == before
    seen(servers, entry(FIRST, "a", "DELETED", metadata={}), now=WHOLE_EVERY + 2)
    assert servers.get(FIRST) is None
    later = servers.since(WHOLE_EVERY + 3)
    assert before is not None
    assert later is not None
    assert later > before


def test_what_is_made_while_a_whole_list_is_under_way_is_not_missed_by_it() -> None:
    servers = Servers(PREFIX, RUN, 0)
    seen(servers, whole=True)
    servers.made(FIRST, "a", 0.2)
    servers.made(Item(0, 1), "", 0.2)
    for _ in range(2):
        seen(servers, whole=True, now=0.1)
    assert {*servers.there} == {FIRST, Item(0, 1)}


def test_while_servers_come_and_go_all_the_time_lists_are_seldom_whole() -> None:
    """Given 10 servers a second that live for two, made and deleted while lists are under way, then everything is
    listed once a minute and no more, and what is gone is known to be."""
    servers = Servers(PREFIX, RUN, 0)
    ids = [f"id-{number}" for number in range(3000)]
    wholes = 0
    for tick in range(300):
        now = float(tick)
        since = servers.since(now)
        wholes += since is None
        there = range(10 * max(0, tick - 2), 10 * tick)
        gone = range(10 * max(0, tick - 9), there.start) if since is not None else ()
        listed = [entry(Item(0, number), ids[number]) for number in there] + [
            entry(Item(0, number), ids[number], "DELETED", metadata={}) for number in gone
        ]
        for number in range(10 * tick, 10 * tick + 10):
            servers.made(Item(0, number), ids[number], now + 0.2)
        seen(servers, *listed, whole=since is None, now=now)
        assert len([*servers.there]) <= 40
    assert wholes <= 1 + 300 / WHOLE_EVERY


def test_what_was_asked_for_by_one_call_is_expected_until_lists_show_it_or_miss_it_twice() -> None:
    servers = Servers(PREFIX, RUN, 0)
    for number in range(2):
        servers.made(Item(0, number), "", -1.0)
    assert {*servers.there} == {Item(0, 0), Item(0, 1)}
    seen(servers, entry(FIRST, "a", "BUILD"), whole=True)
    assert not servers.is_expected(FIRST)
    assert servers.is_expected(Item(0, 1))
    seen(servers, entry(FIRST, "a", "BUILD"), whole=True)
    assert {*servers.there} == {FIRST}


def test_of_two_with_one_name_the_later_one_is_surplus() -> None:
    """Given a call whose answer was lost and that was made again, then what it made twice is one too many."""
    servers = Servers(PREFIX, RUN, 0)
    seen(
        servers,
        entry(FIRST, "b", created="2026-01-01T00:00:01Z"),
        entry(FIRST, "a", created="2026-01-01T00:00:02Z"),
    )
    server = servers.get(FIRST)
    assert server is not None
    assert server.id == "b"
    assert [extra.id for extra in servers.surplus] == ["a"]


def test_a_server_in_error_says_why() -> None:
    servers = Servers(PREFIX, RUN, 0)
    seen(servers, entry(FIRST, "a", "ERROR", fault={"message": "No valid host was found."}))
    server = servers.get(FIRST)
    assert server is not None
    assert server.fault is not None
    assert server.fault.kind == "full"


def test_why_a_server_is_in_error_is_asked_for_once_and_kept() -> None:
    """Given lists, which have the faults of one of nova's cells alone, then a server whose fault they do not tell is
    named once, and what is told of it then outlives the lists that follow."""
    servers = Servers(PREFIX, RUN, 0)
    seen(servers, entry(FIRST, "a", "ERROR"))
    assert servers.take_unexplained() == ["a"]
    seen(servers, entry(FIRST, "a", "ERROR"))
    assert servers.take_unexplained() == []
    servers.explain("a", OpenstackError("No valid host was found.", "full"))
    seen(servers, entry(FIRST, "a", "ERROR"), whole=True)
    server = servers.get(FIRST)
    assert server is not None
    assert str(server.fault) == "No valid host was found."
    servers.explain("b", OpenstackError("gone"))


def test_a_fault_that_nobody_could_tell_is_asked_for_again_unless_the_server_is_gone() -> None:
    servers = Servers(PREFIX, RUN, 0)
    seen(servers, entry(FIRST, "a", "ERROR"))
    assert servers.take_unexplained() == ["a"]
    servers.leave_unexplained("a")
    assert servers.take_unexplained() == ["a"]
    servers.forget("a")
    servers.leave_unexplained("a")
    assert servers.take_unexplained() == []


def test_who_is_in_error_once_more_is_named_once_more() -> None:
    servers = Servers(PREFIX, RUN, 0)
    for status in ("ERROR", "ACTIVE", "ERROR"):
        seen(servers, entry(FIRST, "a", status))
    assert servers.take_unexplained() == ["a", "a"]


def test_without_the_time_of_the_answer_everything_is_listed() -> None:
    servers = Servers(PREFIX, RUN, 0)
    servers.see([], whole=True, answered=None, now=0.0, took=0.1)
    assert servers.since(0.1) is None


class Cloud(RuleBasedStateMachine):
    """A nova whose hosts' clocks differ by up to two seconds, which writes changes down a while after their time, in
    whole seconds; and lists of it at any moment, which take their time. What lists tell is what there is."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.servers = Servers(PREFIX, RUN, 0)
        self.truth: dict[str, tuple[Item, str]] = {}
        self.changed: dict[str, float] = {}
        self.gone: dict[str, Item] = {}
        self.number = 0
        self.known: dict[Item, Seen] = {}
        """What somebody knows who has only heard of changes."""

    def _change(self, identity: str, skew: float) -> None:
        self.changed[identity] = float(int(self.now + skew))

    @rule(skew=st.floats(-2, 2), told=st.booleans())
    def made(self, skew: float, told: bool) -> None:
        self.number += 1
        item, identity = Item(0, self.number), f"id-{self.number}"
        self.truth[identity] = item, "BUILD"
        self._change(identity, skew)
        self.servers.made(item, identity if told else "", self.now)

    @rule(data=st.data(), skew=st.floats(-2, 2), status=st.sampled_from(["ACTIVE", "ERROR", "SHUTOFF"]))
    def became(self, data: st.DataObject, skew: float, status: str) -> None:
        if self.truth:
            identity = data.draw(st.sampled_from(sorted(self.truth)))
            self.truth[identity] = self.truth[identity][0], status
            self._change(identity, skew)

    @rule(data=st.data(), skew=st.floats(-2, 2))
    def deleted(self, data: st.DataObject, skew: float) -> None:
        if self.truth:
            identity = data.draw(st.sampled_from(sorted(self.truth)))
            self.gone[identity] = self.truth.pop(identity)[0]
            self._change(identity, skew)

    @rule(seconds=st.floats(0, WHOLE_EVERY * 1.5))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds

    @rule(took=st.floats(0, 30))
    def listed(self, took: float) -> None:
        """The list has what was so when it was asked for; its answer comes later, and says when."""
        since = self.servers.since(self.now)
        begin = (
            (datetime.strptime(since, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) - BEGAN).total_seconds()
            if since
            else None
        )
        answer = [
            entry(item, identity, status)
            for identity, (item, status) in self.truth.items()
            if begin is None or self.changed[identity] >= begin
        ] + [
            entry(item, identity, "DELETED", metadata={})
            for identity, item in self.gone.items()
            if begin is not None and self.changed[identity] >= begin
        ]
        asked = self.now
        self.now += took
        answered = BEGAN + timedelta(seconds=int(self.now))
        page = read_page(PREFIX, RUN, answer)
        self.servers.see(page, whole=since is None, answered=answered, now=asked, took=took)
        told = ListedServers(self.servers)
        self.known |= {item: told[item] for item in told.changed if item in told}
        self.known = {
            item: seen for item, seen in self.known.items() if item not in told.changed or item in told
        }
        told.taken()
        assert self.known == {**told}, "a change was not told"
        for identity, (item, status) in self.truth.items():
            found = self.servers.by_id(identity)
            assert found is not None, "a server is lost"
            assert (found.item, found.status) == (item, status)

    @invariant()
    def nothing_is_lost(self) -> None:
        for item, _ in self.truth.values():
            assert item in self.servers.there

    def teardown(self) -> None:
        """When nothing happens any more, a whole list and another show exactly what there is."""
        for _ in range(3):
            self.now += 2 * WHOLE_EVERY + 20 * 30.0
            self.listed(took=0.1)
        assert {*self.servers.there} == {item for item, _ in self.truth.values()}


TestCloud = Cloud.TestCase
TestCloud.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


def test_changes_are_listed_from_before_the_list_before() -> None:
    servers = Servers(PREFIX, RUN, 0)
    servers.see([], whole=True, answered=BEGAN + timedelta(seconds=60), now=100.0, took=4.0)
    assert servers.since(101.0) == (BEGAN + timedelta(seconds=60 - 4 - OVERLAP)).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )
    assert servers.since(100.0 + 4 * 20 + 1) is None, "it is time for a whole one"
