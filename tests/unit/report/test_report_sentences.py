"""No sentence of a report contradicts another, or is written as no person writes: over made-up runs of many shapes.

test_report_consistency.py has the same of runs that are read from journals.
"""

from __future__ import annotations

import json
import random

import pytest

from tests.sentences import expect_no_contradiction, expect_readable
from tests.unit.made.made_runs import made_run, made_stage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.knee import NoKnee, find_knee
from tippingpoint.report import write_report
from tippingpoint.rundir.results import RunData

PLAN = """
name: made
target: {{kind: etcd, endpoints: ['http://127.0.0.1:2379']}}
workload: {{kind: claim, units: 1, claim_time: 60s, renew_time: 30s}}
stages: [{stages}]
thresholds: [{thresholds}]
"""
LADDERS = (
    [1, 2, 4, 8, 16],
    [100, 200, 400, 800],
    [100, 100, 100],
    [250, 500, 1000, 2000, 4000, 8000],
    [100, 200, 200, 200, 400],
    [1, 1, 1],
    [12_500, 25_000],
)
THRESHOLDS = (
    "",
    "{operation: claim, p50: 1s}",
    "{operation: extend, p99: 100ms}",
    "{operation: extend, lost_rate: 0.5}, {operation: claim, p99: 10s}",
    "{operation: extend, throughput: 0.1}",
    "{operation: claim, error_rate: 0.0000001}",
)
KINDS = ("healthy",) * 5 + (
    "tail",
    "slow",
    "gone",
    "lost",
    "errors",
    "few lost",
    "fallen",
    "timeouts",
    "queued",
)


def samples(kind: str, size: int, chance: random.Random) -> dict[str, list[float]]:
    """What a stage of so many leases measures, in milliseconds."""
    many = min(400, max(30, 4 * size))
    fine = [2.0 * chance.lognormvariate(0, 0.3) for _ in range(many)]
    ok = {"claim.ok": fine, "extend.ok": fine}
    match kind:
        case (
            "tail"
        ):  # the typical call is as quick as before, and one in twenty takes a hundred times as long
            late = fine[: many * 19 // 20] + [900.0] * (many // 20 + 1)
            return {"claim.ok": late, "extend.ok": late}
        case "slow":
            return {name: [60 * each for each in values] for name, values in ok.items()}
        case "queued":
            return {name: [8 * each for each in values] for name, values in ok.items()}
        case "gone":  # refused at once
            return {"claim.error": [0.001] * many, "extend.error": [0.001] * many}
        case "lost":
            return {"claim.ok": fine, "extend.lost": [60_000.0] * many}
        case "errors":
            return {**ok, "extend.error": [5.0] * (many // 2), "claim.timeout": [5000.0] * (many // 3)}
        case "few lost":
            return {**ok, "extend.lost": [60_000.0] * chance.choice([1, 2, 20])}
        case "fallen":
            return {"claim.ok": fine[:20], "extend.ok": fine[:20]}
        case "timeouts":
            return {"claim.ok": fine, "extend.ok": fine[:3], "extend.timeout": [10_000.0] * many}
        case _:
            return ok


def made(seed: int) -> RunData:
    chance = random.Random(seed)
    sizes = chance.choice(LADDERS)
    kinds = [chance.choice(KINDS) for _ in sizes]
    if chance.random() < 0.4:  # a target that breaks and stays broken
        kinds = sorted(kinds, key=lambda kind: kind != "healthy")
    stages = [
        made_stage(number, size, samples(kind, size, chance))
        for number, (size, kind) in enumerate(zip(sizes, kinds, strict=True), 1)
    ]
    if chance.random() < 0.2:
        stages.append(
            made_stage(len(stages) + 1, sizes[-1], samples("errors", sizes[-1], chance), kind="storm")
        )
    plan = PLAN.format(
        stages=", ".join(f"{{leases: {size}, over: 1s, hold: 30s}}" for size in sizes),
        thresholds=chance.choice(THRESHOLDS),
    )
    return made_run(stages, plan=plan)


@pytest.mark.parametrize("block", range(4))
def test_no_sentence_contradicts_another(block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        run = made(seed)
        analysis = analyse(run)
        document = json.loads(write_report(analysis, "json"))
        try:
            expect_no_contradiction(document, run.stages)
        except AssertionError as contradiction:
            raise AssertionError(f"seed {seed}: {contradiction}") from None


@pytest.mark.parametrize("block", range(4))
def test_every_sentence_is_written_as_people_write(block: int) -> None:
    for seed in range(block * 5, block * 5 + 5):
        analysis = analyse(made(seed))
        expect_readable(analysis)


def test_a_ladder_of_one_load_of_which_a_try_breaks_was_not_held_through_it() -> None:
    # given 100 leases three times, of which the last try fails
    fine, broken = (
        {"claim.ok": [2.0] * 100, "extend.ok": [2.0] * 100},
        {"extend.error": [5.0] * 200, "claim.ok": [2.0] * 50},
    )
    plan = PLAN.format(stages=", ".join(["{leases: 100, over: 1s, hold: 30s}"] * 3), thresholds="")
    analysis = analyse(
        made_run([made_stage(1, 100, fine), made_stage(2, 100, fine), made_stage(3, 100, broken)], plan=plan)
    )
    # then it is not held through
    assert analysis.verdict.sentence.startswith("Missed: 100 leases were not sustained")
    assert "passed up to" not in analysis.verdict.sentence


def test_a_curve_that_ends_where_nothing_succeeds_does_not_bend_to_a_microsecond() -> None:
    stages = [
        made_stage(number, size, {"claim.ok": [ms] * 200} if ms else {"claim.error": [0.001] * 200})
        for number, (size, ms) in enumerate(
            [(100, 2.7), (200, 2.7), (400, 2.8), (800, 20.0), (1600, 0.0), (3200, 0.0)], 1
        )
    ]
    found = find_knee(stages, "claim")
    assert isinstance(found, NoKnee) or found.beyond_us > 2 * found.plateau_us


def test_one_larger_load_that_lost_everything_excuses_no_failure() -> None:
    # given errors at 200, and a load above at which all leases were lost and none had an error
    fine = [2.0] * 200
    stages = [
        made_stage(1, 100, {"claim.ok": fine, "extend.ok": fine}),
        made_stage(2, 200, {"claim.ok": fine, "extend.ok": fine, "extend.error": [5.0] * 100}),
        made_stage(3, 400, {"claim.ok": fine, "extend.lost": [60_000.0] * 400}),
    ]
    tipping = analyse(made_run(stages)).tipping
    assert tipping.cliff is not None
    assert tipping.cliff.first_broken == 200
    assert not any("did not repeat it" in note and "extends" in note for note in tipping.notes)
