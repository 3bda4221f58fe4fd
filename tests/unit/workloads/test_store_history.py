"""What watchers of a prefix must have seen: the checker of events, by itself."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.workloads.store.history import GRACE, History, Reader

KEYS = (b"a", b"b", b"c")


def told(history: History, now: float = 1e6) -> list[tuple[str, int, int]]:
    """All violations by then: kind, revision and watcher."""
    history.lost(now)
    return [(found.kind, found.revision, found.watcher) for found in history.violations]


def of_three(history: History, start: int = 1) -> list[Reader]:
    readers = [Reader(number) for number in (1, 2, 3)]
    for reader in readers:
        history.join(reader, start)
    return readers


def test_watchers_that_see_every_write_in_order_violate_nothing() -> None:
    history = History()
    for reader in of_three(history):
        for revision in (2, 3, 5):
            history.seen(reader, revision, b"a", 0.0)
    for revision in (2, 3, 5):
        history.written(revision, b"a", 1.0)
    assert told(history) == []


def test_an_event_has_the_moment_of_the_answer_to_its_write() -> None:
    # given a write that was acknowledged before one watcher saw it, and after another did
    history = History()
    first, second, _ = of_three(history)
    assert history.seen(first, 2, b"a", 0.0) is None
    # then the answer says how many had seen it, and whoever sees it later is told the moment
    assert history.written(2, b"a", 7.5) == 1
    assert history.seen(second, 2, b"a", 8.0) == 7.5


def test_an_event_that_others_saw_and_one_watcher_skipped_is_lost() -> None:
    history = History()
    first, second, third = of_three(history)
    for reader in (first, second):
        history.seen(reader, 2, b"a", 0.0)
        history.seen(reader, 3, b"b", 0.0)
    history.seen(third, 3, b"b", 0.0)
    assert told(history, GRACE / 2) == []
    assert told(history) == [("event-lost", 2, 3)]
    assert history.violations[0].key == b"a"


def test_an_acknowledged_write_that_all_watchers_skipped_is_lost_for_each() -> None:
    history = History()
    for reader in of_three(history):
        history.seen(reader, 3, b"b", 0.0)
    history.written(2, b"a", 0.0)
    history.written(3, b"b", 0.0)
    assert sorted(told(history)) == [("event-lost", 2, number) for number in (1, 2, 3)]


def test_an_event_that_comes_again_is_repeated() -> None:
    history = History()
    reader, *_ = of_three(history)
    for revision in (2, 3, 3, 2):
        history.seen(reader, revision, b"a", 0.0)
    assert told(history) == [("event-repeated", 3, 1), ("event-repeated", 2, 1)]


def test_events_that_change_places_are_out_of_order_and_none_is_lost() -> None:
    # given one watcher that sees two writes in order, and one that sees them the other way round
    history = History()
    first, second, _ = of_three(history)
    history.seen(first, 2, b"a", 0.0)
    history.seen(first, 3, b"b", 0.0)
    history.seen(second, 3, b"b", 0.0)
    history.seen(second, 2, b"a", 0.1)
    assert told(history) == [("event-reordered", 2, 2)]


def test_one_revision_may_change_several_keys_each_once() -> None:
    history = History()
    reader, *_ = of_three(history)
    for key in KEYS:
        history.seen(reader, 2, key, 0.0)
    assert told(history) == []
    history.seen(reader, 2, b"b", 0.0)
    assert told(history) == [("event-repeated", 2, 1)]


def test_a_watcher_owes_nothing_of_what_was_before_it_began() -> None:
    history = History()
    history.written(2, b"a", 0.0)
    history.written(3, b"a", 0.0)
    reader = Reader(1)
    history.join(reader, 4)
    history.written(5, b"a", 0.0)
    # an answer that comes late, of a write before it began
    history.written(1, b"b", 0.0)
    history.seen(reader, 5, b"a", 0.0)
    assert told(history) == []


def test_an_event_that_does_not_come_is_overdue_once() -> None:
    history = History()
    reader, *_ = of_three(history)
    history.written(2, b"a", 10.0)
    history.written(3, b"a", 20.0)
    assert list(history.overdue(reader, 15.0)) == [10.0]
    assert list(history.overdue(reader, 15.0)) == []
    # and it is no violation if it comes after all
    history.seen(reader, 2, b"a", 30.0)
    history.seen(reader, 3, b"a", 30.0)
    assert told(history) == []


def test_a_long_history_is_forgotten_and_what_comes_again_from_then_is_repeated() -> None:
    history = History()
    reader, *others = of_three(history)
    for other in others:
        history.leave(other)
    for revision in range(2, 20_000):
        history.written(revision, b"a", 0.0)
        history.seen(reader, revision, b"a", 0.0)
        if not revision % 1000:
            history.lost(0.0)
    history.seen(reader, 5, b"a", 0.0)
    assert told(history) == [("event-repeated", 5, 1)]


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_whatever_the_order_of_answers_a_right_watch_violates_nothing(seed: int, count: int) -> None:
    # given watchers that see all from some revision on, each at its own pace, and answers in any order beside them
    chance = random.Random(seed)
    history = History()
    written = [(revision, chance.choice(KEYS)) for revision in range(1, count + 1)]
    readers = [Reader(number) for number in (1, 2, 3)]
    pending: list[list[tuple[int, bytes]]] = []
    for reader in readers:
        start = chance.randint(1, count + 1)
        history.join(reader, start)
        pending.append([each for each in written if each[0] >= start])
    answers = [each for each in written if chance.random() < 0.7]
    chance.shuffle(answers)
    while any(pending) or answers:
        who = chance.randrange(4)
        if who == 3 and answers:
            history.written(*answers.pop(), 0.0)
        elif who < 3 and pending[who]:
            history.seen(readers[who], *pending[who].pop(0), 0.0)
    assert told(history) == []


@given(
    st.integers(2, 30),
    st.integers(1, 3),
    st.sampled_from(["drop", "repeat", "swap"]),
    st.integers(0, 28),
    st.booleans(),
)
def test_one_wrong_event_is_named_whichever_watcher_gets_it_and_whether_answers_come(
    count: int, of: int, wrong: str, place: int, acknowledged: bool
) -> None:
    # given watchers of which one misses an event, or gets one twice, or two in the wrong order
    history = History()
    readers = [Reader(number) for number in range(1, of + 1)]
    for reader in readers:
        history.join(reader, 1)
    place %= count - 1  # another one follows
    right = [(revision, b"k%d" % revision) for revision in range(1, count + 1)]
    seen = list(right)
    if wrong == "drop":
        del seen[place]
    elif wrong == "repeat":
        seen.insert(place + 1, seen[place])
    else:
        seen[place : place + 2] = reversed(seen[place : place + 2])
    if acknowledged:
        for revision, key in right:
            history.written(revision, key, 0.0)
    for reader in readers:
        for revision, key in seen if reader is readers[-1] else right:
            history.seen(reader, revision, key, 0.0)
    # then exactly that is named; a drop only if anybody else knows of the event
    found = Counter(kind for kind, *_ in told(history))
    if wrong == "drop":
        assert found == ({"event-lost": 1} if acknowledged or of > 1 else {})
    else:
        assert found == {"event-repeated" if wrong == "repeat" else "event-reordered": 1}
