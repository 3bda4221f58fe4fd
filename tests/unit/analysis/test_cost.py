"""What a target takes as it is and what each further unit of load adds, by role, and when that is for certain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.made_runs import made_run, made_stage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.cost import LEVEL, Cost, Role, theil_sen
from tippingpoint.rundir.manifest import TargetEntry
from tippingpoint.rundir.resources import FigureData, Resources, Series
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult

STEP = 5.0
HOLD = 60.0
SIZES = (1000, 2000, 4000, 8000, 16000)
Values = Callable[[float], float | None]
"""A figure of a host by the load that is held (0 before stage 1)."""


def stages(sizes: Sequence[int] = SIZES, hold: float = HOLD) -> list[StageResult]:
    """Each brought up within 30 s and held, from 60 s on; an operation a second for 1,000 leases."""
    made: list[StageResult] = []
    for number, size in enumerate(sizes, start=1):
        samples = {
            "claim.ok": [1.0] * round(size * hold / 10_000),
            "extend.ok": [1.0] * round(size * hold * 9 / 10_000),
        }
        stage = made_stage(number, size, samples)
        stage.begin = 60 + (number - 1) * (30 + hold)
        stage.hold_begin = stage.begin + 30
        stage.end = stage.hold_begin + hold
        made.append(stage)
    return made


def load_at(made: Sequence[StageResult], t: float) -> float:
    """What is held at a moment: what the last stage that was brought up by then has."""
    return max((stage.size for stage in made if (stage.hold_begin or 0) <= t), default=0)


def run_of(
    hosts: dict[str, Values],
    *,
    made: Sequence[StageResult] | None = None,
    unit: str = "bytes",
    window: float = 0.0,
    leader: Sequence[tuple[float, str]] = (),
    begin: float = -120.0,
    **manifest: Any,
) -> RunData:
    run = made_run(made if made is not None else stages())
    run.manifest = run.manifest.model_copy(update=manifest)
    end = max((stage.end or 0 for stage in run.stages), default=0.0)
    t = [begin + STEP * place for place in range(int((end - begin) / STEP) + 1)]
    loads = [load_at(run.stages, moment) for moment in t]
    run.resources = Resources(
        source="Prometheus 2.42.0",
        step=STEP,
        t=t,
        leader=list(leader),
        figures=[
            FigureData(
                name="figure", title="Memory", unit=unit, meaning="m", pack="p", cost="load", window=window,
                series=[Series(host=host, values=[of(load) for load in loads]) for host, of in hosts.items()],
            )
        ],
    )  # fmt: skip
    return run


def cost_of(run: RunData, role: Role = "all") -> Cost:
    (found,) = [cost for cost in analyse(run).costs if cost.role == role]
    return found


def taken(cost: Cost) -> list[float]:
    """What each load took, in the cost's base unit."""
    return [point.level for point in cost.points]


