"""What figures of Prometheus do to a verdict and to a search."""

from __future__ import annotations

from math import inf, log

import pytest

from tests.unit.made.made_runs import made_run, made_stage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.judged_probe import judge_probe
from tippingpoint.analysis.search.found import found_of
from tippingpoint.analysis.search.probes import Probe
from tippingpoint.analysis.search.searcher import Aim, Searcher
from tippingpoint.analysis.search.stage_margins import margin_names, stage_margins
from tippingpoint.analysis.verdict import Verdict
from tippingpoint.plan.base import Threshold
from tippingpoint.plan.read import Plan, parse_plan
from tippingpoint.report import write_report
from tippingpoint.rundir.figure_values import FigureValue, figure_values
from tippingpoint.rundir.probe_events import ProbeEvent
from tippingpoint.rundir.stages import StageResult

PLAN = """
name: made
stages: [{leases: 1000}, {leases: 2000}]
thresholds:
  - {operation: extend, p99: 1s}
  - {figure: etcd-memory, role: leader, at_most: 300MB}
"""
MEMORY = "etcd-memory of the leader"
LIMIT = Threshold.model_validate({"figure": "etcd-memory", "role": "leader", "at_most": "300MB"})


def stage(number: int, megabytes: float | None, why: str = "", error: float | None = None) -> StageResult:
    made = made_stage(number, 1000 * number, {"claim.ok": [5.0] * 100, "extend.ok": [10.0] * 100})
    value = None if megabytes is None else megabytes * 1e6
    made.figures = {MEMORY: FigureValue(stage=number, name=MEMORY, value=value, error=error, why=why)}
    return made


def judged(*stages: StageResult) -> Verdict:
    return analyse(made_run(stages, plan=PLAN)).verdict


def test_a_figure_above_its_limit_is_a_miss_with_its_unit() -> None:
    verdict = judged(stage(1, 212.0), stage(2, 412.3))
    assert verdict.outcome == "missed"
    assert verdict.sentence == (
        "Missed: etcd-memory of the leader was 412 MB at 2,000 leases (threshold 300 MB); passed up to 1,000 leases."
    )


def test_figures_within_their_limits_are_met_and_reported() -> None:
    run = made_run([stage(1, 212.0), stage(2, 299.0)], plan=PLAN)
    assert analyse(run).verdict.sentence == "Met: both thresholds were met up to 2,000 leases."
    assert "etcd-memory of the leader | figure | ≤ 300 MB | 299 MB" in " ".join(
        write_report(analyse(run), "md").split()
    )
    assert "etcd-memory of the leader" in write_report(analyse(run), "html")


@pytest.mark.parametrize("missing", [1, 2])
def test_a_figure_that_was_not_measured_is_never_met(missing: int) -> None:
    stages = [
        stage(number, None, "Prometheus: connection refused") if number == missing else stage(number, 200.0)
        for number in (1, 2)
    ]
    verdict = judged(*stages)
    assert verdict.outcome == "withheld"
    where = f"at {missing * 1000:,} leases: Prometheus: connection refused"
    assert verdict.sentence.startswith(f"Withheld: etcd-memory of the leader was not measured {where}")


def test_each_stage_without_its_figure_has_its_own_reason() -> None:
    verdict = judged(stage(1, None, "no leader is known"), stage(2, None, "connection refused"))
    assert f"{MEMORY} was not measured at 1,000 leases: no leader is known" in verdict.sentence
    assert f"{MEMORY} was not measured at 2,000 leases: connection refused" in verdict.reasons[-1]


def test_of_a_figure_that_is_not_known_of_all_hosts_only_a_miss_counts() -> None:
    lost = "etcd-2 was not scraped within 30 s"
    assert judged(stage(1, 200.0, lost), stage(2, 200.0)).outcome == "withheld"
    assert judged(stage(1, 400.0, lost), stage(2, 200.0)).outcome == "missed"


def test_a_stage_about_which_prometheus_was_not_asked_is_withheld() -> None:
    asked, not_asked = stage(1, 200.0), stage(2, 200.0)
    not_asked.figures = {}
    assert judged(asked, not_asked).outcome == "withheld"


def test_a_removal_has_no_figures() -> None:
    removal = stage(2, None)
    removal.figures, removal.kind = {}, "destroy"
    assert judged(stage(1, 200.0), removal).outcome == "met"


def test_the_margin_of_a_figure_is_its_distance_from_the_limit() -> None:
    (margin,) = stage_margins(stage(1, 600.0, error=0.02), [LIMIT])
    assert (margin.name, margin.value, margin.error) == (MEMORY, pytest.approx(log(2)), 0.02)
    (unsure,) = stage_margins(stage(1, 600.0), [LIMIT])
    assert unsure.error == inf
    assert stage_margins(stage(1, None, "gone"), [LIMIT]) == []
    # A host that is not known may be beyond a limit that the others meet
    assert stage_margins(stage(1, 200.0, "etcd-2 is gone"), [LIMIT]) == []


