"""What a unit of load costs the target, by role, and whether that grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made_runs import made_run, made_stage
from tippingpoint.cost import LEVEL, Cost, Role, costs_of
from tippingpoint.manifest import TargetEntry
from tippingpoint.resources import FigureData, Resources, Series
from tippingpoint.results import RunData, StageResult

STEP = 5.0
HOLD = 60.0
SIZES = (1000, 2000, 4000, 8000, 16000)
Values = Callable[[float], float | None]
"""A figure of a host by the load that is held (0 before stage 1)."""


def stages(sizes: Sequence[int] = SIZES, hold: float = HOLD) -> list[StageResult]:
    """Each brought up within 30 s and held, from 60 s on; an operation a second for 1000 leases."""
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
    cost: Literal["load", "operations"] = "load",
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
                name="figure", title="Memory", unit=unit, meaning="m", pack="p", cost=cost, window=window,
                series=[Series(host=host, values=[of(load) for load in loads]) for host, of in hosts.items()],
            )
        ],
    )  # fmt: skip
    return run


def cost_of(run: RunData, role: Role = "all") -> Cost:
    (found,) = [cost for cost in costs_of(run) if cost.role == role]
    return found


class TestPerUnitOfLoad:
    def test_it_is_what_there_is_above_what_there_was_before(self) -> None:
        # given a host with 500 MB without load, and 40 kB for each lease
        cost = cost_of(run_of({"a": lambda load: 500e6 + 40e3 * load}))
        # then it is 40 MB per 1000 leases at each load, and constant
        assert (cost.unit, cost.per, cost.base) == ("MB", "1000 leases", 500.0)
        assert [size for size, _ in cost.stages] == list(SIZES)
        assert [value for _, value in cost.stages] == pytest.approx([40.0] * 5)
        assert cost.slope == pytest.approx(0.0, abs=1e-9)
        assert cost.trend == "constant"
        assert cost.left_out == []

    def test_leader_followers_and_all_are_told_apart(self) -> None:
        # given three hosts, of which the leader takes 10 times what others do, and the lead goes over in mid-run
        hosts: dict[str, Values] = {name: lambda load: 100e6 + 1e3 * load for name in ("b", "c")}
        run = run_of({"a": lambda load: 100e6 + 10e3 * load, **hosts}, leader=[(-120.0, "a")])
        # then each role has its cost, and all is the sum of hosts
        per_1000 = {
            role: [value for _, value in cost_of(run, role).stages] for role in ("leader", "follower", "all")
        }
        assert per_1000["leader"] == pytest.approx([10.0] * 5)
        assert per_1000["follower"] == pytest.approx([1.0] * 5)
        assert per_1000["all"] == pytest.approx([12.0] * 5)

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
        assert [value for _, value in cost_of(run, "leader").stages] == pytest.approx([10.0] * 5)
        assert [value for _, value in cost_of(run, "follower").stages] == pytest.approx([1.0] * 5)

    def test_without_a_known_leader_only_all_is_told(self) -> None:
        run = run_of({"a": lambda load: load, "b": lambda load: load})
        assert [cost.role for cost in costs_of(run)] == ["all"]

    def test_network_per_container_is_in_megabits(self) -> None:
        run = run_of(
            {"a": lambda load: 2e6 * load}, unit="bits/s", made=stages((10, 20, 40, 80)),
            workload="spawn", load_unit="containers", target=TargetEntry(kind="lxd"),
        )  # fmt: skip
        cost = cost_of(run)
        assert (cost.unit, cost.per) == ("Mbit/s", "container")
        assert [value for _, value in cost.stages] == pytest.approx([2.0] * 4)

    def test_what_is_held_counts_and_not_what_was_asked_for(self) -> None:
        # given stages of which the last reached half of its leases
        made = stages()
        made[-1].gauges["held"] = 8000.0
        cost = cost_of(run_of({"a": lambda load: 1e3 * min(load, 8000)}, made=made))
        assert [value for _, value in cost.stages] == pytest.approx([1.0] * 5)


class TestPerOperation:
    def test_cpu_is_told_in_milliseconds_of_each_that_succeeded(self) -> None:
        # given an operation a second for 1000 leases, and 2 ms of CPU for it
        cost = cost_of(
            run_of(
                {"a": lambda load: 0.5 + 0.002 * load / 1000}, unit="cores", cost="operations", window=20.0
            )
        )
        # then that is what it costs
        assert (cost.unit, cost.per) == ("CPU-ms", "operation")
        assert [value for _, value in cost.stages] == pytest.approx([2.0] * 5)

    def test_what_makes_things_is_counted_while_a_stage_is_brought_up(self) -> None:
        # given stages of 30 containers each, made within 30 s with one core
        made = stages((30, 60, 90, 120))
        for stage in made:
            stage.histograms = made_stage(1, 1, {"create.ok": [1.0] * 30}).histograms
            stage.held = {}
        run = run_of(
            {"a": lambda load: 0.0}, unit="cores", cost="operations", made=made, window=5.0,
            workload="spawn", load_unit="containers", target=TargetEntry(kind="lxd"),
        )  # fmt: skip
        assert run.resources is not None
        run.resources.figures[0].series[0].values = [
            float(any(stage.begin < t <= (stage.hold_begin or 0) for stage in made)) for t in run.resources.t
        ]
        # then a create takes a second of CPU
        assert [value for _, value in cost_of(run).stages] == pytest.approx([1000.0] * 4)


class TestTrend:
    def test_a_cost_that_grows_is_said_to(self) -> None:
        # given memory that grows with the square of the load
        cost = cost_of(run_of({"a": lambda load: 1e3 * load + 0.5 * load**2}))
        # then it grows by half a MB per 1000 leases for each 1000 more
        assert cost.trend == "grows"
        assert cost.slope == pytest.approx(0.5)
        assert cost.low is not None
        assert cost.high is not None
        assert 0 < cost.low <= cost.slope <= cost.high
        assert cost.sentence.startswith(
            "Memory: 9 MB per 1000 leases at 16,000 leases, 1.5 MB per 1000 leases at 1000"
        )
        assert "it grows" in cost.sentence

    def test_a_fixed_part_makes_it_fall(self) -> None:
        cost = cost_of(run_of({"a": lambda load: (50e6 if load else 0) + 1e3 * load}))
        assert cost.trend == "falls"

    def test_one_that_goes_up_and_down_is_not_for_certain(self) -> None:
        factors = dict(zip(SIZES, (1.0, 3.0, 1.0, 3.0, 1.0), strict=True))
        cost = cost_of(run_of({"a": lambda load: 1e3 * load * factors.get(int(load), 0.0)}))
        assert cost.trend == "uncertain"
        assert "not for certain" in cost.sentence

    def test_a_change_within_a_tenth_is_none(self) -> None:
        cost = cost_of(run_of({"a": lambda load: load * (1e3 + load / 1000)}))
        assert cost.trend == "constant"

    def test_loads_held_twice_count_once(self) -> None:
        cost = cost_of(run_of({"a": lambda load: 1e3 * load}, made=stages((1000, 2000, 4000, 4000))))
        assert [size for size, _ in cost.stages] == [1000, 2000, 4000]
        assert cost.withheld == "there are 3 loads with samples, and 4 are needed"

    @settings(deadline=None)
    @given(st.permutations([1.0, 1.2, 1.5, 1.9, 2.4]))
    def test_only_an_order_that_chance_hardly_makes_is_a_trend(self, costs: list[float]) -> None:
        # given any order of five costs
        by_size = dict(zip(SIZES, costs, strict=True))
        cost = cost_of(run_of({"a": lambda load: 1e3 * load * by_size.get(int(load), 0.0)}))
        # then it grows or falls only with at most one pair in the wrong order
        wrong = sum(later < earlier for place, earlier in enumerate(costs) for later in costs[place + 1 :])
        expected = "grows" if wrong <= 1 else "falls" if wrong >= 9 else "uncertain"
        assert cost.trend == expected

    @pytest.mark.parametrize("count", [4, 5])
    def test_the_interval_has_the_level_that_it_says(self, count: int) -> None:
        # given all orders of costs that do not depend on the load, each as likely
        sizes = SIZES[:count]
        outside, orders, level = 0, 0, 0.0
        for costs in permutations([1.0, 1.21, 1.5, 1.93, 2.42][:count]):
            by_size = dict(zip(sizes, costs, strict=True))
            run = run_of(
                {"a": lambda load, at=by_size: 1e3 * load * at.get(int(load), 0.0)}, made=stages(sizes)
            )
            cost = cost_of(run)
            assert cost.low is not None
            assert cost.high is not None
            assert cost.level is not None
            orders, level = orders + 1, cost.level
            outside += not cost.low <= 0 <= cost.high
        # then it leaves out no slope in as many of them as it says
        assert level >= LEVEL
        assert outside / orders == pytest.approx(1 - level)


class TestWithheld:
    def test_a_run_without_resources_has_no_costs(self) -> None:
        assert costs_of(made_run(stages())) == []

    def test_without_samples_before_stage_1_there_is_none(self) -> None:
        cost = cost_of(run_of({"a": lambda load: load}, begin=65.0))
        assert cost.base is None
        assert cost.stages == []
        assert cost.withheld == "0 samples are there of the 120 s before stage 1"
        assert cost.sentence == f"Memory: withheld, as {cost.withheld}."

    def test_a_stage_in_whose_hold_samples_are_missing_is_left_out(self) -> None:
        # given a host that answered no scrape while most leases were held
        run = run_of({"a": lambda load: None if load == 16000 else 1e3 * load})
        cost = cost_of(run)
        # then that stage is left out, with the reason, and the others are told
        assert [size for size, _ in cost.stages] == [1000, 2000, 4000, 8000]
        assert cost.left_out == [(5, "13 of 13 samples are missing")]

    def test_of_all_hosts_one_in_a_gap_is_enough(self) -> None:
        run = run_of({"a": lambda load: load, "b": lambda load: None if load == 4000 else load})
        assert [number for number, _ in cost_of(run).left_out] == [3]

    def test_a_hold_that_is_shorter_than_a_rates_window_tells_nothing(self) -> None:
        cost = cost_of(run_of({"a": lambda load: load}, unit="bits/s", window=60.0))
        assert len(cost.left_out) == len(SIZES)
        assert cost.left_out[0][1] == "its 60 s have 1 moment that a rate over 60 s tells of"
        assert cost.trend == ""

    def test_a_stage_that_was_cut_or_held_nothing_is_left_out(self) -> None:
        made = stages()
        made[-1].end = None
        made[0].gauges["held"] = 0.0
        made[0].size = 0
        cost = cost_of(run_of({"a": lambda load: load}, made=made))
        assert cost.left_out == [(1, "nothing was held"), (5, "it was not held to its end")]

    def test_a_storm_is_no_load_of_its_own(self) -> None:
        made = stages()
        made[2].kind = "storm"
        assert [size for size, _ in cost_of(run_of({"a": lambda load: load}, made=made)).stages] == [
            1000, 2000, 8000, 16000,
        ]  # fmt: skip

    @settings(deadline=None)
    @given(
        values=st.lists(st.one_of(st.none(), st.floats(-1e12, 1e12)), min_size=0, max_size=120),
        window=st.sampled_from([0.0, 20.0, 600.0]),
        led=st.lists(st.tuples(st.floats(-200, 600), st.sampled_from(["a", "b", ""])), max_size=3),
        unit=st.sampled_from(["bytes", "cores", "ratio", "parsecs"]),
        per=st.sampled_from(["load", "operations"]),
    )
    def test_whatever_was_gathered_there_is_an_answer(
        self,
        values: list[float | None],
        window: float,
        led: list[tuple[float, str]],
        unit: str,
        per: Literal["load", "operations"],
    ) -> None:
        run = run_of({"a": lambda load: load}, window=window, leader=sorted(led), unit=unit, cost=per)
        assert run.resources is not None
        length = len(run.resources.t)
        padded = (values + [None] * length)[:length]
        run.resources.figures[0].series = [
            Series(host="a", values=padded),
            Series(host="b", values=padded[::-1]),
        ]
        for cost in costs_of(run):
            assert bool(cost.withheld) != bool(cost.trend)
            assert "\n" not in cost.sentence