class TestPerUnitOfLoad:
    def test_it_is_a_base_and_what_each_further_one_adds(self) -> None:
        # given a host with 54 MB for leases as such, and 11 kB for each, whatever it had before the first
        cost = cost_of(run_of({"a": lambda load: 54e6 + 11e3 * load if load else 20e6}))
        # then both are told
        assert (cost.unit, cost.per, cost.base_unit) == ("MB", "1,000 leases", "MB")
        assert [(point.size, point.amount) for point in cost.points] == [
            (size, size / 1000) for size in SIZES
        ]
        assert cost.base == pytest.approx(54.0)
        assert (cost.slope, cost.low, cost.high) == pytest.approx((11.0, 11.0, 11.0))
        assert cost.is_told
        assert cost.left_out == []
        assert cost.sentence == "Memory: 54 MB, and 11 MB more for each 1,000 leases (95 %: about 11)."

    def test_leader_followers_and_all_are_told_apart(self) -> None:
        # given three hosts, of which the leader takes 10 times what others do for each lease
        hosts: dict[str, Values] = {name: lambda load: 100e6 + 1e3 * load for name in ("b", "c")}
        run = run_of({"a": lambda load: 100e6 + 10e3 * load, **hosts}, leader=[(-120.0, "a")])
        # then each role has its cost, and all is the sum of hosts
        slopes = {role: cost_of(run, role).slope for role in ("leader", "follower", "all")}
        assert slopes == pytest.approx({"leader": 10.0, "follower": 1.0, "all": 12.0})
        assert cost_of(run).base == pytest.approx(300.0)

    def test_the_leaders_cost_goes_with_the_lead(self) -> None:
        # given two hosts of which the one that leads has 10 kB a lease, and the lead changes at 330 s
        made = stages()
        run = run_of(
            {"a": lambda load: load, "b": lambda load: load}, made=made, leader=[(-120, "a"), (330, "b")]
        )
        assert run.resources is not None
        for series, led in zip(run.resources.figures[0].series, ((-120, 330), (330, 1e9)), strict=True):
            series.values = [
                (10e3 if led[0] <= t < led[1] else 1e3) * load_at(made, t) for t in run.resources.t
            ]
        # then the leader's cost is the same over all loads
        assert cost_of(run, "leader").slope == pytest.approx(10.0)
        assert cost_of(run, "follower").slope == pytest.approx(1.0)

    def test_without_a_known_leader_only_all_is_told(self) -> None:
        run = run_of({"a": lambda load: load, "b": lambda load: load})
        assert [cost.role for cost in analyse(run).costs] == ["all"]

    def test_network_per_container_is_in_megabits(self) -> None:
        run = run_of(
            {"a": lambda load: 2e6 * load}, unit="bits/s", made=stages((10, 20, 40, 80)),
            workload="spawn", load_unit="containers", target=TargetEntry(kind="lxd"),
        )  # fmt: skip
        cost = cost_of(run)
        assert (cost.unit, cost.per, cost.slope) == ("Mbit/s", "container", pytest.approx(2.0))

    def test_what_is_held_counts_and_not_what_was_asked_for(self) -> None:
        # given stages of which the last reached 15,000 of its 16,000 leases
        made = stages()
        made[-1].gauges["held"] = 15000.0
        cost = cost_of(run_of({"a": lambda load: 1e3 * min(load, 15000)}, made=made))
        assert [point.amount for point in cost.points][-1] == 15.0
        assert cost.slope == pytest.approx(1.0)

    def test_a_line_that_begins_below_nothing_has_no_base(self) -> None:
        cost = cost_of(run_of({"a": lambda load: max(0.0, 11e3 * load - 1e6)}))
        assert cost.sentence == "Memory: 11 MB for each 1,000 leases (95 %: about 11)."