def test_limits_of_one_figure_are_told_apart_among_further_thresholds() -> None:
    other = LIMIT.model_copy(update={"at_most": "1GiB"})
    assert margin_names([LIMIT, other], also=True) == [f"{MEMORY} 300MB", f"{MEMORY} 1GiB"]


def plan_of_search() -> Plan:
    return parse_plan(
        PLAN.replace(
            "stages: [{leases: 1000}, {leases: 2000}]",
            "find: {also: [{figure: etcd-memory, at_most: 200MB}]}",
        )
    )


def test_a_probe_whose_figure_is_not_known_says_nothing_and_says_why() -> None:
    plan = plan_of_search()
    run = made_run([stage(1, None, "Prometheus: connection refused")], plan=plan.to_yaml())
    probe = judge_probe(run, plan, 1, plan.thresholds)
    assert probe.held is None
    assert probe.unmeasured == f"{MEMORY} was not measured: Prometheus: connection refused"
    assert probe.strained == ""


def test_a_probe_is_broken_by_a_figure_and_bound_by_it() -> None:
    plan = plan_of_search()
    run = made_run([stage(1, 400.0)], plan=plan.to_yaml())
    probe = judge_probe(run, plan, 1, plan.thresholds)
    event = probe.event(plan, 1, 1000, fresh=True, began=0.0, seconds=10.0)
    assert (event.held, event.binds, event.broken) == (False, MEMORY, [MEMORY])


def test_a_search_without_its_figures_ends_and_does_not_blame_the_generator() -> None:
    searcher = Searcher(Aim(start=1000, limit=8000, resolution=0.2, hold=10, within=None, whole=True))
    probes = 0
    while (ask := searcher.ask(10.0 * probes)) is not None:
        searcher.tell(
            Probe(ask.load, None, (), ask.fresh, 10.0 * probes, 10.0, unmeasured="memory: no answer")
        )
        probes += 1
    assert probes == 3
    assert searcher.answer.ended == "unmeasured"
    assert searcher.answer.withheld == "memory: no answer"


def test_a_generator_that_is_the_limit_is_named_although_a_figure_was_missed_once_before() -> None:
    # given a search whose figure was not measured at its first load, until that was tried again
    searcher = Searcher(Aim(start=1000, limit=64000, resolution=0.2, hold=10, within=None, whole=True))
    searcher.tell(Probe(1000, None, (), True, 0.0, 10.0, unmeasured="memory: no answer"))
    searcher.tell(Probe(1000, True, (), False, 10.0, 10.0))
    # when the generator cannot bring a larger load, thrice
    for begun in (20.0, 30.0, 40.0):
        searcher.tell(Probe(2000, None, (), False, begun, 10.0))
    # then it is what ends the search
    assert searcher.ask(50.0) is None
    assert searcher.answer.ended == "generator"
    assert (
        searcher.answer.withheld == "the generator itself was the bottleneck in all 3 probes of larger loads"
    )


def test_the_answer_names_the_figure_that_binds_with_its_limit() -> None:
    events = [
        {
            "event": "probe",
            "t": number * 10.0,
            **ProbeEvent(
                stage=number,
                size=size,
                held=size < 4000,
                fresh=False,
                margins=[
                    ("extend p99", -2.0, 0.01),
                    (MEMORY, log(size / 4000), 0.01),
                    ("etcd-memory 200MB", log(size / 2000), 0.01),
                ],
                broken=[],
                began=number * 10.0,
                seconds=10.0,
            ).model_dump(),
        }
        for number, size in enumerate([1000, 2000, 4400, 3600, 4100, 3900, 4200, 3800], start=1)
    ]
    plan = plan_of_search()
    found = found_of(made_run([stage(1, 100.0)], plan=plan.to_yaml(), events=events), plan)
    assert found is not None
    assert f": limited by {MEMORY} over 300 MB." in found.sentence
    assert found.answer.low <= 4000 <= found.answer.high
    (further,) = found.further
    assert further.threshold == "etcd-memory over 200 MB"
    assert further.answer.limit == pytest.approx(2000, rel=0.2)


def test_damaged_events_of_figures_are_left_out() -> None:
    good = {"event": "figure", "stage": 1, "name": MEMORY, "value": 1.0}
    assert figure_values([good, {"event": "figure", "stage": "x"}, {"event": "probe"}]) == {
        1: {MEMORY: FigureValue(stage=1, name=MEMORY, value=1.0)}
    }
