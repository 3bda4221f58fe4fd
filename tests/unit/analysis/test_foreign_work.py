"""What was missed beside other programs is no result; what held beside them is one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.made.made_runs import STAGE_SECONDS, made_run, made_stage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.foreign_work import EXPLAINS, beside, foreign_work, foreign_work_in
from tippingpoint.analysis.judged_probe import judge_probe
from tippingpoint.plan.base import Threshold
from tippingpoint.plan.read import parse_plan
from tippingpoint.report import RunFormat, write_report
from tippingpoint.report.document import build_document
from tippingpoint.report.sections.cautions import build_cautions
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.machine import Used
from tippingpoint.rundir.results import RunData

PLAN = (
    "name: made\nstages: [{leases: 1000}, {leases: 2000}, {leases: 4000}]\n"
    "thresholds:\n  - {operation: extend, p99: 100ms}\n"
)
SIZES = (1000, 2000, 4000)
FORMATS: list[RunFormat] = ["html", "md", "json"]


def second(t: float, others: float = 0.0, steal: float = 0.0, cpus: int = 1, **more: Any) -> Used:
    """A second in which others, and the hypervisor, took this share of the processors."""
    fields: Mapping[str, Any] = {
        **{"t": t, "seconds": 1.0, "cpus": cpus, "ours": 0.0, "target": 0.25 * cpus, "waited": 0.125},
        **{"busy": (0.25 + others) * cpus, "steal": steal * cpus, "stalled": {}, **more},
    }
    return Used(**fields)


def run_beside(others: Sequence[float], extend_ms: Sequence[float] = (10, 20, 30), **more: Any) -> RunData:
    """A run of three stages, beside which others took these shares of the target's processor."""
    stages = [
        made_stage(number, size, {"claim.ok": [5.0] * 100, "extend.ok": [ms] * 100})
        for number, (size, ms) in enumerate(zip(SIZES, extend_ms, strict=True), start=1)
    ]
    run = made_run(stages, plan=PLAN)
    run.machine = [
        second(STAGE_SECONDS * place + t, share, **more)
        for place, share in enumerate(others)
        for t in range(1, round(STAGE_SECONDS) + 1)
    ]
    return run


def test_the_share_that_others_took_of_a_stage_is_that_of_its_seconds() -> None:
    run = run_beside([0.0, 0.5, 0.125])
    found = [beside(run, stage) for stage in run.stages]
    assert [each.others for each in found if each is not None] == pytest.approx([0.0, 0.5, 0.125])
    assert [each.explains for each in found if each is not None] == [False, True, True]
    assert found[1] is not None
    assert found[1].words == "other programs used 50 % of the target's processor"


def test_what_the_hypervisor_withheld_counts_as_what_others_took() -> None:
    run = run_beside([0.0, 0.0, 0.0], steal=0.25, cpus=2)
    found = beside(run, run.stages[0])
    assert found is not None
    assert found.explains
    assert found.words == "the hypervisor withheld 25 % of the target's processors"


def test_what_is_not_known_of_most_of_a_stage_is_not_known() -> None:
    run = run_beside([0.5, 0.5, 0.5])
    run.machine = [used for used in run.machine if used.t > 20]
    assert beside(run, run.stages[0]) is None
    assert beside(run, run.stages[1]) is not None
    assert foreign_work_in(run, 200.0, 230.0) is None
    run = run_beside([0.5, 0.5, 0.5], target=None)
    assert beside(run, run.stages[0]) is None
    assert foreign_work(run.machine) is None


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=20))
def test_no_share_is_below_nothing(seconds: list[tuple[float, float, float]]) -> None:
    found = foreign_work(
        [second(t, busy=busy, target=target, ours=ours) for t, (busy, target, ours) in enumerate(seconds)]
    )
    assert found is not None
    assert found.others >= 0


def test_a_threshold_missed_beside_others_is_withheld_and_names_them() -> None:
    verdict = analyse(run_beside([0.0, 0.0, 0.5], [10, 20, 200])).verdict
    assert (verdict.outcome, verdict.exit_code) == ("withheld", 4)
    assert verdict.sentence == (
        "Withheld: extend p99 was 200 ms at 4,000 leases (threshold 100 ms), but other programs used 50 % of the "
        "target's processor meanwhile; passed up to 2,000 leases."
    )


def test_a_threshold_missed_with_nobody_beside_is_missed() -> None:
    assert analyse(run_beside([0.5, 0.5, EXPLAINS / 2], [10, 20, 200])).verdict.outcome == "missed"