class TestNoise:
    @settings(deadline=None, max_examples=30)
    @given(st.permutations([54.0, 55.0, 56.0, 57.0, 58.0]))
    def test_only_an_order_that_chance_hardly_makes_is_a_cost(self, levels: list[float]) -> None:
        # given any order of five levels
        by_size = dict(zip(SIZES, levels, strict=True))
        cost = cost_of(run_of({"a": lambda load: 1e6 * by_size.get(int(load), 0.0)}))
        # then the load is said to cost something only where they rise from one to the next
        assert cost.is_told == (levels == sorted(levels))

    def test_what_falls_with_the_load_is_no_cost(self) -> None:
        cost = cost_of(run_of({"a": lambda load: 1e9 - 1e3 * load}))
        assert not cost.is_told
        assert cost.slope == pytest.approx(-1.0)
        assert cost.sentence == "Memory: withheld, as what the load adds is within the noise."

    def test_what_is_next_to_nothing_is_none_however_certain(self) -> None:
        assert not cost_of(run_of({"a": lambda load: 1e9 + 500 * load})).is_told
        assert cost_of(run_of({"a": lambda load: 1e9 + 1000 * load})).is_told

    @pytest.mark.parametrize("noise", ["even", "with the load", "outliers"])
    @pytest.mark.parametrize("count", [4, 5, 7, 10])
    def test_an_interval_of_95_percent_holds_the_truth_in_93_to_99(self, count: int, noise: str) -> None:
        # given loads of 50 MB and 11 MB more for each 1,000 leases, with a noise of the same size at each, one that
        # grows with the load, or one with outliers
        random = np.random.default_rng(count)
        amounts = np.array([0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32][: count + 1])
        spread = 0.5 + 0.05 * amounts if noise == "with the load" else 3.0
        held, rounds = 0, 1000
        for _ in range(rounds):
            drawn = (
                random.standard_t(2, count + 1) if noise == "outliers" else random.standard_normal(count + 1)
            )
            points = list(zip(amounts, 50 + 11 * amounts + spread * drawn, strict=True))
            _, low, high, level = theil_sen(points)
            assert low is not None
            assert high is not None
            assert level is not None
            assert level >= LEVEL
            held += low <= 11 <= high
        # then the interval holds the 11 as often as it says
        assert 0.93 <= held / rounds <= 0.99

    def test_four_points_give_an_interval_of_92_percent(self) -> None:
        # given all orders of levels that do not depend on the load, each as likely
        outside = 0
        for levels in permutations([1.0, 1.21, 1.5, 1.93]):
            _, low, high, level = theil_sen(list(enumerate(levels)))
            assert low is not None
            assert high is not None
            assert level == pytest.approx(22 / 24)
            outside += not low <= 0 <= high
        # then it leaves out no slope in as many of them as it says
        assert outside == 2
        # and an interval says which it is
        cost = cost_of(run_of({"a": lambda load: 1e3 * load + 1e6}, made=stages(SIZES[:4])))
        assert cost.interval == "92 %: about 1"

    def test_three_loads_give_no_interval_and_are_not_told(self) -> None:
        cost = cost_of(run_of({"a": lambda load: 1e3 * load}, made=stages((1000, 2000, 4000, 4000))))
        assert [point.size for point in cost.points] == [1000, 2000, 4000]
        assert cost.slope == pytest.approx(1.0)
        assert cost.withheld == "a confidence interval needs 4 points, and this run has 3 loads with samples"
        assert not cost.is_told

    def test_points_at_one_load_give_no_slope(self) -> None:
        assert theil_sen([(1.0, 2.0), (1.0, 3.0)]) == (None, None, None, None)
        assert theil_sen([(1.0, 2.0), (1.0, 3.0), (2.0, 4.0), (3.0, 5.0)])[1:] == (None, None, None)


class TestTrend:
    def test_a_cost_that_grows_is_said_to(self) -> None:
        # given memory that grows with the square of the load
        cost = cost_of(run_of({"a": lambda load: 1e3 * load + 0.5 * load**2}))
        # then each further lease is said to add more than those before
        assert cost.trend == "grows"
        assert cost.sentence.endswith(
            "; each adds more the more there are: 2.5 from 1,000 to 2,000 leases, 13 from 8,000 to 16,000."
        )

    def test_a_cost_that_falls_is_said_to(self) -> None:
        cost = cost_of(run_of({"a": lambda load: 1e6 * load**0.5}))
        assert cost.trend == "falls"
        assert "; each adds less the more there are: " in cost.sentence

    def test_a_change_within_a_tenth_is_none(self) -> None:
        assert cost_of(run_of({"a": lambda load: load * (1e3 + load / 1000)})).trend == ""

    def test_one_that_goes_up_and_down_has_none(self) -> None:
        extra = dict(zip(SIZES, (0, 2e6, 0, 2e6, 0), strict=True))
        assert cost_of(run_of({"a": lambda load: 11e3 * load + extra.get(int(load), 0.0)})).trend == ""


