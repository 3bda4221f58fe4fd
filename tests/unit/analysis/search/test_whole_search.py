"""A whole search: the loads that it asks for, and what it is told of them."""

from __future__ import annotations

import math

from tippingpoint.analysis.search.probes import Margin, Probe
from tippingpoint.analysis.search.searcher import Aim, Ask, Searcher

AIM = Aim(start=100, limit=100_000, resolution=0.1, hold=8.0, within=None, whole=True)


class Target:
    """A target that holds up to a load, and how long the search has taken on it."""

    def __init__(self, holds: float, seconds: float = 10.0) -> None:
        self.holds = holds
        self.seconds = seconds
        self.elapsed = 0.0
        self.asked: list[Ask] = []

    def put(self, ask: Ask, began: float) -> Probe:
        assert began == self.elapsed
        self.asked.append(ask)
        self.elapsed += self.seconds
        value = math.log(ask.load / self.holds)
        margin = Margin("extend p99", value, 0.01)
        return Probe(ask.load, value <= 0, (margin,), ask.fresh, began, self.seconds)


def find_limit(searcher: Searcher, target: Target) -> None:
    while (ask := searcher.ask(now := target.elapsed)) is not None:
        searcher.tell(target.put(ask, now))


def searched(target: Target, aim: Aim = AIM) -> Searcher:
    searcher = Searcher(aim)
    find_limit(searcher, target)
    return searcher


def test_a_search_goes_on_until_its_searcher_has_the_answer() -> None:
    target = Target(holds=3140)
    searcher = searched(target)
    answer = searcher.answer
    assert answer.ended == "resolution"
    assert answer.low <= 3140 <= answer.high
    assert target.asked[0].load == 100


def test_a_search_begins_no_probe_after_its_time() -> None:
    target = Target(holds=3140)
    searcher = searched(target, Aim(100, 100_000, 0.001, 8.0, 35.0, True))
    assert len(target.asked) == 4
    assert searcher.answer.ended == "within"


def test_a_search_that_is_told_the_same_asks_for_the_same() -> None:
    """So a resumed run goes on where the run before would have gone on."""
    whole = Target(holds=3140)
    searched(whole)
    # given a search that was interrupted after five probes
    first = Target(holds=3140)
    told: list[Probe] = []
    searcher = Searcher(AIM)
    for _ in range(5):
        ask = searcher.ask(first.elapsed)
        assert ask is not None
        told.append(first.put(ask, first.elapsed))
        searcher.tell(told[-1])
    # when another one is told of these, and goes on
    resumed, second = Searcher(AIM), Target(holds=3140)
    for probe in told:
        resumed.tell(probe)
    second.elapsed = first.elapsed
    find_limit(resumed, second)
    # then it tries the loads that were left
    assert [ask.load for ask in first.asked + second.asked] == [ask.load for ask in whole.asked]