def test_a_call_is_not_later_for_others_than_the_target_waited_for_a_processor() -> None:
    # given a p99 that is 4 s over its limit, beside others, and a target whose threads waited for 3.75 s in that stage
    assert analyse(run_beside([0.0, 0.0, 0.5], [10, 20, 4100])).verdict.outcome == "missed"
    assert analyse(run_beside([0.0, 0.0, 0.5], [10, 20, 3800])).verdict.outcome == "withheld"
    # and where nobody counted how long it waited
    assert analyse(run_beside([0.0, 0.0, 0.5], [10, 20, 4100], waited=None)).verdict.outcome == "withheld"


@pytest.mark.parametrize(("outcome", "judged"), [("error", "missed"), ("timeout", "withheld")])
def test_an_error_is_an_answer_and_a_timeout_is_not(outcome: str, judged: str) -> None:
    run = run_beside([0.0, 0.0, 0.5])
    failed = Histogram.of(np.full(50, 5000))
    run.stages[-1].histograms[f"extend.{outcome}"] = run.stages[-1].held[f"extend.{outcome}"] = failed
    assert run.manifest.plan is not None
    run.manifest.plan["thresholds"] = [{"operation": "extend", "error_rate": 0.1}]
    assert analyse(run).verdict.outcome == judged


def test_what_a_fault_did_is_not_blamed_on_others() -> None:
    run = run_beside([0.5, 0.5, 0.5], [10, 20, 200])
    run.events = [{"t": 1.5 * STAGE_SECONDS, "event": "fault", "do": "stop", "member": "m1"}]
    assert analyse(run).verdict.outcome == "missed"


def test_what_held_beside_others_holds() -> None:
    analysis = analyse(run_beside([0.5, 0.875, 0.5], [10, 20, 30]))
    assert analysis.verdict.outcome == "met"
    assert build_cautions(analysis) == [
        "other programs used 88 % of the target's processor in stage 2, and no more in 2 other stages, "
        "which could explain a miss there"
    ]


def test_little_beside_a_run_is_not_worth_a_word() -> None:
    assert build_cautions(analyse(run_beside([EXPLAINS / 2] * 3))) == []


@pytest.mark.parametrize(("took", "milliseconds", "held"), [
    (0.5, 10, True), (0.5, 200, None), (0.0, 200, False), (0.0, 10, True),
])  # fmt: skip
def test_a_probe_that_missed_beside_others_says_nothing_and_why(
    took: float, milliseconds: float, held: bool | None
) -> None:
    run = run_beside([took, 0.0, 0.0], [milliseconds, 20, 30])
    plan = parse_plan(PLAN)
    judged = judge_probe(run, plan, 1, [Threshold.model_validate({"operation": "extend", "p99": "100ms"})])
    assert judged.held == held
    assert judged.foreign == (
        "other programs used 50 % of the target's processor meanwhile" if held is None else ""
    )
    event = judged.event(plan, 1, 1000, fresh=True, began=0.0, seconds=30.0)
    assert (event.foreign, event.cut) == (judged.foreign, False)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_says_who_used_the_processors(form: RunFormat) -> None:
    said = write_report(analyse(run_beside([0.0, 0.5, 0.0])), form)
    assert "Of the target" in said
    assert "the target used 25 %, the generator 0 % and other programs 17 %" in said


def test_the_document_has_it_over_time_and_by_stage() -> None:
    found = build_document(analyse(run_beside([0.0, 0.5, 0.0])))["processors"]
    assert found["cpus"] == 1
    assert found["t"][:3] == [1.0, 2.0, 3.0]
    assert found["others"][29:31] == [0.0, 0.5]
    assert found["waited"][0] == 0.5
    assert [(stage["number"], stage["others"], stage["explains"]) for stage in found["stages"]] == [
        (1, 0.0, False), (2, 0.5, True), (3, 0.0, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("others", "steal", "marked"), [(0.5, 0.0, "other programs"), (0.0, 0.5, "withheld by the hypervisor")]
)
def test_the_page_marks_who_could_explain_a_miss(others: float, steal: float, marked: str) -> None:
    page = write_report(analyse(run_beside([0.0, others, 0.0] if others else [0.0], steal=steal)), "html")
    table = page[page.index('aria-label="Processors"') :]
    table = table[: table.index("</table>")]
    headings = re.findall(r"<th>([^<]*)</th>", table)
    rows = [re.findall(r"<td([^>]*)>", row) for row in table.split("<tr>")[2:]]
    bad = {headings[1 + place] for row in rows for place, cell in enumerate(row) if 'class="bad"' in cell}
    assert bad == {marked}


def test_a_run_whose_machine_does_not_tell_has_no_such_part() -> None:
    run = run_beside([])
    assert "processors" not in build_document(analyse(run))
    assert "processor" not in write_report(analyse(run), "md")
