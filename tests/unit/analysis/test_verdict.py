"""What a run amounts to, given its thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.made.lxd_runs import FILL_PLAN, Fill, write_fill
from tests.unit.made.made_runs import made_curve, made_run, made_stage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.enough_calls import calls_needed
from tippingpoint.analysis.generator_health import stage_saturated
from tippingpoint.analysis.thresholds import stage_checks
from tippingpoint.plan.base import Threshold
from tippingpoint.report.sections.cautions import build_cautions
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.rundir.tags import tag

SIZES = (1000, 2000, 4000)


def plan(*thresholds: str, head: str = "stages: [{leases: 1000}, {leases: 2000}, {leases: 4000}]") -> str:
    lines = "".join(f"  - {{{threshold}}}\n" for threshold in thresholds)
    return f"name: made\n{head}\n" + (f"thresholds:\n{lines}" if thresholds else "")


EXTEND_P99 = plan("operation: extend, p99: 100ms")


def ramp(*extend_ms: float) -> list:
    return [
        made_stage(number, size, {"claim.ok": [5.0] * 100, "extend.ok": [ms] * 100})
        for number, (size, ms) in enumerate(zip(SIZES, extend_ms, strict=True), start=1)
    ]


def test_thresholds_that_hold_everywhere_are_met() -> None:
    verdict = analyse(made_run(ramp(10, 20, 30), plan=EXTEND_P99)).verdict
    assert (verdict.outcome, verdict.exit_code) == ("met", 0)
    assert verdict.sentence == "Met: the threshold was met up to 4,000 leases."
    assert [check.met for check in verdict.checks] == [True, True, True]


def of_calls(*calls: int, milliseconds: float = 10.0) -> list:
    """Stages with so many extensions each."""
    return [
        made_stage(number, size, {"claim.ok": [5.0] * 100, "extend.ok": [milliseconds] * count})
        for number, (size, count) in enumerate(zip(SIZES, calls, strict=False), start=1)
    ]


EXTEND_P999 = plan("operation: extend, p999: 100ms")


@pytest.mark.parametrize(("calls", "shown"), [(20, "20"), (999, "999")])
def test_a_p999_of_fewer_calls_than_have_one_beyond_it_is_not_met(calls: int, shown: str) -> None:
    verdict = analyse(made_run(of_calls(5000, 5000, calls), plan=EXTEND_P999)).verdict
    assert (verdict.outcome, verdict.exit_code) == ("withheld", 4)
    assert f"not enough calls to judge p99.9: {shown} of at least 1,000" in verdict.sentence
    assert [check.met for check in verdict.checks] == [True, True, None]


def test_few_calls_at_a_small_load_do_not_matter_where_a_larger_one_shows_it() -> None:
    verdict = analyse(made_run(of_calls(20, 999, 1000), plan=EXTEND_P999)).verdict
    assert verdict.outcome == "met"
    assert [check.met for check in verdict.checks] == [True, True, True]


def test_a_p999_that_is_missed_needs_no_thousand_calls() -> None:
    verdict = analyse(made_run(of_calls(20, milliseconds=200.0), plan=EXTEND_P999)).verdict
    assert verdict.outcome == "missed"


@pytest.mark.parametrize(
    ("percentile", "calls"), [(50.0, 2), (90.0, 10), (95.0, 20), (99.0, 100), (99.9, 1000), (100.0, 1)]
)
def test_a_percentile_needs_calls_of_which_one_is_beyond_it(percentile: float, calls: int) -> None:
    assert calls_needed(percentile) == calls


@pytest.mark.parametrize(
    ("run", "label"),
    [(plan(), "no thresholds"), (EXTEND_P99, "met"), (plan("operation: extend, p99: 1ms"), "missed")],
)
def test_a_run_without_thresholds_is_not_listed_as_met(run: str, label: str) -> None:
    assert analyse(made_run(ramp(10, 20, 30), plan=run)).verdict.label == label


def test_a_miss_is_named_with_what_was_seen_the_limit_and_what_held() -> None:
    verdict = analyse(made_run(ramp(10, 20, 1320), plan=EXTEND_P99)).verdict
    assert (verdict.outcome, verdict.exit_code) == ("missed", 1)
    assert verdict.sentence == (
        "Missed: extend p99 was 1.32 s at 4,000 leases (threshold 100 ms); passed up to 2,000 leases."
    )


def test_an_operation_that_timed_out_does_not_make_a_percentile_look_better() -> None:
    stage = made_stage(1, 1000, {"extend.ok": [10.0] * 95, "extend.timeout": [60_000.0] * 5})
    (check,) = stage_checks(stage, [Threshold.model_validate({"operation": "extend", "p99": "100ms"})])
    assert check.met is False
    assert check.observed == pytest.approx(60e6, rel=0.001)


@given(
    refused=st.lists(st.floats(0.01, 5), min_size=1, max_size=200),
    limit=st.sampled_from(["p50", "p90", "p99"]),
)
def test_quick_refusals_never_improve_a_percentile(refused: list[float], limit: str) -> None:
    answered = {"extend.ok": [20.0, 50.0, 200.0] * 10}
    threshold = [Threshold.model_validate({"operation": "extend", limit: "100ms"})]
    (without,) = stage_checks(made_stage(1, 1000, answered), threshold)
    (with_them,) = stage_checks(made_stage(1, 1000, {**answered, "extend.error": refused}), threshold)
    assert without.observed is not None
    assert with_them.observed is not None
    assert with_them.observed >= without.observed


def test_rates_are_shares_of_all_attempts_and_throughput_is_per_second_held() -> None:
    stage = made_stage(
        1,
        1000,
        {
            "extend.ok": [10.0] * 90,
            "extend.error": [10.0] * 4,
            "extend.timeout": [1000.0] * 4,
            "extend.lost": [10.0] * 2,
            "claim.ok": [5.0] * 10,
            "claim.denied": [5.0] * 90,
        },
    )
    thresholds = [
        Threshold(operation="extend", error_rate=0.05, lost_rate=0.05, throughput=4.0),
        Threshold(operation="claim", error_rate=0.0),
    ]
    seen = {(c.operation, c.limit): (c.observed, c.met) for c in stage_checks(stage, thresholds)}
    assert seen == {
        ("extend", "error_rate"): (pytest.approx(0.08), False),
        ("extend", "lost_rate"): (pytest.approx(0.02), True),
        ("extend", "throughput"): (pytest.approx(3.0), False),
        ("claim", "error_rate"): (0.0, True),
    }


def test_a_threshold_on_an_operation_never_measured_is_not_met() -> None:
    stages = [made_stage(n, size, {"claim.ok": [5.0] * 10}) for n, size in enumerate(SIZES, start=1)]
    verdict = analyse(made_run(stages, plan=EXTEND_P99)).verdict
    assert (verdict.outcome, verdict.exit_code) == ("withheld", 4)
    assert verdict.sentence == "Withheld: extend p99 was not measured at 4,000 leases."
    assert [check.met for check in verdict.checks] == [None, None, None]
    assert "extend p99 was never measured" in verdict.reasons


def test_a_gap_at_a_small_load_is_mentioned_and_does_not_withhold_the_verdict() -> None:
    stages = [made_stage(1, 1000, {"claim.ok": [5.0] * 10}), *ramp(10, 20, 30)[1:]]
    verdict = analyse(made_run(stages, plan=EXTEND_P99)).verdict
    assert verdict.outcome == "met"
    assert verdict.reasons == ["extend p99 was not measured at 1,000 leases"]


def test_throughput_without_a_clock_is_unknown() -> None:
    verdict = analyse(
        made_run(ramp(10, 10, 10), plan=plan("operation: extend, throughput: 1"), timeline="order")
    ).verdict
    assert verdict.outcome == "withheld"


@pytest.mark.parametrize(
    ("samples", "cpu", "said"),
    [
        ({}, 0.97, "a worker used 97 % of its core (tolerated: 90 %)"),
        (
            {"generator.schedule-lag": [400.0] * 10},
            0.2,
            "operations were sent 400 ms late at the 99th percentile (tolerated: 100 ms)",
        ),
        (
            {"generator.loop-lag": [250.0] * 10},
            0.2,
            "the event loop ran 250 ms late at the 99th percentile (tolerated: 100 ms)",
        ),
        ({"generator.loop-lag": [2.0] * 10}, 0.5, None),
    ],
)
def test_a_generator_that_is_the_bottleneck_is_noticed(
    samples: Mapping[str, Sequence[float]], cpu: float, said: str | None
) -> None:
    assert stage_saturated(made_stage(1, 1000, samples, cpu=cpu)) == said


def test_a_miss_where_the_generator_was_the_bottleneck_is_withheld() -> None:
    stages = ramp(10, 20, 1320)
    stages[2].gauges["cpu"] = 0.99
    verdict = analyse(made_run(stages, plan=EXTEND_P99)).verdict
    assert (verdict.outcome, verdict.exit_code) == ("withheld", 4)
    assert verdict.sentence == (
        "Withheld: extend p99 was 1.32 s at 4,000 leases (threshold 100 ms), but a worker used 99 % of its core "
        "(tolerated: 90 %); passed up to 2,000 leases."
    )
    assert verdict.reasons[0].startswith("stage 3 (4,000 leases): the generator itself was strained")


def test_a_miss_elsewhere_is_a_miss_although_the_generator_was_busy_later() -> None:
    stages = ramp(10, 1320, 1320)
    stages[2].gauges["cpu"] = 0.99
    verdict = analyse(made_run(stages, plan=EXTEND_P99)).verdict
    assert verdict.outcome == "missed"
    assert "at 2,000 leases" in verdict.sentence


@pytest.mark.parametrize(("observed", "outcome"), [(120.0, "withheld"), (60_000.0, "missed")])
def test_a_late_generator_explains_only_as_much_as_it_was_late(observed: float, outcome: str) -> None:
    stage = made_stage(
        1, 1000, {"extend.ok": [observed] * 100, "generator.schedule-lag": [400.0] * 10}, cpu=0.5
    )
    assert analyse(made_run([stage], plan=EXTEND_P99)).verdict.outcome == outcome


def test_a_worker_that_was_cut_withholds_what_would_be_met() -> None:
    cut = {"t": 65.0, "event": "worker-cut", "worker": "0"}
    verdict = analyse(made_run(ramp(10, 20, 30), plan=EXTEND_P99, events=[cut], cut=True)).verdict
    assert verdict.outcome == "withheld"
    assert "a worker was cut, so load is missing from 4,000 leases on" in verdict.sentence


def test_an_interrupted_run_is_not_met() -> None:
    verdict = analyse(
        made_run(ramp(10, 20, 30), plan=EXTEND_P99, status="interrupted", reason="Ctrl-C")
    ).verdict
    assert verdict.sentence == "Withheld: the run was interrupted: Ctrl-C; passed up to 4,000 leases."


def test_an_aborted_run_is_missed_whatever_its_stages_show() -> None:
    why = "extend p99 was 2.3 s (threshold 1 s, abort)"
    verdict = analyse(made_run(ramp(10, 20, 30), plan=EXTEND_P99, status="aborted", reason=why)).verdict
    assert (verdict.outcome, verdict.exit_code) == ("missed", 1)
    assert verdict.sentence == f"Missed: aborted: {why}; passed up to 2,000 leases."
    assert verdict.reasons == [f"the run was aborted: {why}"]


def test_a_failed_run_says_why() -> None:
    verdict = analyse(made_run([], plan=EXTEND_P99, status="failed", reason="127.0.0.1:2379 refused")).verdict
    assert (verdict.exit_code, verdict.sentence) == (3, "Failed: 127.0.0.1:2379 refused.")


def test_a_target_that_never_did_what_it_was_asked_failed() -> None:
    stages = [made_stage(1, 1000, {"claim.error": [1.0] * 300})]
    verdict = analyse(made_run(stages, plan=EXTEND_P99)).verdict
    assert (verdict.exit_code, verdict.sentence) == (3, "Failed: none of 300 claims succeeded.")


def test_without_thresholds_there_is_nothing_to_miss() -> None:
    assert analyse(made_run(ramp(10, 20, 30), plan=plan())).verdict.exit_code == 0
    assert analyse(made_run(ramp(10, 20, 30))).verdict.exit_code == 0


def test_without_thresholds_a_load_that_was_not_held_or_made_is_no_success() -> None:
    """Given a plan without thresholds, then what was given up is withheld, and a load that gave way is missed."""
    gave_up = {"t": 5.0, "event": "gave-up", "operation": "add-unit", "error": "quota", "count": 3}
    units = made_run(ramp(10, 20, 30), workload="grow", events=[gave_up])
    assert (analyse(units).verdict.outcome, analyse(units).verdict.exit_code) == ("withheld", 4)
    assert "3 things of stage 1 were given up (add-unit: quota)" in analyse(units).verdict.sentence

    refused = [made_stage(1, 1000, {"claim.ok": [1.0] * 30, "claim.error": [1.0] * 300})]
    verdict = analyse(made_run(refused, plan=plan())).verdict
    assert (verdict.outcome, verdict.exit_code) == ("missed", 1)
    assert "most of its operations failed" in verdict.sentence


def test_a_run_without_stages_is_withheld() -> None:
    verdict = analyse(made_run([], plan=EXTEND_P99, status="interrupted")).verdict
    assert verdict.outcome == "withheld"
    assert [(check.stage, check.met) for check in verdict.checks] == [(None, None)]


def test_a_storm_that_misses_does_not_take_away_what_held() -> None:
    storm = made_stage(4, 4000, {"claim.ok": [9000.0] * 100, "extend.ok": [500.0] * 100}, kind="storm")
    verdict = analyse(made_run([*ramp(10, 20, 30), storm], plan=EXTEND_P99)).verdict
    assert verdict.sentence == (
        "Missed: extend p99 was 500 ms in the storm of 4,000 leases (threshold 100 ms); passed up to 4,000 leases."
    )


def test_a_search_without_any_probe_is_withheld() -> None:
    find = plan("operation: extend, p99: 100ms", head="find: {start: 1000, limit: 8000}")
    verdict = analyse(made_run(ramp(10, 20, 30), plan=find)).verdict
    assert (verdict.outcome, verdict.sentence) == (
        "withheld",
        "Withheld: the search has no answer; passed up to 4,000 leases.",
    )


def late_generator(outcomes: dict[str, list[float]], cpu: float) -> RunData:
    """A stage whose operations were sent 300 ms late, with limits on rates."""
    plan = (
        "name: x\nstages: [{leases: 1000}]\nthresholds: [{operation: extend, error_rate: 0.01, lost_rate: 0}]"
    )
    samples = {**outcomes, "generator.schedule-lag": [300.0] * 1000}
    return made_run([made_stage(1, 1000, samples, cpu=cpu)], plan=plan)


@pytest.mark.parametrize(
    ("outcomes", "cpu", "expected"),
    [
        # an error is an answer of the target, however late the question was
        ({"extend.ok": [5.0] * 900, "extend.error": [400.0] * 100}, 0.2, "missed"),
        # a lease lost after ten seconds is not lost by a third of one
        ({"extend.ok": [5.0] * 900, "extend.lost": [10_000.0] * 100}, 0.2, "missed"),
        # one lost within the generator's own delay may be
        ({"extend.ok": [5.0] * 900, "extend.lost": [350.0] * 100}, 0.2, "withheld"),
        # and without a free core nothing is known
        ({"extend.ok": [5.0] * 900, "extend.lost": [10_000.0] * 100}, 0.97, "withheld"),
    ],
)
def test_a_late_generator_is_blamed_only_for_what_its_lateness_explains(
    outcomes: dict[str, list[float]], cpu: float, expected: str
) -> None:
    assert analyse(late_generator(outcomes, cpu)).verdict.outcome == expected


# ---- lost through our own lateness -----------------------------------------------------------------

NONE_LOST = plan("operation: extend, lost_rate: 0")
CLAIM_P99 = plan("operation: claim, p99: 100ms")


def losing(late_at: float | None, late_ms: float, waited_ms: float, plan: str | None) -> RunData:
    """Four leases lost at 85 s, in the third of three stages; the generator is late once, at `late_at`."""
    samples = {"claim.ok": [5.0] * 100, "extend.ok": [5.0] * 2000, "generator.schedule-lag": [0.2] * 2000}
    stages = [made_stage(n, size, dict(samples)) for n, size in enumerate(SIZES, start=1)]
    lags = {float(t): [0.2] * 70 for t in range(90)}
    if late_at is not None:
        lags[late_at] = [*lags[late_at], late_ms, late_ms]
        samples["generator.schedule-lag"] = [*samples["generator.schedule-lag"], late_ms, late_ms]
    stages[2] = made_stage(3, 4000, {**samples, "extend.lost": [waited_ms] * 4})
    curves = {
        tag("extend", "lost"): made_curve({85.0: [waited_ms] * 4}),
        "generator.schedule-lag": made_curve(lags),
    }
    return made_run(stages, plan=plan, curves=curves)


def test_leases_lost_by_a_target_while_we_were_on_time_are_missed() -> None:
    assert analyse(losing(None, 0, 31_000, NONE_LOST)).verdict.outcome == "missed"


def test_leases_lost_after_seconds_of_our_own_lateness_are_withheld_and_the_verdict_says_so() -> None:
    # given a generator that stood still once, too shortly to show in a percentile of its stage
    run = losing(84.0, 31_000, 31_010, NONE_LOST)
    assert stage_saturated(run.stages[2]) is None
    # when leases were lost right then
    verdict = analyse(run).verdict
    # then nobody else is blamed for it
    assert (verdict.outcome, verdict.exit_code) == ("withheld", 4)
    assert verdict.sentence == (
        "Withheld: extend lost rate was 0.2 % at 4,000 leases (threshold 0 %), but the generator itself was 31 s late "
        "before 4 of 4 losses; passed up to 2,000 leases."
    )


def test_writes_that_the_target_undid_are_no_loss_of_ours() -> None:
    run = losing(84.0, 31_000, 31_010, NONE_LOST)
    run.events.append({"t": run.stages[2].begin + 1, "event": "undone", "count": 4})
    assert analyse(run).verdict.outcome == "missed"


@pytest.mark.parametrize("given_plan", [CLAIM_P99, plan(), None], ids=["claims", "no thresholds", "no plan"])
def test_a_run_that_lost_leases_through_our_own_lateness_is_never_met(given_plan: str | None) -> None:
    verdict = analyse(losing(84.0, 31_000, 31_010, given_plan)).verdict
    assert verdict.outcome == "withheld"
    assert "4 of 4 leases lost at 4,000 leases may be the generator's own loss" in verdict.sentence
    assert analyse(losing(None, 0, 31_000, given_plan)).verdict.outcome == "met"


@pytest.mark.parametrize(
    ("late_at", "late_ms", "waited_ms"),
    [
        (2.0, 31_000, 31_000),  # long before, a claim of a minute ago was renewed meanwhile
        (88.0, 31_000, 31_000),  # afterwards
        (84.0, 150, 31_000),  # a moment, of the half minute that a renewal has
        (84.0, 150, 100),
        (84.0, 5_000, 60_000),  # the loss took far longer than that
    ],
)
def test_lateness_that_cannot_have_lost_the_lease_excuses_nothing(
    late_at: float, late_ms: float, waited_ms: float
) -> None:
    assert analyse(losing(late_at, late_ms, waited_ms, NONE_LOST)).verdict.outcome == "missed"


def test_losses_that_would_be_too_many_without_our_own_are_missed() -> None:
    run = losing(84.0, 31_000, 31_010, plan("operation: extend, lost_rate: 0.002"))
    lost = {85.0: [31_010.0] * 4, 61.0: [31_000.0] * 20}
    run.curves[tag("extend", "lost")] = made_curve(lost)
    run.stages[2] = made_stage(3, 4000, {"extend.ok": [5.0] * 2000, "extend.lost": [31_000.0] * 24})
    verdict = analyse(run).verdict
    assert verdict.outcome == "missed"
    assert any("4 of 24 leases lost" in reason for reason in verdict.reasons)


def test_leases_lost_by_a_strained_generator_are_never_met_either() -> None:
    stage = made_stage(
        1, 1000, {"claim.ok": [5.0] * 100, "extend.ok": [5.0] * 90, "extend.lost": [9.0] * 2}, cpu=0.97
    )
    verdict = analyse(
        made_run([stage], plan=plan("operation: claim, p99: 100ms", head="stages: [{leases: 1000}]"))
    ).verdict
    assert verdict.outcome == "withheld"


# ---- connections, and runs in which things are made -------------------------------------------------

SPAWN = (
    "target: {kind: juju}\nworkload: {kind: grow}\n"
    "stages: [{applications: 1, units: 100}, {applications: 1, units: 200}]"
)


def test_a_target_that_lets_nobody_in_failed() -> None:
    stages = [made_stage(1, 1000, {"connect.error": [1.0] * 300, "connect.limited": [1.0] * 50})]
    verdict = analyse(made_run(stages)).verdict
    assert (verdict.exit_code, verdict.sentence) == (3, "Failed: none of 300 connects succeeded.")


def test_a_run_that_only_came_to_connect_did_not_fail() -> None:
    stages = [made_stage(1, 1000, {"connect.ok": [1.0] * 300})]
    assert analyse(made_run(stages, status="interrupted")).verdict.outcome == "withheld"


def test_a_controller_that_makes_nothing_failed_although_it_tells_its_status() -> None:
    stages = [made_stage(1, 100, {"add-machine.error": [1.0] * 4, "status.ok": [1.0] * 9})]
    verdict = analyse(made_run(stages, workload="grow")).verdict
    assert verdict.sentence == "Failed: none of 4 add-machine calls succeeded."


def test_connections_have_thresholds_like_any_operation() -> None:
    head = "target: {kind: juju}\nstages: [{leases: 1000}]"
    connects = plan("operation: connect, p99: 100ms, error_rate: 0.01, throughput: 5", head=head)
    stage = made_stage(
        1, 1000, {"connect.ok": [50.0] * 200, "connect.error": [9.0] * 4, "claim.ok": [5.0] * 9}
    )
    stage.hold_begin, stage.held = 20.0, {}
    verdict = analyse(made_run([stage], plan=connects)).verdict
    assert {(c.limit, c.met) for c in verdict.checks} == {
        ("p99", True),
        ("error_rate", False),
        ("throughput", True),
    }


def test_what_a_stage_does_not_ask_for_is_no_gap() -> None:
    # given a model whose machines are all made in its first stage, and removed in the last
    stages = [
        made_stage(1, 100, {"add-machine.ok": [5.0] * 10, "add-unit.ok": [5.0] * 100}),
        made_stage(2, 200, {"add-unit.ok": [5.0] * 100}),
        made_stage(3, 200, {"remove-unit.ok": [5.0] * 200}, kind="destroy"),
    ]
    limits = [f"operation: {op}, p99: 1s" for op in ("add-machine", "add-unit", "remove-unit")]
    # when each has a threshold
    verdict = analyse(made_run(stages, plan=plan(*limits, head=SPAWN), workload="grow")).verdict
    # then each is judged where it was asked for
    assert verdict.sentence == "Met: all 3 thresholds were met up to 200 units."
    assert [(c.operation, c.stage) for c in verdict.checks] == [
        ("add-machine", 1),
        ("add-unit", 1),
        ("add-unit", 2),
        ("remove-unit", 3),
    ]
    assert verdict.reasons == []


def test_what_no_stage_asked_for_is_not_met() -> None:
    stages = [made_stage(1, 100, {"add-unit.ok": [5.0] * 100})]
    verdict = analyse(
        made_run(stages, plan=plan("operation: relate, p99: 1s", head=SPAWN), workload="grow")
    ).verdict
    assert verdict.sentence == "Withheld: relate p99 was not measured at 100 units."


def test_a_removal_that_misses_is_named_as_such_and_takes_nothing_from_what_held() -> None:
    stages = [
        made_stage(1, 100, {"add-unit.ok": [5.0] * 100, "status.ok": [5.0] * 9}),
        made_stage(2, 100, {"remove-unit.ok": [5.0] * 100, "status.ok": [2000.0] * 9}, kind="destroy"),
    ]
    verdict = analyse(
        made_run(stages, plan=plan("operation: status, p99: 1s", head=SPAWN), workload="grow")
    ).verdict
    assert verdict.sentence == (
        "Missed: status p99 was 2 s while removing from 100 units (threshold 1 s); passed up to 100 units."
    )


# ---- late because we were late ----------------------------------------------------------------------

STOOD_STILL = plan(
    "operation: extend, p999: 400ms, max: 500ms, error_rate: 0.01, throughput: 60",
    head="stages: [{leases: 100}]",
)


def stalled(
    *,
    waited: list[float],
    own: list[float],
    others: float = 5.0,
    event: dict[str, object] | None = None,
    failed: int = 0,
) -> RunData:
    """3000 extensions in 30 s; some of them waited so long (ms), so much of it for the generator."""
    on_time = [others] * (3000 - len(waited) - failed)
    freed = [of_all - of_us for of_all, of_us in zip(waited, own, strict=True)]
    samples = {
        "extend.ok": [*on_time, *waited],
        "extend.ok-delayed": waited,
        "extend.ok-freed": freed,
        "extend.error": [5.0] * failed,
    }
    stall = {"t": 12.3, "event": "stall", "worker": "0", "seconds": 0.751, "cause": "stopped"}
    events = [stall if event is None else event]
    return made_run([made_stage(1, 100, samples)], plan=STOOD_STILL, events=events)


def test_what_was_late_because_the_generator_stood_still_is_withheld_and_says_so() -> None:
    # given a worker that stood still for 751 ms, too shortly to show in a percentile of the stage
    waited = [float(ms) for ms in range(20, 740, 10)]
    run = stalled(waited=waited, own=[ms - 15 for ms in waited])
    assert stage_saturated(run.stages[0]) is None
    # when it is judged at a percentile and a maximum that this went into
    verdict = analyse(run).verdict
    # then nobody else is blamed for it
    assert (verdict.outcome, verdict.exit_code) == ("withheld", 4)
    assert verdict.sentence == (
        "Withheld: extend p99.9 was 700 ms at 100 leases (threshold 400 ms), but the generator itself was stopped "
        "for 751 ms at 12.3 s: without its own delay it is 15 ms."
    )
    assert [(c.limit, c.met) for c in verdict.checks if c.limit in ("p999", "max")] == [
        ("p999", None),
        ("max", None),
    ]


@pytest.mark.parametrize(
    ("waited", "own"),
    [
        ([8000.0] * 20, [700.0] * 20),  # the target stood still for far longer
        ([700.0] * 20, [100.0] * 20),  # what is ours of it does not explain the miss
        ([700.0] * 20, [0.5] * 20),
    ],
)
def test_a_target_that_was_too_slow_besides_is_missed(waited: list[float], own: list[float]) -> None:
    assert analyse(stalled(waited=waited, own=own)).verdict.outcome == "missed"


def test_a_delay_of_other_operations_than_those_that_were_slow_excuses_nothing() -> None:
    # given extensions that took long, and others that waited for us and were quick all the same
    run = stalled(waited=[300.0] * 20, own=[290.0] * 20)
    run.stages[0].histograms["extend.ok"].add(Histogram.of([700_000] * 9))
    assert analyse(run).verdict.outcome == "missed"


def test_an_error_is_the_targets_even_while_we_stood_still_but_not_when_the_machine_was_suspended() -> None:
    assert analyse(stalled(waited=[], own=[], failed=200)).verdict.outcome == "missed"
    suspended = {"t": 12.3, "event": "stall", "worker": "0", "seconds": 60.0, "cause": "suspend"}
    verdict = analyse(stalled(waited=[], own=[], failed=200, event=suspended)).verdict
    assert verdict.outcome == "withheld"
    assert "the generator itself was suspended with its machine for 60 s at 12.3 s" in verdict.sentence


def test_a_throughput_that_is_too_low_for_as_long_as_we_stood_still_is_withheld() -> None:
    # given half of what was due, in a stage of 30 s of which a worker stood still for 18 s
    event = {"t": 2.0, "event": "stall", "worker": "0", "seconds": 18.0, "cause": "busy"}
    run = stalled(waited=[], own=[], event=event)
    run.stages[0].held = {"extend.ok": Histogram.of([5000] * 1500)}
    assert "busy with its own work for 18 s at 2.0 s" in analyse(run).verdict.sentence
    # when it was far less than that explains
    run.stages[0].held = {"extend.ok": Histogram.of([5000] * 300)}
    assert analyse(run).verdict.outcome == "missed"


def test_of_runs_that_do_not_know_it_by_operation_the_lag_at_the_same_rank_counts() -> None:
    # given a run of before, whose generator was 700 ms late once, for 20 operations
    samples = {
        "extend.ok": [5.0] * 2980 + [700.0] * 20,
        "generator.schedule-lag": [0.2] * 2980 + [695.0] * 20,
    }
    run = made_run([made_stage(1, 100, samples)], plan=STOOD_STILL)
    assert analyse(run).verdict.outcome == "withheld"
    # when it was so late only for one of them
    run.stages[0].histograms["generator.schedule-lag"] = Histogram.of([200] * 2999 + [695_000])
    # then the maximum may be that one, and the percentile is the target's
    assert {c.limit: c.met for c in analyse(run).verdict.checks if c.limit in ("p999", "max")} == {
        "p999": False,
        "max": None,
    }


@pytest.mark.parametrize(("gave_up", "outcome"), [(0, "met"), (3, "withheld")])
def test_a_plan_without_thresholds_is_not_met_where_things_were_given_up(
    tmp_path: Path, gave_up: int, outcome: str
) -> None:
    """Given a plan that sets no threshold, when containers were given up, then it is withheld, and says why."""
    stages = [Fill(20), Fill(40, gave_up=gave_up)]
    plan = {**FILL_PLAN, "thresholds": [], "stages": FILL_PLAN["stages"][:2]}

    verdict = analyse(load_run(write_fill(tmp_path / "run", stages, plan=plan))).verdict

    assert verdict.outcome == outcome
    if gave_up:
        assert verdict.sentence == (
            "Withheld: 3 containers of stage 2 were given up (create: Limit of 10 reached); "
            "passed up to 20 containers."
        )


def test_a_gap_before_a_storm_does_not_deny_what_was_measured_in_the_storm() -> None:
    # Given a storm so early that no lease was to be extended before it
    stages = [
        made_stage(1, 1000, {"claim.ok": [5.0] * 100}),
        made_stage(2, 1000, {"claim.ok": [5.0] * 100, "extend.ok": [5.0] * 100}, kind="storm"),
    ]
    verdict = analyse(made_run(stages, plan=EXTEND_P99)).verdict
    assert verdict.reasons == ["extend p99 was not measured at 1,000 leases before the storm"]


class TestRateLimits:
    """A target that refuses calls until later makes them slow by a setting, not by its load."""

    SETTING = "mostly waiting because of the controller's agent-ratelimit-max (0 lifts it)"

    @staticmethod
    def logins(refused: int, response: float, service: float) -> RunData:
        samples = {
            "connect.ok": [response] * 100,
            "connect.ok.service": [service] * 100,
            "connect.limited": [1.0] * refused,
            "extend.ok": [5.0] * 100,
        }
        chosen = plan("operation: connect, p99: 5s", head="target: {kind: juju}\nstages: [{leases: 1000}]")
        return made_run([made_stage(1, 1000, samples)], plan=chosen, target="juju")

    def test_a_latency_that_is_mostly_such_waiting_is_said_with_the_setting(self) -> None:
        verdict = analyse(self.logins(2227, 67_500.0, 40.0)).verdict
        assert (
            verdict.sentence
            == f"Missed: connect p99 was 67.5 s at 1,000 leases (threshold 5 s; {self.SETTING})."
        )

    def test_a_slow_answer_is_the_targets_own_whatever_was_refused_before(self) -> None:
        verdict = analyse(self.logins(2227, 67_500.0, 60_000.0)).verdict
        assert verdict.sentence == "Missed: connect p99 was 67.5 s at 1,000 leases (threshold 5 s)."

    def test_a_wait_that_no_refusal_explains_is_not_charged_to_the_setting(self) -> None:
        assert "agent-ratelimit-max" not in analyse(self.logins(0, 67_500.0, 40.0)).verdict.sentence

    def test_without_a_threshold_it_is_a_caution(self) -> None:
        analysis = analyse(self.logins(2227, 4_000.0, 40.0))
        assert analysis.verdict.outcome == "met"
        assert build_cautions(analysis) == [
            "connect spent most of its time waiting after 2,227 refusals by "
            "the controller's agent-ratelimit-max (0 lifts it)"
        ]
