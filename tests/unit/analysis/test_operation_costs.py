"""What each operation takes of a target, from slices of a run's time: and when that cannot be told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.sliced_runs import HOLD, LOADS, REST, STEP, UP, counts, noisy, sliced_run
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.findings import examine
from tippingpoint.analysis.operation_costs import OperationCost, cpu_costs, operation_costs
from tippingpoint.errors import UserError
from tippingpoint.plan.read import parse_plan
from tippingpoint.rundir.machine import Used
from tippingpoint.rundir.resources import Series
from tippingpoint.rundir.results import RunData


def counts_of(*operations: str) -> list[np.ndarray]:
    return [counts()[operation] for operation in operations]


def cpu(run: RunData) -> dict[str, OperationCost]:
    return cpu_costs(operation_costs(examine(run)))


class TestWhatAnOperationTakes:
    def test_claims_and_extensions_are_told_apart_and_from_the_base(self) -> None:
        found = cpu(sliced_run())
        assert {name: cost.value for name, cost in found.items()} == pytest.approx(
            {"extend": 120e-6, "claim": 300e-6}, rel=0.01
        )
        assert found["extend"].base == pytest.approx(0.05, rel=0.02)
        assert found["extend"].is_told
        assert found["extend"].sentence.startswith("CPU: 120 µs for each extend (95 %: ")

    def test_calls_that_were_late_by_the_generator_count_once(self) -> None:
        # given calls that journals have twice, as they were and without the generator's delay, in some stages
        run = sliced_run()
        curve = run.curves["extend.ok"]
        late = curve.t > 150
        again = type(curve)(*(column[late] for column in vars(curve).values()))
        run.curves |= {f"extend.ok{suffix}": again for suffix in ("-delayed", "-freed", ".service")}
        run.curves["generator.loop-lag"] = curve
        # then each is one call
        assert cpu(run)["extend"].value == pytest.approx(120e-6, rel=0.01)

    def test_what_it_takes_at_each_load_is_told(self) -> None:
        # given a target whose extensions take a quarter more at 8,000 leases than at less
        found = counts()
        more = dict(found)
        last = round(3 * (UP + HOLD))
        heavy = found["extend"].copy()
        heavy[last:] *= 1.25
        run = sliced_run(of_counts={**more, "extend": heavy})
        run.curves["extend.ok"] = sliced_run().curves["extend.ok"]
        # then that is seen
        loads = {load.size: load.value for load in cpu(run)["extend"].loads}
        assert loads == pytest.approx({1000: 120e-6, 2000: 120e-6, 4000: 120e-6, 8000: 150e-6}, rel=0.05)

    @settings(deadline=None, max_examples=10)
    @given(seed=st.integers(0, 1000))
    def test_noise_makes_it_uncertain_and_not_wrong(self, seed: int) -> None:
        cost = cpu(sliced_run(noise=noisy(seed, 0.05)))["extend"]
        assert cost.value == pytest.approx(120e-6, rel=0.12)
        assert cost.low < cost.value < cost.high

    @pytest.mark.parametrize(
        ("unit", "of", "words"),
        [("bytes/s", "bytes", "480 B"), ("bits/s", "bytes", "60 B"), ("count/s", "count", "480")],
    )
    def test_bytes_and_calls_are_told_as_such(self, unit: str, of: str, words: str) -> None:
        run = sliced_run(unit=unit, extend=480, claim=0, base=0)
        (cost,) = [one for one in operation_costs(examine(run)) if one.operation == "extend"]
        assert (cost.unit, cost.show(cost.value)) == (of, words)

    def test_several_figures_of_cpu_time_are_that_of_the_target_together(self) -> None:
        run = sliced_run()
        assert run.resources is not None
        first = run.resources.figures[0]
        run.resources.figures.append(first.model_copy(update={"name": "other-cpu"}))
        assert cpu(run)["extend"].value == pytest.approx(240e-6, rel=0.01)
        assert cpu(run)["extend"].figure == "cpu"

    def test_slices_of_one_scrape_each_are_used_where_they_were_gathered(self) -> None:
        # given rates that are smoothed over a minute, and those of each scrape, which ended 2.5 s before on average
        run, exact = sliced_run(), sliced_run()
        assert run.resources is not None
        assert exact.resources is not None
        figure = run.resources.figures[0]
        figure.slices = figure.series
        figure.series = [Series(host="m1", values=[1.0] * len(run.resources.t))]
        figure.window = 60.0
        run.resources.t = [t + 2.5 for t in run.resources.t]
        figure.slice_lag = 2.5
        # then the latter are what counts
        assert cpu(run)["extend"].value == pytest.approx(cpu(exact)["extend"].value, rel=1e-6)


class TestKernel:
    def with_machine(self, run: RunData) -> RunData:
        """A lab's run: its target's CPU time is known of each second, but for those in which a member restarted."""
        for second, (extends, claims) in enumerate(zip(*counts_of("extend", "claim"), strict=True)):
            run.machine.append(
                Used(
                    t=second + 1.0,
                    seconds=1.0,
                    cpus=1,
                    busy=1.0,
                    ours=0.0,
                    target=None if 100 <= second < 103 else 0.05 + 120e-6 * extends + 3e-4 * claims,
                    steal=0.0,
                    waited=None,
                    stalled={},
                )
            )
        return run

    def test_the_cpu_time_of_a_lab_needs_no_prometheus(self) -> None:
        run = self.with_machine(sliced_run())
        run.resources = None
        found = cpu(run)
        assert {name: cost.value for name, cost in found.items()} == pytest.approx(
            {"extend": 120e-6, "claim": 300e-6}, rel=0.01
        )
        assert found["extend"].sentence.startswith("CPU: 120 µs for each extend (95 %: ")

    def test_it_comes_before_what_prometheus_has(self) -> None:
        run = self.with_machine(sliced_run(extend=999e-6))
        assert cpu(run)["extend"].value == pytest.approx(120e-6, rel=0.01)
        # and no other sentence says something else of the same
        said = [cost.sentence for cost in operation_costs(examine(run)) if cost.operation == "extend"]
        assert len(said) == 1


class TestScrapes:
    def test_missing_scrapes_change_nothing(self) -> None:
        run = sliced_run()
        assert run.resources is not None
        values = run.resources.figures[0].series[0].values
        values[30:34] = [None] * 4
        assert cpu(run)["extend"].value == pytest.approx(120e-6, rel=0.01)


class TestTogether:
    def test_operations_in_a_fixed_ratio_are_told_together_and_it_is_said(self) -> None:
        # given a run in which each extension comes with two lists
        found = counts()
        run = sliced_run(of_counts={**found, "list": 2 * found["extend"]})
        cost = cpu(run)["extend"]
        assert cost.includes == ("list",)
        assert cost.value == pytest.approx(120e-6, rel=0.02)
        assert "list" not in cpu(run)
        assert ", with list (95 %" in cost.sentence

    def test_what_occurs_in_a_few_slices_only_has_no_cost_of_its_own(self) -> None:
        found = counts()
        rare = np.zeros(len(found["extend"]))
        rare[3] = 50
        assert cpu(sliced_run(of_counts={**found, "list": rare})).keys() == {"extend", "claim"}

    def test_a_steady_rate_cannot_be_told_from_the_base(self) -> None:
        found = counts((4000,))
        run = sliced_run(loads=(4000,), of_counts={name: of[30:] for name, of in found.items()})
        assert run.resources is not None
        run.resources.figures[0].series[0].values[: round(REST / STEP) + 1] = [None] * (
            round(REST / STEP) + 1
        )
        (cost,) = operation_costs(examine(run))
        assert cost.withheld
        assert not cost.is_told


class TestLeftOut:
    def test_a_stage_with_a_fault_does_other_work(self) -> None:
        # given a fault in the second stage, in which the target took ten cores
        run = sliced_run()
        assert run.resources is not None
        begin = UP + HOLD
        run.events.append({"t": begin + 30, "event": "fault", "member": "m1", "do": "stop"})
        run.events.append({"t": begin + 40, "event": "fault", "member": "m1", "do": "continue"})
        values = run.resources.figures[0].series[0].values
        for place, t in enumerate(run.resources.t):
            if begin < t <= 2 * begin:
                values[place] = 10.0
        assert cpu(run)["extend"].value == pytest.approx(120e-6, rel=0.01)

    def test_a_short_run_says_how_many_slices_it_lacks(self) -> None:
        run = sliced_run()
        assert run.resources is not None
        run.resources.figures[0].window = 60.0
        (cost,) = operation_costs(examine(run))
        assert cost.withheld == "it takes 12 slices of time, and this run has 7"

    def test_a_run_without_figures_has_none(self) -> None:
        run = sliced_run()
        run.resources = None
        assert analyse(run).operation_costs == []


PLAN = """
name: made
target: {{kind: etcd, endpoints: [http://127.0.0.1:2379]}}
workload: {{claim_time: 60s, renew_time: 5s}}
stages: [{{leases: 1000, hold: 60s}}]
thresholds: [{{operation: extend, cpu: {limit}}}]
"""


class TestThreshold:
    def verdict(self, limit: str, *, known: bool = True, noise: float = 0.01) -> str:
        run = sliced_run(plan=PLAN.format(limit=limit), noise=noisy(3, noise))
        if not known:
            run.resources = None
        return analyse(run).verdict.sentence

    def test_it_is_met_where_every_load_takes_less(self) -> None:
        assert self.verdict("200us") == "Met: the threshold was met up to 8,000 leases."

    def test_it_is_missed_where_the_whole_interval_is_above(self) -> None:
        said = self.verdict("60us")
        assert said.startswith("Missed: extend CPU ")
        assert "threshold 60 µs" in said

    def test_what_may_be_within_it_is_not_judged(self) -> None:
        said = self.verdict("118us", noise=0.05)
        assert said.startswith("Withheld: extend CPU ")
        assert "it may be " in said

    def test_a_cost_with_that_of_another_operation_does_not_miss_it(self) -> None:
        # given extensions that each come with a list
        found = counts()
        run = sliced_run(plan=PLAN.format(limit="60us"), of_counts={**found, "list": found["extend"]})
        said = analyse(run).verdict.sentence
        assert said.startswith("Withheld: extend CPU ")
        assert "that includes list" in said
        # but what both take is enough to meet it
        run = sliced_run(plan=PLAN.format(limit="200us"), of_counts={**found, "list": found["extend"]})
        assert analyse(run).verdict.sentence.startswith("Met: ")

    def test_the_mean_of_all_loads_misses_none_of_them(self) -> None:
        # given slices that are too long to separate four loads
        run = sliced_run(plan=PLAN.format(limit="60us"))
        assert run.resources is not None
        run.resources.figures[0].window = 20.0
        (extend,) = [cost for cost in cpu(run).values() if cost.operation == "extend"]
        assert extend.loads == ()
        said = analyse(run).verdict.sentence
        assert said.startswith("Withheld: extend CPU ")
        assert "that is the mean of all loads" in said

    def test_a_run_of_one_load_has_the_cost_of_that_load(self) -> None:
        extends = counts((4000,))["extend"]
        run = sliced_run(plan=PLAN.format(limit="60us"), loads=(4000,), of_counts={"extend": extends})
        assert [load.size for load in cpu(run)["extend"].loads] == [4000]
        assert analyse(run).verdict.sentence.startswith("Missed: extend CPU ")

    def test_without_figures_it_was_not_measured(self) -> None:
        assert self.verdict("200us", known=False) == "Withheld: extend cpu was not measured at 8,000 leases."


def test_loads_and_sizes_match() -> None:
    assert [load.size for load in cpu(sliced_run())["extend"].loads] == list(LOADS)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            "find: {start: 100, hold: 60s}\nthresholds: [{operation: extend, cpu: 120us}]",
            "thresholds.0.cpu: ",
        ),
        (
            "stages: [{leases: 9, hold: 60s}]\nthresholds: [{operation: extend, cpu: 120us, abort: true}]",
            "abort: true",
        ),
        (
            "stages: [{leases: 9, hold: 60s}]\nafter: recover\nthresholds: [{operation: extend, p99: 1s, cpu: 120us}]",
            "expected no limit of cpu",
        ),
    ],
)
def test_a_limit_that_is_known_only_after_the_run_is_refused_where_one_is_needed_before(
    fields: str, said: str
) -> None:
    plan = PLAN.partition("stages:")[0].format() + fields
    with pytest.raises(UserError, match=said) as refused:
        parse_plan(plan)
    assert "\n" not in str(refused.value)
