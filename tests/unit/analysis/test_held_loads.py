"""Which loads a run held, and that verdict and tipping point say nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.made.made_runs import made_curve, made_run, made_stage
from tests.unit.made.synthetic import MadeGrowth, MadeStage, write_run
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.findings import examine
from tippingpoint.plan.read import parse_plan
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.rundir.stages import StageResult

SIZES = (1000, 2000, 4000)
QUICK = "workload: {kind: claim, renew_time: 1s, claim_time: 20s}\n"
PLAN = (
    "name: made\nstages: [{leases: 1000}, {leases: 2000}, {leases: 4000}]\n"
    "thresholds:\n  - {operation: claim, p99: 100ms}\n"
)


def ladder(top: dict[str, list[float]], sizes: tuple[int, ...] = SIZES) -> list[StageResult]:
    """Stages in which each lease is claimed and extended each second; the last one has samples of its own."""
    stages = [
        made_stage(number, size, {"claim.ok": [5.0] * size, "extend.ok": [2.0] * (30 * size)})
        for number, size in enumerate(sizes, start=1)
    ]
    return [*stages[:-1], made_stage(len(sizes), sizes[-1], {"claim.ok": [5.0] * sizes[-1], **top})]


def told(run: RunData) -> tuple[str, str]:
    return analyse(run).verdict.sentence, analyse(run).tipping.sentence


def test_what_was_held_to_its_end_by_everybody_is_held() -> None:
    run = made_run(ladder({"extend.ok": [2.0] * 120_000}), plan=PLAN + QUICK)
    assert [examine(run).of(stage.number).why_not_held for stage in run.stages] == ["", "", ""]
    assert examine(run).loads_held == [1000, 2000, 4000]
    assert analyse(run).verdict.outcome == "met"


def test_a_stage_in_which_most_operations_failed_was_not_held_whatever_the_thresholds_are() -> None:
    failing = {"extend.ok": [2.0] * 10_000, "extend.error": [1.0] * 40_000}
    run = made_run(ladder(failing), plan=PLAN)
    assert (
        examine(run).of(run.stages[2].number).why_not_held
        == "most of its operations failed (40,000 of 54,000)"
    )
    assert examine(run).loads_held == [1000, 2000]
    verdict, tipping = told(run)
    assert verdict == (
        "Missed: 4,000 leases were not sustained: most of its operations failed (40,000 of 54,000); "
        "passed up to 2,000 leases."
    )
    assert tipping.startswith("Tips between 2,000 and 4,000 leases: 40,000 of 50,000 extends failed at 4,000")


def test_a_target_that_was_gone_for_good_before_the_end_was_not_held() -> None:
    # given a target that answered for 20 of 30 seconds, and a plan that has no limit on errors
    seconds = [float(t) for t in range(60, 90)]
    curves = {
        "extend.ok": made_curve({t: [2.0] * 1000 for t in seconds if t < 80}),
        "extend.error": made_curve({t: [1.0] * 10 for t in seconds if t >= 80}),
    }
    run = made_run(
        ladder({"extend.ok": [2.0] * 60_000, "extend.error": [1.0] * 100}), plan=PLAN, curves=curves
    )
    assert examine(run).of(run.stages[2].number).why_not_held == "nothing succeeded in its last 10 s"
    assert examine(run).loads_held == [1000, 2000]
    assert analyse(run).verdict.outcome == "missed"
    # but not when it was the worker that stood still
    stalled = {"t": 80.0, "event": "stall", "worker": "0", "seconds": 9.5, "cause": "stopped"}
    run.events.append(stalled)
    assert examine(run).of(run.stages[2].number).why_not_held == ""
    # and one that came back was
    curves["extend.ok"] = made_curve({t: [2.0] * 1000 for t in seconds if not 70 <= t < 80})
    assert examine(made_run(run.stages, plan=PLAN, curves=curves)).loads_held == [1000, 2000, 4000]


def test_workers_that_stood_still_at_the_same_time_excuse_a_silence_for_that_time_once() -> None:
    # given a target that fails in the last 10 seconds of a hold, and two workers that stood still for 5 of them
    seconds = [float(t) for t in range(60, 90)]
    curves = {
        "extend.ok": made_curve({t: [2.0] * 1000 for t in seconds if t < 80}),
        "extend.error": made_curve({t: [1.0] * 10 for t in seconds if t >= 80}),
    }
    stalls = [
        {"t": t, "event": "stall", "worker": worker, "seconds": 2.5, "cause": "steal"}
        for worker in ("0", "1")
        for t in (80.0, 85.0)
    ]
    stages = ladder({"extend.ok": [2.0] * 60_000, "extend.error": [1.0] * 100})
    # when the run is analysed
    run = made_run(stages, plan=PLAN, curves=curves, events=stalls)
    # then the silence lasts as long as it is that neither of them explains
    assert examine(run).of(run.stages[2].number).why_not_held == "nothing succeeded in its last 5 s"


@pytest.mark.parametrize(
    ("begin", "end", "inside"),
    [(0.0, 30.0, False), (0.0, 30.1, True), (59.9, 70.0, True), (60.0, 70.0, False), (40.0, 40.1, True)],
)
def test_a_span_of_time_is_in_a_stage_when_a_moment_of_it_is(begin: float, end: float, inside: bool) -> None:
    stage = made_stage(2, 1000, {})
    assert stage.overlaps(begin, end) is inside
    # and one without an end goes on for ever
    stage.end = None
    assert stage.overlaps(begin, end) is (end > stage.begin)


def test_a_stage_whose_leases_were_mostly_not_there_was_not_held() -> None:
    stages = ladder({"extend.ok": [2.0] * 120_000})
    stages[2].gauges["held"] = 1500.0
    run = made_run(stages, plan=PLAN)
    assert examine(run).of(stages[2].number).why_not_held == "only 1,500 of 4,000 leases were present"
    assert analyse(run).tipping.sentence.startswith(
        "Tips between 2,000 and 4,000 leases: only 1,500 of 4,000 leases were present at 4,000"
    )


def interrupted(t: float) -> dict[str, Any]:
    return {"t": t, "event": "interrupted"}


@pytest.mark.parametrize(
    ("hold_begin", "end", "status", "events", "why"),
    [
        (None, 70.0, "interrupted", [interrupted(69.9)], "it was ended before its load was up"),
        (62.0, 80.0, "interrupted", [interrupted(79.9)], "it was ended before its hold was over"),
        (62.0, 80.0, "cut", [], "it was ended before its hold was over"),
        (62.0, None, "cut", [], "it was ended before its hold was over"),
        (60.0, 90.0, "cut", [], ""),  # the next one was not begun, for lack of room
        (60.0, 90.0, "interrupted", [interrupted(90.5)], ""),
        (
            60.0,
            90.0,
            "cut",
            [{"t": 70.0, "event": "worker-cut", "worker": "h-1"}],
            "worker h-1 was cut",
        ),
        (
            60.0,
            90.0,
            "cut",
            [{"t": t, "event": "worker-cut", "worker": name} for t, name in ((70.0, "h-1"), (75.0, "h-2"))],
            "workers h-1 and h-2 were cut",
        ),
    ],
)
def test_a_load_that_was_ended_early_or_was_not_whole_is_not_held(
    hold_begin: float | None, end: float | None, status: Any, events: list[dict[str, Any]], why: str
) -> None:
    stages = ladder({"extend.ok": [2.0] * 120_000})
    stages[2].hold_begin, stages[2].end = hold_begin, end
    run = made_run(stages, plan=PLAN, status=status, events=events)
    assert examine(run).of(stages[2].number).why_not_held == why
    assert examine(run).loads_held == ([1000, 2000] if why else [1000, 2000, 4000])
    if why:
        verdict, tipping = told(run)
        assert verdict.startswith("Withheld: ")
        assert verdict.endswith("; passed up to 2,000 leases.")
        assert tipping.startswith("No sign of tipping up to 2,000 leases (the largest that was sustained)")


def test_a_run_that_was_ended_in_its_first_ramp_held_nothing() -> None:
    stages = [made_stage(1, 200, {"claim.ok": [5.0] * 200})]
    stages[0].hold_begin = None
    run = made_run(stages, plan=PLAN, status="interrupted", events=[interrupted(3.0)])
    verdict, tipping = told(run)
    assert "passed up to" not in verdict
    assert tipping == "No load was sustained. At 200 leases, it was ended before its load was up."


def test_extends_that_are_answered_later_than_they_are_due_again_are_a_cliff_without_any_error() -> None:
    # given leases that are renewed each second, and a target that answers 180 of 4,000 extends a second
    queue = {"extend.ok": [23_000.0] * 5400}
    run = made_run(ladder(queue), plan=PLAN + QUICK)
    # when it is asked which loads were held
    assert examine(run).of(run.stages[2].number).why_not_held == (
        "most of its extends were answered after the next one was due"
    )
    assert (
        examine(run).of(run.stages[2].number).late
        == "throughput below the due rate: 180 of 4,000 extends a second"
    )
    # then that is where it tips, though nothing failed and all thresholds are met
    tipping = analyse(run).tipping
    assert tipping.cliff is not None
    assert (tipping.cliff.by, tipping.cliff.last_held, tipping.cliff.first_broken) == (
        "throughput",
        2000,
        4000,
    )
    assert tipping.point is not None
    assert (tipping.point.by, tipping.point.last_held, tipping.point.first_beyond) == ("cliff", 2000, 4000)
    assert tipping.sentence.startswith(
        "Tips between 2,000 and 4,000 leases: throughput below the due rate: 180 of 4,000 extends a second at 4,000"
    )
    assert analyse(run).verdict.sentence == (
        "Missed: 4,000 leases were not sustained: most of its extends were answered after the next one was due; "
        "passed up to 2,000 leases."
    )


def test_extends_that_only_a_worker_that_stood_still_made_late_are_no_queue() -> None:
    answered = {"extend.ok": [3000.0] * 60_000}
    ours = {"extend.ok-delayed": [3000.0] * 60_000, "extend.ok-freed": [2.0] * 60_000}
    assert examine(made_run(ladder(answered), plan=QUICK + PLAN)).of(ladder(answered)[2].number).late
    assert (
        not examine(made_run(ladder(answered | ours), plan=QUICK + PLAN))
        .of(ladder(answered | ours)[2].number)
        .late
    )


def test_extends_that_were_not_sent_because_a_worker_stood_still_are_no_queue() -> None:
    # given a worker that stood still for most of a hold, and was answered at once before and after that
    few = ladder({"extend.ok": [2.0] * 16_000})
    stalled = {"t": 64.0, "event": "stall", "worker": "0", "seconds": 26.0, "cause": "stopped"}
    assert examine(made_run(few, plan=QUICK + PLAN)).of(few[2].number).late
    run = made_run(few, plan=QUICK + PLAN, events=[stalled])
    assert not examine(run).of(few[2].number).late
    assert analyse(run).tipping.cliff is None


@pytest.mark.parametrize("stood_still", [True, False])
def test_operations_that_were_not_sent_because_a_worker_stood_still_are_no_queue(stood_still: bool) -> None:
    plan = (
        "name: made\ntarget: {kind: etcd}\nworkload: {kind: store, mix: {put: 1}}\n"
        "stages: [{operations: 100, keys: 9, hold: 30s}]\n"
    )
    stalled = {"t": 8.0, "event": "stall", "worker": "0", "seconds": 20.0, "cause": "stopped"}
    stage = made_stage(1, 100, {"put.ok": [2.0] * 1000})
    run = made_run([stage], plan=plan, events=[stalled] if stood_still else [])
    run.manifest.workload = "store"
    assert bool(examine(run).of(1).late) is not stood_still


def test_a_queue_of_a_generator_that_had_no_free_core_is_not_the_targets() -> None:
    stages = ladder({"extend.ok": [23_000.0] * 5400})
    stages[2].gauges["cpu"] = 0.99
    run = made_run(stages, plan=PLAN + QUICK)
    verdict, tipping = analyse(run).verdict, analyse(run).tipping
    assert verdict.outcome == "withheld"
    assert "but a worker used 99 % of its core" in verdict.sentence
    assert tipping.cliff is not None
    assert tipping.cliff.doubt.startswith("a worker used 99 % of its core")
    assert tipping.point is not None
    assert tipping.point.doubt == tipping.cliff.doubt


def test_a_pause_that_the_target_caught_up_with_is_no_queue_that_grows() -> None:
    # given a third of the extends that waited up to eight times their renew time
    waited = [2.0] * 80_000 + [float(ms) for ms in range(1000, 9000)] * 5
    run = made_run(ladder({"extend.ok": waited}), plan=PLAN + QUICK)
    assert examine(run).of(run.stages[2].number).late == ""
    assert examine(run).loads_held == [1000, 2000, 4000]


@pytest.mark.parametrize(
    ("at_the_end", "answering", "held"),
    [(2.0, 3000, True), (4000.0, 3000, False), (2.0, 1000, False)],
    ids=["gone", "there", "a quarter gets through"],
)
def test_a_queue_that_is_gone_at_the_end_of_a_hold_does_not_grow(
    at_the_end: float, answering: int, held: bool
) -> None:
    # given a target that stood still in mid-hold: most that was answered in the stage had waited for that
    seconds = {float(t): [4000.0] * 8000 for t in range(75, 80)} | {
        float(t): [at_the_end] * answering for t in range(80, 90)
    }
    answered = [ms for each in seconds.values() for ms in each]
    run = made_run(
        ladder({"extend.ok": answered}), plan=PLAN + QUICK, curves={"extend.ok": made_curve(seconds)}
    )
    assert (examine(run).of(run.stages[2].number).late == "") is held
    assert examine(run).loads_held == ([1000, 2000, 4000] if held else [1000, 2000])


def test_of_a_size_that_was_tried_again_most_tries_count() -> None:
    good: dict[str, list[float]] = {"claim.ok": [5.0] * 100}
    bad: dict[str, list[float]] = {"claim.error": [5.0] * 100}
    tries = [good, bad, good, bad, bad]
    stages = [made_stage(n, 500, samples) for n, samples in enumerate(tries, start=1)]
    assert examine(made_run(stages[:2])).loads_held == []
    assert examine(made_run(stages[:3])).loads_held == [500]
    assert examine(made_run(stages)).loads_held == []


def test_the_first_of_knee_cliff_and_threshold_is_where_a_target_tips() -> None:
    sizes = [250, 500, 1000, 2000, 4000, 8000]
    typical = dict(zip(sizes, (2.0, 2.0, 2.1, 4.0, 16.0, 65.0), strict=True))

    def run(failing: int, limit: str) -> RunData:
        stages = [
            made_stage(
                number,
                size,
                {"extend.ok": [typical[size]] * 2000, "extend.error": [1.0] * (300 * (size >= failing))},
            )
            for number, size in enumerate(sizes, start=1)
        ]
        listed = ", ".join(f"{{leases: {size}}}" for size in sizes)
        plan = f"name: made\nstages: [{listed}]\nthresholds:\n  - {{operation: extend, p99: {limit}}}\n"
        return made_run(stages, plan=plan)

    def point(tipping: Any) -> tuple[Any, ...]:
        return tipping.point.by, tipping.point.last_held, tipping.point.first_beyond, tipping.point.operation

    knee_first = analyse(run(8000, "30ms")).tipping
    assert point(knee_first) == ("knee", 1000, 2000, "extend")
    assert knee_first.sentence.startswith("Tips between 1,000 and 2,000 leases: extend leaves its plateau (")
    assert "; cliff between 4,000 and 8,000: 300 of 2,300 extends failed; " in knee_first.sentence
    assert "extend p99 was 65 ms (threshold 30 ms) at 8,000" in knee_first.sentence
    cliff_first = analyse(run(1000, "1s")).tipping
    assert point(cliff_first) == ("cliff", 500, 1000, "extend")
    threshold_first = analyse(run(8000, "2050us")).tipping
    assert point(threshold_first) == ("threshold", 500, 1000, "extend")
    assert threshold_first.sentence.startswith(
        "Tips between 500 and 1,000 leases: extend p99 was 2.1 ms (threshold 2.05 ms) at 1,000; "
    )
    assert "no cliff" not in threshold_first.sentence.lower()


def test_a_threshold_that_only_a_storm_missed_is_no_tipping_point_and_not_contradicted() -> None:
    stages = ladder({"extend.ok": [2.0] * 120_000})
    stages.append(made_stage(4, 4000, {"claim.ok": [900.0] * 4000}, kind="storm"))
    run = made_run(stages, plan=PLAN)
    verdict, tipping = told(run)
    assert verdict.startswith("Missed: claim p99 was 900 ms in the storm of 4,000 leases")
    assert analyse(run).tipping.point is None
    assert tipping.startswith("No cliff up to 4,000 leases (the largest tried)")


def test_a_run_directory_of_a_run_that_was_ended_in_mid_hold_held_less(tmp_path: Path) -> None:
    plan = parse_plan("name: made\nstages: [{leases: 100, hold: 8s}, {leases: 200, hold: 30s}]\n")
    run = load_run(
        write_run(
            tmp_path / "run",
            [MadeStage(100), MadeStage(200)],
            plan=plan.model_dump(mode="json"),
            status="cut",
        )
    )
    assert examine(run).loads_held == [100]
    assert examine(run).of(run.stages[1].number).why_not_held == "it was ended before its hold was over"


@pytest.mark.parametrize(
    ("rate", "launch_ms", "over", "why"),
    [
        (2, 2_000.0, 22, ""),  # 40 at two a second, and what the last one takes itself
        (2, 2_000.0, 40, ""),  # in not more than twice the time that the plan gives
        (2, 2_000.0, 100, "throughput below the due rate: 0.457 of 2 things a second"),
        (1, 2_000.0, 200, "throughput below the due rate: 0.229 of 1 thing a second"),
        (2, 70_000.0, 100, ""),  # each takes long: that is no queue
    ],
)
def test_things_that_are_made_later_than_the_plans_rate_has_them_due_are_not_held(
    tmp_path: Path, rate: int, launch_ms: float, over: int, why: str
) -> None:
    plan: dict[str, Any] = {
        "name": "made",
        "target": {"kind": "lxd"},
        "workload": {"kind": "spawn", "rate": rate},
        "stages": [{"groups": 1, "instances": 40, "hold": "10s"}],
        "thresholds": [{"operation": "launch", "p50": "10m"}],
    }
    stage = MadeGrowth(40, 40, {"launch": (launch_ms, 40)}, over=over, hold=10)
    run = load_run(write_run(tmp_path / "run", [stage], plan=plan))
    assert examine(run).of(run.stages[0].number).late == why
    late = "most things were created later than they were due"
    assert examine(run).of(run.stages[0].number).why_not_held == (late if why else "")
    assert examine(run).loads_held == ([] if why else [40])
    verdict, tipping = told(run)
    assert (late in verdict) == bool(why)
    assert ("throughput below the due rate" in tipping) == bool(why)
    assert why in tipping
    assert analyse(run).verdict.outcome == ("missed" if why else "met")
    # and without a rate nothing is due
    plan["workload"] = {"kind": "spawn", "concurrency": 4}
    free = load_run(write_run(tmp_path / "free", [stage], plan=plan))
    assert examine(free).loads_held == [40]


@pytest.mark.parametrize("stood_still", [True, False])
def test_things_that_were_not_asked_for_because_a_worker_stood_still_are_no_queue(
    tmp_path: Path, stood_still: bool
) -> None:
    plan: dict[str, Any] = {
        "name": "made",
        "target": {"kind": "lxd"},
        "workload": {"kind": "spawn", "rate": 2},
        "stages": [{"groups": 1, "instances": 40, "hold": "10s"}],
    }
    stage = MadeGrowth(40, 40, {"launch": (2_000.0, 40)}, over=100, hold=10)
    run = load_run(write_run(tmp_path / "run", [stage], plan=plan))
    if stood_still:
        run.events.append({"t": 2.0, "event": "stall", "worker": "0", "seconds": 40.0, "cause": "stopped"})
    assert bool(examine(run).of(run.stages[0].number).late) is not stood_still


@pytest.mark.parametrize(("answered", "sustained"), [(13, True), (9, False)])
def test_of_a_few_operations_one_at_the_edge_of_a_hold_is_no_queue(answered: int, sustained: bool) -> None:
    """Given a status call every two seconds in a hold of 30 s, when one or two of 15 were not in it, then the load was
    sustained, and when many are missing, it was not."""
    plan = (
        "name: made\ntarget: {kind: juju}\nworkload: {kind: operate, update_status: 0s}\n"
        "stages: [{models: 2, statuses: 0.5, hold: 30s}]\n"
    )
    run = made_run([made_stage(1, 2, {"juju-status.ok": [50.0] * answered})], plan=plan)
    run.manifest.workload = "operate"
    why = examine(run).of(1).why_not_held
    assert (why == "") is sustained, why