class TestWithheld:
    def test_a_run_without_resources_has_no_costs(self) -> None:
        assert analyse(made_run(stages())).costs == []

    def test_a_stage_in_whose_hold_samples_are_missing_is_left_out(self) -> None:
        # given a host that answered no scrape while most leases were held
        cost = cost_of(run_of({"a": lambda load: None if load == 16000 else 1e3 * load}))
        # then that stage is left out, with the reason, and the others are told
        assert [point.size for point in cost.points] == [1000, 2000, 4000, 8000]
        assert cost.left_out == [(5, "13 of 13 samples are missing")]

    def test_a_stage_past_the_cliff_is_left_out(self) -> None:
        # given a run that loses half of its leases at the largest load
        made = stages()
        lost = made_stage(1, 1, {"extend.ok": [1.0] * 500, "extend.lost": [1.0] * 500}).histograms
        made[-1].histograms = made[-1].held = lost
        cost = cost_of(run_of({"a": lambda load: 1e3 * load}, made=made))
        assert cost.left_out == [(5, "the cliff is at 16,000 leases")]

    def test_a_stage_with_a_fault_in_it_is_left_out(self) -> None:
        made = stages()
        run = run_of({"a": lambda load: 1e3 * load}, made=made)
        run.events += [
            {"t": made[1].begin + 40, "event": "fault", "member": "m1", "do": "kill"},
            {"t": made[1].begin + 50, "event": "fault", "member": "m1", "do": "start"},
        ]
        cost = cost_of(run)
        assert cost.left_out == [(2, "a fault was injected in it")]

    def test_of_all_hosts_one_in_a_gap_is_enough(self) -> None:
        run = run_of({"a": lambda load: load, "b": lambda load: None if load == 4000 else load})
        assert [number for number, _ in cost_of(run).left_out] == [3]

    def test_a_hold_that_is_shorter_than_a_rates_window_tells_nothing(self) -> None:
        cost = cost_of(run_of({"a": lambda load: load}, unit="bits/s", window=60.0))
        assert len(cost.left_out) == len(SIZES)
        assert cost.points == []
        assert cost.left_out[0][1] == "its 60 s have 1 moment for a rate over 60 s"
        assert cost.sentence == f"Memory: withheld, as {cost.withheld}."

    def test_a_stage_that_was_cut_or_held_nothing_is_left_out(self) -> None:
        made = stages()
        made[-1].end = None
        made[0].gauges["held"] = 0.0
        made[0].size = 0
        cost = cost_of(run_of({"a": lambda load: load}, made=made))
        assert cost.left_out == [(1, "nothing was held"), (5, "it was ended before its hold was over")]

    def test_a_storm_is_no_load_of_its_own(self) -> None:
        made = stages()
        made[2].kind = "storm"
        assert [point.size for point in cost_of(run_of({"a": lambda load: load}, made=made)).points] == [
            1000, 2000, 8000, 16000,
        ]  # fmt: skip

    @settings(deadline=None, max_examples=50)
    @given(
        values=st.lists(st.one_of(st.none(), st.floats(-1e12, 1e12)), min_size=0, max_size=120),
        window=st.sampled_from([0.0, 20.0, 600.0]),
        led=st.lists(st.tuples(st.floats(-200, 600), st.sampled_from(["a", "b", ""])), max_size=3),
        unit=st.sampled_from(["bytes", "cores", "ratio", "parsecs"]),
    )
    def test_whatever_was_gathered_there_is_an_answer(
        self,
        values: list[float | None],
        window: float,
        led: list[tuple[float, str]],
        unit: str,
    ) -> None:
        run = run_of({"a": lambda load: load}, window=window, leader=sorted(led), unit=unit)
        assert run.resources is not None
        length = len(run.resources.t)
        padded = (values + [None] * length)[:length]
        run.resources.figures[0].series = [
            Series(host="a", values=padded),
            Series(host="b", values=padded[::-1]),
        ]
        for cost in analyse(run).costs:
            assert bool(cost.withheld) == (cost.level is None)
            assert not (cost.is_told and (cost.low or 0.0) <= 0)
            assert "-" not in cost.words.split(" (")[0] or not cost.is_told
            assert "\n" not in cost.sentence
