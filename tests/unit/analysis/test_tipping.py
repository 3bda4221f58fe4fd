"""Where a made-up run tips, when it is known where it does; and that it does not when it does not.

The seed's own transcript is in test_seed_conclusions.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.made_runs import STAGE_SECONDS, made_curve, made_run, made_stage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.knee import Knee, NoKnee, find_knee
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.stages import StageResult

DOUBLING = [100 * 2**step for step in range(8)]


def curve(
    sizes: list[int],
    typical_ms: Callable[[float], float],
    random: np.random.Generator,
    *,
    samples: int = 300,
    spread: float = 0.6,
    between: float = 0.1,
) -> list[StageResult]:
    """Stages whose claims take `typical_ms` of the size, with log-normal spread within and between stages."""
    stages: list[StageResult] = []
    for number, size in enumerate(sizes, start=1):
        level = typical_ms(size) * np.exp(random.normal(0, between))
        latencies = level * np.exp(random.normal(0, spread, samples))
        stages.append(made_stage(number, size, {"claim.ok": latencies}))
    return stages


def hockey_stick(knee: float, steepness: float) -> Callable[[float], float]:
    return lambda size: 20.0 * max(1.0, size / knee) ** steepness


# -- the knee --------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None, derandomize=True)
@given(place=st.floats(1.5, 5.0), steepness=st.floats(2.0, 4.0), seed=st.integers(0, 10**6))
def test_the_bend_of_a_hockey_stick_is_found_where_it_is(place: float, steepness: float, seed: int) -> None:
    knee = 100 * 2**place
    found = find_knee(curve(DOUBLING, hockey_stick(knee, steepness), np.random.default_rng(seed)), "claim")
    assert isinstance(found, Knee)
    assert found.low <= knee <= found.high
    assert knee / 1.6 <= found.at <= knee * 1.6
    assert found.plateau_us == pytest.approx(20_000, rel=0.35)
    assert found.slope == pytest.approx(steepness, rel=0.35)
    assert found.after_size is not None
    assert found.after_size <= found.at < found.before_size


def test_a_bend_that_only_a_worker_that_stood_still_made_is_none() -> None:
    stages = curve(DOUBLING, hockey_stick(400.0, 2.0), np.random.default_rng(1))
    assert isinstance(find_knee(stages, "claim"), Knee)
    for stage in stages:
        waited = stage.response("claim")
        stage.histograms |= {
            "claim.ok-delayed": waited,
            "claim.ok-freed": Histogram.of(np.full(waited.total, 2000)),
        }
    assert isinstance(find_knee(stages, "claim"), NoKnee)


def test_a_step_to_a_ceiling_is_found_between_the_two_loads_around_it() -> None:
    stages = curve(DOUBLING, lambda size: 20.0 if size <= 800 else 5000.0, np.random.default_rng(1))
    found = find_knee(stages, "claim")
    assert isinstance(found, Knee)
    assert (found.after_size, found.before_size) == (800, 1600)
    assert (found.after_stage, found.before_stage) == (4, 5)
    assert found.low <= 800
    assert found.high >= 1600


def brackets(knee: float, steepness: float, between: float, trials: int) -> list[tuple[int | None, int]]:
    """What knees planted at a load are bracketed by, with stages that differ by so much for no reason."""
    found: list[tuple[int | None, int]] = []
    for seed in range(trials):
        random = np.random.default_rng([seed, int(knee)])
        stages = curve(DOUBLING, hockey_stick(knee, steepness), random, between=between, spread=0.35)
        knees = find_knee(stages, "claim")
        assert isinstance(knees, Knee)
        found.append((knees.after_size, knees.before_size))
    return found


@pytest.mark.parametrize("steepness", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("knee", [400, 800, 1600])
def test_a_load_on_the_plateau_is_the_last_before_its_knee_not_the_first_beyond(
    knee: int, steepness: float
) -> None:
    # given a knee at a load that was measured, and stages that differ by 0, 3 and 8 %
    found = [each for between in (0.0, 0.03, 0.08) for each in brackets(knee, steepness, between, 4)]
    # then its bracket begins there; one stage in eight may stand out by more than the others do
    assert all(after in (knee // 2, knee) for after, _ in found)
    assert sum(after == knee for after, _ in found) >= 10


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    place=st.integers(2, 4),
    share=st.floats(0.2, 0.7),
    steepness=st.floats(1.5, 3.0),
    seed=st.integers(0, 999),
)
def test_a_knee_between_two_loads_is_bracketed_by_them(
    place: int, share: float, steepness: float, seed: int
) -> None:
    knee = DOUBLING[place] * 2**share
    stages = curve(
        DOUBLING, hockey_stick(knee, steepness), np.random.default_rng(seed), between=0.03, spread=0.35
    )
    found = find_knee(stages, "claim")
    assert isinstance(found, Knee)
    assert (found.after_size, found.before_size) == (DOUBLING[place], DOUBLING[place + 1])


def test_a_bend_in_the_last_step_is_bracketed_by_its_loads() -> None:
    stages = curve([100, 200, 400, 800, 1600], hockey_stick(900, 5), np.random.default_rng(2))
    found = find_knee(stages, "claim")
    assert isinstance(found, Knee)
    assert found.low <= 800
    assert found.high >= 1600


@pytest.mark.parametrize("shares", [[0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.98], [0.1, 0.2, 0.4, 0.8, 0.95]])
def test_a_queue_bends_where_its_latency_doubles(shares: list[float]) -> None:
    random = np.random.default_rng(3)
    stages = [
        made_stage(number, int(10_000 * share), {"claim.ok": random.exponential(20 / (1 - share), 2000)})
        for number, share in enumerate(shares, start=1)
    ]
    found = find_knee(stages, "claim")
    assert isinstance(found, Knee)
    assert found.at == pytest.approx(5000, rel=0.15)


def test_few_samples_and_few_stages_are_enough_for_a_plain_bend() -> None:
    random = np.random.default_rng(4)
    trials = 40
    found = [
        find_knee(curve([100, 200, 400, 800, 1600], hockey_stick(400, 3), random, samples=10), "claim")
        for _ in range(trials)
    ]
    knees = [knee for knee in found if isinstance(knee, Knee)]
    assert len(knees) >= 0.8 * trials
    assert sum(knee.low <= 400 <= knee.high for knee in knees) >= 0.9 * len(knees)


SHAPES: dict[str, Callable[[float], float]] = {
    "flat": lambda size: 20.0,
    "creeping": lambda size: 20.0 * size**0.2,
    "in step with the square root": lambda size: size**0.5,
    "in step with the load": lambda size: 0.2 * size,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_curves_without_a_knee_are_not_given_one(shape: str) -> None:
    random = np.random.default_rng(5)
    trials = [
        find_knee(
            curve(DOUBLING[:stages], SHAPES[shape], random, samples=samples, between=between, spread=0.8),
            "claim",
        )
        for stages in (4, 5, 8)
        for samples in (5, 30, 1000)
        for between in (0.1, 0.2)
        for _ in range(6)
    ]
    false_alarms = sum(isinstance(found, Knee) for found in trials)
    assert false_alarms <= 0.03 * len(trials), f"{false_alarms} of {len(trials)}"


@pytest.mark.parametrize(
    ("sizes", "shape", "said"),
    [
        ([100, 200, 400], "flat", "too few loads: 3 with at least 3 claims each, 4 are needed"),
        (DOUBLING, "flat", "the typical latency never left its plateau"),
        (DOUBLING, "in step with the load", "the typical latency grows all the way from 100 to 12,800"),
        ([], "flat", "no load without a fault has at least 3 claims"),
    ],
)
def test_no_knee_comes_with_its_reason(sizes: list[int], shape: str, said: str) -> None:
    found = find_knee(curve(sizes, SHAPES[shape], np.random.default_rng(6)), "claim")
    assert isinstance(found, NoKnee)
    assert found.reason.startswith(said)


def test_a_spike_that_larger_loads_do_not_repeat_is_no_knee() -> None:
    stages = curve(DOUBLING, lambda size: 400.0 if size == 800 else 20.0, np.random.default_rng(7))
    assert isinstance(find_knee(stages, "claim"), NoKnee)


@pytest.mark.parametrize("slow", [200, 800, 6400])
def test_one_slow_load_does_not_hide_a_knee(slow: int) -> None:
    # given a knee at 1600, and one load that is ten times as slow as it should be
    shape = hockey_stick(1600, 2)
    stages = curve(
        DOUBLING, lambda size: shape(size) * (10 if size == slow else 1), np.random.default_rng(11)
    )
    # then the knee is found where it is
    found = find_knee(stages, "claim")
    assert isinstance(found, Knee)
    assert found.low <= 1600 <= found.high
    assert found.at == pytest.approx(1600, rel=0.5)


def test_a_knee_above_which_latency_rises_five_times_is_found_and_held_by_its_interval() -> None:
    knee = 1131.0  # between two loads
    steepness = float(np.log(5) / np.log(DOUBLING[-1] / knee))
    found = [
        find_knee(curve(DOUBLING, hockey_stick(knee, steepness), np.random.default_rng(seed)), "claim")
        for seed in range(30)
    ]
    knees = [each for each in found if isinstance(each, Knee)]
    assert len(knees) >= 26
    assert sum(each.low <= knee <= each.high for each in knees) >= 0.9 * len(knees)


@pytest.mark.parametrize("rise", [5.0, 50.0])
def test_the_interval_of_a_queue_holds_half_of_its_capacity(rise: float) -> None:
    capacity = (rise * DOUBLING[-1] - DOUBLING[0]) / (rise - 1)
    held = 0
    for seed in range(20):
        random = np.random.default_rng([seed, int(rise)])
        stages = [
            made_stage(
                number,
                size,
                {
                    "claim.ok": np.exp(random.normal(0, 0.1))
                    * random.exponential(20 / (1 - size / capacity), 300)
                },
            )
            for number, size in enumerate(DOUBLING, start=1)
        ]
        found = find_knee(stages, "claim")
        assert isinstance(found, Knee)
        held += found.low <= capacity / 2 <= found.high
    assert held >= 18


def test_an_operation_past_its_knee_from_the_first_load_on_is_told_by_the_calls_that_did_not_wait() -> None:
    random = np.random.default_rng(8)
    stages = [
        made_stage(
            number,
            size,
            {
                "claim.ok": np.concatenate(
                    (50 * np.exp(random.normal(0, 0.3, 30)), waiting * np.exp(random.normal(0, 0.1, 70)))
                )
            },
        )
        for number, (size, waiting) in enumerate([(1000, 3000.0), (2000, 4500.0), (4000, 6000.0)], start=1)
    ]
    found = find_knee(stages, "claim")
    assert isinstance(found, Knee)
    assert (found.after_stage, found.before_stage, found.before_size) == (None, 1, 1000)
    assert found.plateau_us == pytest.approx(45_000, rel=0.3)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    levels=st.lists(st.floats(0.001, 3_600_000), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 10**6), min_size=8, max_size=8),
    samples=st.integers(1, 40),
)
def test_whatever_was_measured_has_a_knee_inside_its_loads_or_a_reason(
    levels: list[float], sizes: list[int], samples: int
) -> None:
    stages = [
        made_stage(number, size, {"claim.ok": [level] * samples})
        for number, (level, size) in enumerate(zip(levels, sizes, strict=False), start=1)
    ]
    found = find_knee(stages, "claim")
    if isinstance(found, NoKnee):
        assert found.reason
    else:
        assert found.after_size is not None
        assert min(sizes) <= found.after_size <= found.at < found.before_size <= max(sizes)
        assert found.low <= found.at <= found.high


def test_repeats_of_a_load_are_taken_together_and_order_does_not_matter() -> None:
    stages = curve(DOUBLING, hockey_stick(800, 3), np.random.default_rng(9))
    shuffled = [stages[i] for i in (3, 0, 7, 1, 6, 2, 5, 4)]
    assert find_knee(shuffled, "claim") == find_knee(stages, "claim")


# -- the cliff -------------------------------------------------------------------------------------


def breaking(
    sizes: list[int], failures: dict[int, dict[str, int]], each: int | None = None
) -> list[StageResult]:
    """Stages with one success per lease (or `each` of them), and failures by size and tag."""
    return [
        made_stage(
            number,
            size,
            {
                "claim.ok": [5.0] * (each or size),
                "extend.ok": [5.0] * (each or size),
                **{tag: [100.0] * count for tag, count in failures.get(size, {}).items()},
            },
        )
        for number, size in enumerate(sizes, start=1)
    ]


def test_leases_lost_at_the_largest_loads_are_the_cliff() -> None:
    tipping = analyse(
        made_run(breaking([1000, 2000, 4000, 8000], {4000: {"extend.lost": 40}, 8000: {"extend.lost": 400}}))
    ).tipping
    cliff = tipping.cliff
    assert cliff is not None
    assert (cliff.last_held, cliff.first_broken, cliff.by, cliff.stage) == (2000, 4000, "lost", 3)
    assert cliff.evidence == "40 of 4,040 extends lost"
    assert cliff.confidence > 0.99
    assert tipping.sentence == (
        "Tips between 2,000 and 4,000 leases: 40 of 4,040 extends lost at 4,000; "
        "typical calls of claim and extend stay on their plateaus."
    )


def test_an_operation_that_breaks_without_a_threshold_is_named_where_all_thresholds_are_met() -> None:
    # given leases that are lost at the largest load, and a threshold on claims or on extends
    stages = breaking([1000, 2000, 4000], {4000: {"extend.lost": 40}})
    plan = "name: lost\ntarget: {{kind: etcd}}\nstages: [{{leases: 1000}}]\nthresholds: [{{operation: {}, p99: {}}}]"
    of_claims, of_extends, missed = (
        analyse(made_run(stages, plan=plan.format(operation, limit)))
        for operation, limit in (("claim", "1s"), ("extend", "1s"), ("claim", "1ms"))
    )
    # then "met" and "tips" do not contradict each other
    assert of_claims.verdict.sentence == "Met: the threshold was met up to 4,000 leases."
    assert of_claims.tipping.sentence == (
        "Tips between 2,000 and 4,000 leases: 40 of 4,040 extends lost at 4,000. No threshold is about extend."
    )
    # and a threshold on another limit of the operation is not about its losses
    assert of_extends.tipping.sentence.endswith(" No threshold is about lost extends.")
    # and where that is not so, nothing is said of it
    assert "No threshold" not in missed.tipping.sentence
    # and a load at which a threshold measured nothing is no miss of it
    without = [replace(stage, histograms=_without(stage.histograms, "claim")) for stage in stages[1:]]
    no_more_claims = analyse(made_run([stages[0], *without], plan=plan.format("claim", "1s")))
    assert no_more_claims.tipping.sentence.endswith(" No threshold is about extend.")


def _without(histograms: dict[str, Histogram], operation: str) -> dict[str, Histogram]:
    return {name: found for name, found in histograms.items() if not name.startswith(operation)}


def test_nothing_lost_holds_through_the_largest_load() -> None:
    tipping = analyse(made_run(breaking([1000, 2000, 4000, 16_000], {}))).tipping
    assert tipping.cliff is None
    assert tipping.sentence.startswith("No sign of tipping up to 16,000 leases (the largest tried)")


@pytest.mark.parametrize(("lost", "broke"), [(0, False), (2, True)])
def test_two_lost_leases_among_few_attempts_count(lost: int, broke: bool) -> None:
    stages = breaking([1000, 2000, 4000], {4000: {"extend.lost": lost}}, each=8)
    assert (analyse(made_run(stages)).tipping.cliff is not None) is broke


def test_one_lost_lease_among_thousands_is_chance_and_is_mentioned() -> None:
    tipping = analyse(made_run(breaking([1000, 2000, 4000], {4000: {"extend.lost": 1}}))).tipping
    assert tipping.cliff is None
    assert tipping.notes == ["1 of 4,001 extends lost at 4,000: no more than chance explains"]


def test_what_fails_from_the_smallest_load_on_has_no_load_that_held() -> None:
    sizes = [1000, 2000, 4000]
    tipping = analyse(
        made_run(breaking(sizes, {size: {"claim.error": size // 50} for size in sizes}))
    ).tipping
    assert tipping.cliff is not None
    assert (tipping.cliff.last_held, tipping.cliff.first_broken) == (None, 1000)
    assert tipping.sentence.startswith(
        "Reaches a cliff at 1,000 leases, the smallest load tried: 20 of 1,020 claims failed"
    )


def test_a_blip_that_larger_loads_do_not_repeat_is_no_cliff_and_is_mentioned() -> None:
    tipping = analyse(made_run(breaking([1000, 2000, 4000, 8000], {2000: {"claim.timeout": 60}}))).tipping
    assert tipping.cliff is None
    assert tipping.notes == ["60 of 2,060 claims failed at 2,000: larger loads did not repeat it"]


def test_a_larger_load_with_hardly_any_attempts_does_not_undo_a_cliff() -> None:
    stages = breaking([1000, 2000], {2000: {"claim.timeout": 60}})
    stages.append(made_stage(3, 4000, {"claim.ok": [5.0] * 3}))
    cliff = analyse(made_run(stages)).tipping.cliff
    assert cliff is not None
    assert cliff.first_broken == 2000


def fault(stage: int, do: str, offset: float) -> dict[str, Any]:
    return {"t": (stage - 1) * STAGE_SECONDS + offset, "event": "fault", "do": do, "member": "m1"}


def test_failures_under_a_fault_made_on_purpose_are_not_called_the_targets_cliff() -> None:
    stages = breaking([1000, 2000, 4000], {4000: {"claim.error": 900}})
    run = made_run(stages, events=[fault(3, "kill", 5), fault(3, "start", 15)])
    tipping = analyse(run).tipping
    assert tipping.cliff is not None
    assert tipping.cliff.during_fault
    assert "A fault was injected on purpose at that load" in tipping.sentence
    assert not tipping.sentence.startswith("Tips")


def test_a_fault_that_larger_loads_get_over_is_no_cliff() -> None:
    stages = breaking([1000, 2000, 4000], {2000: {"claim.error": 900}})
    run = made_run(stages, events=[fault(2, "kill", 5), fault(2, "start", 15)])
    tipping = analyse(run).tipping
    assert tipping.cliff is None
    assert tipping.notes == [
        "900 of 2,900 claims failed at 2,000 during an injected fault: larger loads did not repeat it"
    ]


def test_a_cliff_without_a_fault_is_named_before_one_with() -> None:
    stages = breaking([1000, 2000, 4000], {2000: {"claim.error": 900}, 4000: {"claim.error": 3000}})
    run = made_run(stages, events=[fault(2, "kill", 5), fault(2, "start", 15)])
    cliff = analyse(run).tipping.cliff
    assert cliff is not None
    assert (cliff.first_broken, cliff.during_fault) == (4000, False)


def test_throughput_that_falls_and_does_not_come_back_is_a_cliff() -> None:
    counts = {1000: 3000, 2000: 6000, 4000: 12_000, 8000: 4000}
    stages = [
        made_stage(number, size, {"extend.ok": [5.0] * count})
        for number, (size, count) in enumerate(counts.items(), start=1)
    ]
    cliff = analyse(made_run(stages)).tipping.cliff
    assert cliff is not None
    assert (cliff.by, cliff.last_held, cliff.first_broken) == ("throughput", 4000, 8000)
    assert cliff.evidence == "throughput fell from 400/s to 133/s"
    assert analyse(made_run(stages, timeline="order")).tipping.cliff is None


def test_a_threshold_on_the_throughput_of_connections_is_none_on_that_of_the_load() -> None:
    counts = {1000: 3000, 2000: 6000, 4000: 12_000, 8000: 4000}
    stages = [
        made_stage(number, size, {"extend.ok": [5.0] * count, "connect.ok": [5.0] * count})
        for number, (size, count) in enumerate(counts.items(), start=1)
    ]
    plan = "name: t\ntarget: {{kind: juju}}\nstages: [{{leases: 1000}}]\nthresholds: "
    plan += "[{{operation: {}, throughput: 1}}, {{operation: extend, p99: 1s}}]"
    of_connections, of_load = (
        analyse(made_run(stages, plan=plan.format(operation))) for operation in ("connect", "extend")
    )
    assert of_connections.tipping.sentence.endswith(" No threshold is about throughput.")
    assert of_load.tipping.sentence.endswith(" The thresholds allow that.")


# -- storms ----------------------------------------------------------------------------------------


def test_what_a_storm_broke_is_told_and_is_no_cliff() -> None:
    storm = made_stage(
        4,
        4000,
        {"claim.ok": [900.0] * 30, "claim.timeout": [60_000.0] * 10, "extend.ok": [20.0] * 50},
        "storm",
    )
    tipping = analyse(made_run([*breaking([1000, 2000, 4000], {}), storm])).tipping
    assert tipping.cliff is None
    claim, extend = tipping.storms
    assert (claim.operation, claim.attempts, claim.failed, claim.broke) == ("claim", 40, 10, True)
    assert claim.p99_us == pytest.approx(60e6, rel=0.001)
    assert (extend.operation, extend.failed, extend.broke) == ("extend", 0, False)
    assert tipping.sentence.endswith(
        "In the restart storm of 4,000 leases 10 of 40 claims failed and all 50 extends succeeded."
    )


def test_a_run_without_stages_says_so() -> None:
    assert analyse(made_run([])).tipping.sentence == "Nothing was measured."


def test_the_same_run_gives_the_same_answer() -> None:
    run = made_run(curve(DOUBLING, hockey_stick(1000, 2), np.random.default_rng(10)))
    assert analyse(run).tipping == analyse(run).tipping


# -- the forecast ----------------------------------------------------------------------------------


def serving(sizes: list[int], per_second: Callable[[float], float], seed: int) -> list[StageResult]:
    random = np.random.default_rng(seed)
    return [
        made_stage(number, size, {"extend.ok": [5.0] * random.poisson(per_second(size) * STAGE_SECONDS)})
        for number, size in enumerate(sizes, start=1)
    ]


def law(rate: float, sigma: float, kappa: float) -> Callable[[float], float]:
    def throughput(size: float) -> float:
        n = size / 100
        return rate * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))

    return throughput


@pytest.mark.parametrize(("sigma", "kappa"), [(0.02, 0.0005), (0.0, 0.001), (0.05, 0.002)])
def test_the_scalability_law_finds_the_peak_it_was_made_with(sigma: float, kappa: float) -> None:
    stages = serving([100 * 2**step for step in range(7)], law(30, sigma, kappa), seed=11)
    found = analyse(made_run(stages)).tipping.forecast
    assert found is not None
    peak = 100 * np.sqrt((1 - sigma) / kappa)
    assert found.peak_load is not None
    assert found.peak_low is not None
    assert found.peak_high is not None
    assert found.peak_load == pytest.approx(peak, rel=0.1)
    assert found.peak_low <= peak <= found.peak_high
    assert found.throughput_low <= law(30, sigma, kappa)(peak) <= found.throughput_high
    assert found.largest_measured == 6400


def test_throughput_that_only_levels_off_has_a_largest_value_and_no_peak() -> None:
    found = analyse(
        made_run(serving([100 * 2**step for step in range(7)], law(30, 0.1, 0), seed=12))
    ).tipping.forecast
    assert found is not None
    assert (found.peak_load, found.kappa) == (None, 0.0)
    assert found.throughput_low <= 300 <= found.throughput_high


@pytest.mark.parametrize(
    ("steps", "timeline", "said"),
    [
        (7, "seconds", "no saturation seen"),
        (3, "seconds", "too few loads with throughput: 3, 4 are needed"),
        (7, "order", "the source gives no common clock"),
    ],
)
def test_no_forecast_comes_with_its_reason(steps: int, timeline: Any, said: str) -> None:
    stages = serving([100 * 2**step for step in range(steps)], law(30, 0, 0), seed=13)
    tipping = analyse(made_run(stages, timeline=timeline)).tipping
    assert tipping.forecast is None
    assert tipping.no_forecast.startswith(said)


# -- connections, and runs in which things are made ------------------------------------------------


def test_connections_that_fail_are_a_cliff_of_their_own() -> None:
    stages = [
        made_stage(
            number,
            size,
            {"connect.ok": [30.0] * 3 * size, "connect.error": [10.0] * failed, "claim.ok": [5.0] * size},
        )
        for number, (size, failed) in enumerate([(1000, 0), (2000, 0), (4000, 600)], start=1)
    ]
    cliff = analyse(made_run(stages)).tipping.cliff
    assert cliff is not None
    assert (cliff.first_broken, cliff.evidence) == (4000, "600 of 12,600 connects failed")


def test_connections_are_no_throughput_of_the_load() -> None:
    connects = {1000: 30_000, 2000: 100, 4000: 100}
    stages = [
        made_stage(number, size, {"connect.ok": [5.0] * count, "extend.ok": [5.0] * size})
        for number, (size, count) in enumerate(connects.items(), start=1)
    ]
    assert analyse(made_run(stages)).tipping.cliff is None


def test_leases_lost_through_our_own_lateness_are_not_called_the_targets_cliff() -> None:
    stages = [
        made_stage(number, size, {"extend.ok": [5.0] * size})
        for number, size in enumerate([1000, 2000], start=1)
    ]
    stages.append(made_stage(3, 4000, {"extend.ok": [5.0] * 4000, "extend.lost": [31_000.0] * 90}))
    curves = {"extend.lost": made_curve({85.0: [31_000.0] * 90})}
    late = {"generator.schedule-lag": made_curve({84.0: [31_000.0]})}
    blamed, excused = (
        analyse(made_run(stages, curves=found)).tipping for found in (curves, {**curves, **late})
    )
    assert "says little" not in blamed.sentence
    assert excused.cliff is not None
    assert excused.sentence.endswith(
        "The target may not be the cause: the generator itself was 31 s late before 90 of 90 losses."
    )


def spawned(sizes: list[int], relate_ms: Callable[[float], float], failing: int = 0) -> list[StageResult]:
    random = np.random.default_rng(14)
    made = [
        made_stage(
            number,
            size,
            {
                "add-unit.ok": 20 * np.exp(random.normal(0, 0.3, max(10, 2000 // number))),
                "relate.ok": relate_ms(size) * np.exp(random.normal(0, 0.3, 60)),
                "relate.error": [50.0] * (failing if size == sizes[-1] else 0),
                "full-status.ok": 0.2 * size * np.exp(random.normal(0, 0.3, 60)),
            },
        )
        for number, size in enumerate(sizes, start=1)
    ]
    removal = {
        "remove-unit.ok": [9000.0] * 50,
        "remove-unit.error": [9000.0] * 50,
        "full-status.ok": [9e4] * 9,
    }
    return [*made, made_stage(len(sizes) + 1, sizes[-1], removal, kind="destroy")]


def test_a_spawn_run_has_the_knees_of_its_operations_and_removals_take_no_part() -> None:
    tipping = analyse(made_run(spawned(DOUBLING, hockey_stick(800, 3)), workload="grow")).tipping
    assert set(tipping.knees) == {"relate"}
    assert tipping.knees["relate"].low <= 800 <= tipping.knees["relate"].high
    assert set(tipping.no_knee) == {"add-unit", "full-status"}
    assert tipping.cliff is None
    assert tipping.sentence.startswith("Tips between ")
    assert "relate leaves its plateau" in tipping.sentence
    assert "; no cliff up to 12,800; the typical add-unit call stays on its plateau." in tipping.sentence


def test_how_much_is_made_per_second_is_the_plans_decision_and_neither_cliff_nor_forecast() -> None:
    tipping = analyse(made_run(spawned(DOUBLING, lambda _: 20.0), workload="grow")).tipping
    assert (tipping.cliff, tipping.forecast) == (None, None)
    assert tipping.no_forecast.startswith("the plan sets the rate of creation")


def test_calls_that_fail_while_a_model_grows_are_its_cliff() -> None:
    tipping = analyse(made_run(spawned(DOUBLING, lambda _: 20.0, failing=40), workload="grow")).tipping
    assert tipping.cliff is not None
    assert tipping.cliff.evidence == "40 of 100 relate calls failed"


def test_a_load_of_nothing_is_no_load_of_a_knee() -> None:
    stages = curve([0, *DOUBLING], hockey_stick(800, 3), np.random.default_rng(15))
    assert find_knee(stages, "claim") == find_knee(stages[1:], "claim")
