"""A search: which loads it asks for, when it ends, and what it says."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from math import exp, log
from statistics import NormalDist

import pytest

from tests.simulated_targets import Kind, Result, Target, search
from tippingpoint.analysis.search.probes import Margin, Probe
from tippingpoint.analysis.search.searcher import Aim, Searcher, searcher_for

AIM = Aim(start=100, limit=100_000, resolution=0.2, hold=30.0, within=None, whole=True)


def played(
    aim: Aim, holds: dict[str, float], searcher: Searcher | None = None
) -> tuple[Searcher, list[Probe]]:
    """A search of a target whose operations (names of margins) each hold up to a load, told by sides alone."""
    searcher, probes, now = searcher or Searcher(aim), list[Probe](), 0.0
    while (ask := searcher.ask(now)) is not None:
        margins = tuple(
            Margin(name, 1.5 if ask.load > limit else -1.5, 0.05) for name, limit in holds.items()
        )
        held = all(margin.value <= 0 for margin in margins)
        probe = Probe(ask.load, held, margins, ask.fresh or not probes, now, ask.hold)
        searcher.tell(probe)
        probes.append(probe)
        now += ask.hold
    return searcher, probes


def test_no_load_near_one_that_was_aborted_or_above_it_is_tried_again() -> None:
    # given a target that holds 2,500, where every load above 2,600 is aborted
    searcher, asked = Searcher(AIM), list[tuple[float, bool]]()
    while (ask := searcher.ask(30.0 * len(asked))) is not None:
        value = log(ask.load / 2500)
        aborted = ask.load > 2600
        asked.append((ask.load, aborted))
        margin = Margin("extend p99", value, 0.01)
        searcher.tell(
            Probe(ask.load, value <= 0, (margin,), ask.fresh, 30.0 * (len(asked) - 1), 30.0, aborted)
        )
    # then each load is below 0.9 of all that were aborted before
    for place, (load, _) in enumerate(asked):
        assert all(load <= 0.9 * before for before, aborted in asked[:place] if aborted)
    assert any(aborted for _, aborted in asked)
    # and the limit is found all the same
    assert searcher.answer.low <= 2500 <= searcher.answer.high


def test_a_search_whose_smallest_load_is_aborted_tries_no_other() -> None:
    searcher = Searcher(replace(AIM, start=1))
    assert searcher.ask(0.0) is not None
    searcher.tell(Probe(1, False, (), True, 0.0, 16.0, aborted=True))
    assert searcher.ask(16.0) is None
    assert searcher.answer.ended == "broken at start"


def test_the_interval_of_most_searches_holds_the_limit_and_is_as_narrow_as_asked() -> None:
    # given targets of three kinds whose limits are drawn
    results = list[Result]()
    for kind in (Kind(softness=0.05), Kind(softness=0.15), Kind(softness=0.05, shape="queue")):
        for number in range(12):
            draw = random.Random(f"unit {number}")
            limit = exp(draw.uniform(log(150), log(60_000)))
            # when each is searched
            results.append(search(Target(kind, limit, draw), AIM))
    # then the intervals hold the limits, and say little more than that
    assert sum(result.covers for result in results) >= 30
    assert all(result.error is not None and result.error < 0.2 for result in results)
    for result in results:
        if result.ended == "resolution":
            assert result.found is not None
            # whole loads are told outwards
            assert result.high - result.low <= 0.2 * result.found + 2
    assert sum(result.ended == "resolution" for result in results) >= 30


def test_a_sharp_limit_is_told_narrower_than_was_asked() -> None:
    # given sharp targets whose limits are drawn
    results = list[Result]()
    for number in range(12):
        draw = random.Random(f"sharp {number}")
        limit = exp(draw.uniform(log(500), log(60_000)))
        # when each is searched
        results.append(search(Target(Kind(softness=0.01), limit, draw), AIM))
    # then the probes near the limit show that it is sharp
    widths = sorted(result.width or 1.0 for result in results)
    assert widths[6] <= 0.13
    assert sum(result.covers for result in results) >= 10


def test_a_margin_that_jumps_at_the_limit_is_no_sign_of_a_soft_one() -> None:
    # given targets with two thirds of what is allowed up to the limit, and five times as much above it
    for limit in (911.0, 2345.0, 17_000.0):
        searcher, now, draw = Searcher(AIM), 0.0, random.Random(f"jump {limit}")
        while (ask := searcher.ask(now)) is not None:
            held = ask.load <= limit
            value = (-0.45 if held else 1.6) + draw.gauss(0, 0.03)
            searcher.tell(Probe(ask.load, held, (Margin("extend p99", value, 0.02),), ask.fresh, now, 30.0))
            now += 30.0
        # when each is searched, then the interval becomes as narrow as asked, and the limit is near
        answer = searcher.answer
        assert answer.ended == "resolution"
        assert answer.limit == pytest.approx(limit, rel=0.05)
        assert answer.low <= limit <= answer.high


def test_a_search_goes_on_while_only_doubts_keep_its_interval_from_being_narrow() -> None:
    # given targets that hold or break in one step, and a search for a tenth
    aim = replace(AIM, resolution=0.1)
    results = list[Result]()
    for number in range(12):
        draw = random.Random(f"doubts {number}")
        limit = exp(draw.uniform(log(500), log(60_000)))
        # when each is searched
        results.append(search(Target(Kind(softness=0.01, shape="step"), limit, draw), aim))
    # then most get there, by few more probes: it is no reason to end that the limit may be soft or drift
    assert sum(result.ended == "resolution" for result in results) >= 6
    assert all(result.probes <= 30 and result.covers for result in results)


def test_who_asks_for_a_tenth_is_told_no_less_than_who_asks_for_a_fifth() -> None:
    # given soft targets, whose limits are hardly told to a tenth
    told = dict.fromkeys((0.2, 0.1), 0)
    for number in range(12):
        for asked in told:
            draw = random.Random(f"fifth {number}")
            limit = exp(draw.uniform(log(500), log(60_000)))
            # when each is searched for a fifth, and once more for a tenth
            result = search(Target(Kind(softness=0.15), limit, draw), replace(AIM, resolution=asked))
            told[asked] += (result.width or 1.0) <= 0.2
    # then as many are told to a fifth
    assert told[0.1] >= told[0.2] >= 6


def test_a_limit_that_is_hurt_for_minutes_is_found() -> None:
    # given targets whose limit is a quarter lower after a load that broke, which halves in a minute however empty
    results = list[Result]()
    for number in range(12):
        draw = random.Random(f"hurt {number}")
        limit = exp(draw.uniform(log(150), log(60_000)))
        # when each is searched
        results.append(search(Target(Kind(softness=0.1, stays=0.3), limit, draw), AIM))
    # then most are as near as other limits
    errors = sorted(result.error or 1.0 for result in results)
    assert errors[6] <= 0.06
    assert sum(result.covers for result in results) >= 10


def test_a_sharp_limit_of_whole_loads_lies_between_two_of_them() -> None:
    # given a target that holds 7 and breaks at 8
    aim = Aim(start=1, limit=1000, resolution=0.05, hold=30.0, within=None, whole=True)
    # when it is searched
    searcher, probes = played(aim, {"extend p99": 7})
    answer = searcher.answer
    # then the interval is no narrower than that
    assert answer.limit is not None
    assert 6 <= answer.low <= 7
    assert 8 <= answer.high <= 10
    assert 7 <= answer.limit <= 8
    assert all(probe.load == int(probe.load) for probe in probes)


def test_a_sharp_limit_of_few_whole_loads_is_told_as_two_neighbours() -> None:
    # given a target that holds 3 and breaks at 4
    aim = Aim(start=1, limit=1000, resolution=0.05, hold=30.0, within=None, whole=True)
    # when it is searched, then the interval is no wider than that
    answer = played(aim, {"extend p99": 3})[0].answer
    assert (answer.low, answer.high, answer.ended) == (3, 4, "resolution")


def test_a_small_limit_takes_no_more_probes_for_its_loads_being_whole() -> None:
    # given targets with limits of 5 to 10 loads, and as soft as others
    results = list[Result]()
    for number in range(12):
        draw = random.Random(f"small {number}")
        target = Target(Kind(softness=0.1), exp(draw.uniform(log(5), log(10))), draw)
        # when each is searched
        results.append(search(target, AIM))
    # then it takes few probes, and most intervals hold the limit
    assert sum(result.probes for result in results) <= 20 * len(results)
    assert sum(result.covers for result in results) >= 10


def test_the_largest_load_that_may_be_tried_holds() -> None:
    searcher, probes = played(AIM, {"extend p99": 1e9})
    answer = searcher.answer
    assert (answer.limit, answer.ended, answer.withheld) == (None, "limit", "")
    assert answer.low == 100_000
    assert max(probe.load for probe in probes) == 100_000


def test_a_target_that_breaks_at_once_is_searched_downwards() -> None:
    searcher, probes = played(AIM, {"extend p99": 12})
    answer = searcher.answer
    assert answer.limit is not None
    assert answer.low <= 12.5 <= answer.high
    assert probes[0].load == 100


def test_a_target_that_holds_nothing_says_so() -> None:
    searcher, _ = played(AIM, {"extend p99": 0})
    answer = searcher.answer
    assert (answer.limit, answer.ended, answer.high) == (None, "broken at start", 1)
    assert answer.binds == "extend p99"


def test_a_generator_that_is_the_limit_thrice_ends_the_search() -> None:
    # given a generator that cannot bring more than 3,000
    searcher, now = Searcher(AIM), 0.0
    loads: list[float] = []
    while (ask := searcher.ask(now)) is not None:
        held = True if ask.load <= 3000 else None
        searcher.tell(Probe(ask.load, held, (Margin("extend p99", -1.5, 0.05),), False, now, 30.0))
        loads.append(ask.load)
        now += 30.0
    # then nothing is said of larger loads
    answer = searcher.answer
    assert answer.ended == "generator"
    assert answer.limit is None
    assert answer.withheld == "the generator itself was the bottleneck in all 3 probes of larger loads"
    assert answer.low == max(load for load in loads if load <= 3000)
    assert sum(load > 3000 for load in loads) == 3


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.2])
def test_probes_that_say_nothing_are_no_limit_of_the_generator_where_larger_loads_were_judged(
    share: float,
) -> None:
    # given targets of which a share of all probes says nothing, whatever the load
    aim = replace(AIM, resolution=0.3)
    for number in range(6):
        draw = random.Random(f"mute {share} {number}")
        target = Target(Kind(softness=0.1), exp(draw.uniform(log(300), log(20_000))), draw)
        searcher, now, probes = Searcher(aim), 0.0, list[Probe]()
        # when each is searched
        while (ask := searcher.ask(now)) is not None:
            probe = target.probe(ask.load, fresh=ask.fresh or not probes, at=now, hold=ask.hold)
            if draw.random() < share:
                probe = replace(probe, held=None)
            searcher.tell(probe)
            probes.append(probe)
            now += probe.seconds
        # then the generator ends none but where nothing as large as those loads was judged
        if searcher.answer.ended == "generator":
            judged = max(probe.load for probe in probes if probe.held is not None)
            assert sum(probe.load > judged for probe in probes) >= 3
            assert "in all" in searcher.answer.withheld or searcher.answer.limit is not None


def test_a_search_in_which_nothing_can_be_judged_any_more_ends_and_does_not_say_that_larger_loads_cannot() -> (
    None
):
    # given a target that holds 1,000, and a generator that is strained once both sides were seen
    searcher, now, probes = Searcher(AIM), 0.0, list[Probe]()
    while (ask := searcher.ask(now)) is not None:
        both = {True, False} <= {probe.held for probe in probes}
        held = None if both else ask.load <= 1000
        probe = Probe(ask.load, held, (Margin("extend p99", -1.5 if held else 1.5, 0.05),), False, now, 30.0)
        searcher.tell(probe)
        probes.append(probe)
        now += 30.0
    # then it ends after a few more probes, and the reason is that they said nothing
    assert searcher.answer.ended == "unjudged"
    assert sum(probe.held is None for probe in probes) <= 6


def test_a_threshold_that_few_probes_measured_is_not_said_to_be_beyond_the_generator() -> None:
    # given a search in which one threshold was measured at two loads only, both of which held
    _, tried = played(AIM, {"extend p99 100ms": 3000})
    probes = [
        replace(probe, margins=(*probe.margins, Margin("claim p99 1s", -1.5, 0.1))) if number < 2 else probe
        for number, probe in enumerate(tried)
    ]
    # when the same probes are judged by it
    answer = searcher_for(AIM, probes, ["claim p99 1s"]).answer
    # then the generator has no part in that
    assert answer.limit is None
    assert "generator" not in answer.withheld


@pytest.mark.parametrize("whole", [True, False])
def test_an_interval_that_goes_below_every_load_that_may_be_tried_has_no_lower_end(whole: bool) -> None:
    # given a search that knows no more of a load that held than one probe, far above others that broke
    searcher = Searcher(Aim(start=500, limit=64_000, resolution=0.1, hold=8.0, within=None, whole=whole))
    for number, (load, held) in enumerate(
        [(500, False), (250, False), (0.6 if not whole else 1, False), (500, True)]
    ):
        margin = Margin("extend p99", -0.1 if held else 0.2, 2.0)
        searcher.tell(Probe(load, held, (margin,), True, 10.0 * number, 8.0))
    # then zero is no load that holds
    answer = searcher.answer
    assert answer.limit is not None
    assert answer.low == 0.0


@pytest.mark.parametrize("softness", [0.05, 0.3])
def test_no_larger_share_of_holds_is_named_at_the_lower_end_than_there_is(softness: float) -> None:
    # given targets that are sharp, or as soft as some are
    true: list[bool] = []
    for number in range(10):
        draw = random.Random(f"share {number}")
        limit = exp(draw.uniform(log(500), log(20_000)))
        searcher, now, target = Searcher(AIM), 0.0, Target(Kind(softness=softness), limit, draw)
        # when each is searched
        while (ask := searcher.ask(now)) is not None:
            probe = target.probe(ask.load, fresh=ask.fresh, at=now, hold=30.0)
            searcher.tell(probe)
            now += probe.seconds
        answer = searcher.answer
        # then most hold at least as often at the lower end of the interval as the answer says
        assert answer.share is not None
        true.append(answer.share <= NormalDist(0, softness / 2.563).cdf(log(limit / answer.low)))
        assert answer.share > 0.5
    assert sum(true) >= 9


def test_the_curve_falls_with_the_load_within_its_band() -> None:
    draw = random.Random("curve")
    searcher, now = Searcher(AIM), 0.0
    target = Target(Kind(softness=0.15), 2000.0, draw)
    while (ask := searcher.ask(now)) is not None:
        probe = target.probe(ask.load, fresh=ask.fresh, at=now, hold=30.0)
        searcher.tell(probe)
        now += probe.seconds
    curve = searcher.answer.curve
    assert [point.load for point in curve] == sorted(point.load for point in curve)
    assert all(before.chance >= after.chance - 1e-6 for before, after in pairwise(curve))
    assert all(point.low - 1e-9 <= point.chance <= point.high + 1e-9 for point in curve)
    assert curve[0].chance > 0.9
    assert curve[-1].chance < 0.1
    # and it is one half at the limit that is named
    limit = searcher.answer.limit
    assert limit is not None
    assert [point.load < limit for point in curve if abs(point.chance - 0.5) > 0.05] == [
        point.chance > 0.5 for point in curve if abs(point.chance - 0.5) > 0.05
    ]


TOOK = "other programs used 43 % of the target's processor meanwhile"


def beside_others(aim: Aim, begins: float, ends: float) -> tuple[Searcher, list[Probe], float]:
    """A search of a target that holds 1,000, where loads above that say nothing beside others, who come and go.

    After each such probe it waits for 60 s, or until they have gone. Returns also when it ended.
    """
    searcher, probes, now = Searcher(aim), list[Probe](), 0.0
    while (ask := searcher.ask(now)) is not None:
        there = begins <= now < ends
        held = ask.load <= 1000
        margin = Margin("extend p99", 2 * log(ask.load / 1000), 0.05)
        silent = there and not held
        probe = Probe(
            ask.load, None if silent else held, (margin,), False, now, 30.0, foreign=TOOK if silent else ""
        )
        searcher.tell(probe)
        probes.append(probe)
        now += 30.0
        if silent:
            now = max(now, min(ends, now + 60.0))
    return searcher, probes, now


def test_a_load_that_said_nothing_beside_others_is_tried_again_when_they_have_gone() -> None:
    # given others who are there for a while in the middle of a search
    searcher, probes, _ = beside_others(AIM, 100.0, 180.0)
    # then the same load is next, and the answer is the target's
    (place,) = (place for place, probe in enumerate(probes) if probe.foreign)
    assert probes[place + 1].load == probes[place].load
    assert searcher.answer.limit is not None
    assert searcher.answer.low <= 1000 <= searcher.answer.high


@pytest.mark.parametrize(("begins", "within"), [(0.0, None), (0.0, 400.0), (200.0, 400.0)])
def test_an_answer_is_withheld_if_others_do_not_go_and_names_them(
    begins: float, within: float | None
) -> None:
    # given others who come, and stay
    searcher, probes, ended = beside_others(replace(AIM, within=within), begins, 1e9)
    answer = searcher.answer_at(ended)
    # then the search ends soon, with what held all the same
    assert len([probe for probe in probes if probe.foreign]) <= 6
    assert (answer.ended, answer.limit, answer.withheld) == ("foreign", None, TOOK)
    assert answer.low == max(probe.load for probe in probes if probe.held)
