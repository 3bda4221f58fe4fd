"""Where a run tipped: the knee of each operation, the cliff, storms and the forecast, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tippingpoint.cliff import SIGNIFICANT, Cliff, Load, find_cliff, improbability, loads_of
from tippingpoint.durations import show_us
from tippingpoint.knee import Knee, NoKnee, find_knee
from tippingpoint.latency import costs
from tippingpoint.results import OPERATIONS, RunData
from tippingpoint.usl import Forecast, forecast
from tippingpoint.wording import show_list, show_size

__all__ = ["Cliff", "Forecast", "Knee", "StormOutcome", "Tipping", "find_tipping"]


@dataclass(frozen=True)
class StormOutcome:
    """What happened when everything was claimed at once: one stage of kind storm, one operation."""

    stage: int
    size: int
    operation: str
    attempts: int
    failed: int
    """Lost, timed out or ended in an error."""
    p99_us: int
    """Of successes and failures, at what they cost; microseconds."""
    broke: bool
    """Whether the failures are more than those of the loads before the storm explain."""


@dataclass(frozen=True)
class Tipping:
    """The tipping point of a run, as far as its stages show one."""

    knees: dict[str, Knee]
    """By operation, where latency leaves its plateau."""
    no_knee: dict[str, str]
    """By operation, why no knee was found."""
    cliff: Cliff | None
    storms: list[StormOutcome]
    forecast: Forecast | None
    no_forecast: str
    """Why there is no forecast; empty when there is one."""
    notes: list[str]
    """What the finder saw and did not count: a blip that larger loads did not repeat, a fault on purpose."""
    sentence: str


def find_tipping(run: RunData) -> Tipping:
    """The tipping point of a run; the same run gives the same answer every time.

    Knees and forecast leave out storms and, like the cliff's idea of normal, loads with a fault on purpose.
    """
    loads = loads_of(run)
    clock_known = run.manifest.timeline == "seconds"
    undisturbed = [stage for load in loads if not load.faulted for stage in load.stages]
    knees: dict[str, Knee] = {}
    without: dict[str, NoKnee] = {}
    for operation in OPERATIONS:
        found = find_knee(undisturbed, operation)
        if isinstance(found, Knee):
            knees[operation] = found
        else:
            without[operation] = found
    cliff, notes = find_cliff(loads, clock_known=clock_known)
    predicted = forecast(loads, clock_known=clock_known)
    storms = _storms(run, loads, cliff)
    return Tipping(
        knees=knees,
        no_knee={operation: found.reason for operation, found in without.items()},
        cliff=cliff,
        storms=storms,
        forecast=predicted if isinstance(predicted, Forecast) else None,
        no_forecast=predicted if isinstance(predicted, str) else "",
        notes=notes,
        sentence=_sentence(run.manifest.load_unit, loads, knees, without, cliff, storms),
    )


def _storms(run: RunData, loads: Sequence[Load], cliff: Cliff | None) -> list[StormOutcome]:
    held = [load for load in loads if not load.faulted and (cliff is None or load.size < cliff.first_broken)]
    outcomes: list[StormOutcome] = []
    for stage in run.stages:
        if stage.kind != "storm":
            continue
        for operation in OPERATIONS:
            attempts, failed = stage.attempts(operation), stage.failures(operation)
            if not attempts:
                continue
            chance = improbability(
                failed,
                attempts,
                sum(s.failures(operation) for load in held for s in load.stages),
                sum(load.attempts(operation) for load in held),
            )
            p99 = costs(stage, operation).percentile(99)
            outcomes.append(
                StormOutcome(stage.number, stage.size, operation, attempts, failed, p99, chance < SIGNIFICANT)
            )
    return outcomes


def _sentence(
    unit: str,
    loads: Sequence[Load],
    knees: dict[str, Knee],
    without: dict[str, NoKnee],
    cliff: Cliff | None,
    storms: Sequence[StormOutcome],
) -> str:
    sentences: list[str] = []
    bends = _bends(unit, knees, without)
    if loads:
        sentences.append("; ".join([_cliff_words(unit, loads, cliff), *([bends] if bends else [])]) + ".")
    if cliff is not None and cliff.during_fault:
        sentences.append("A fault was injected there on purpose, so this says little about the load.")
    sentences += [
        _storm_words(unit, [storm for storm in storms if storm.stage == stage])
        for stage in sorted({storm.stage for storm in storms})
    ]
    return " ".join(sentences) or "Nothing was measured."


def _cliff_words(unit: str, loads: Sequence[Load], cliff: Cliff | None) -> str:
    if cliff is None:
        stood = [load.size for load in loads if load.was_held]
        if not stood:
            return f"No load was held to its end, so nothing is known of {show_size(loads[-1].size)} {unit}"
        tried = "the largest tried" if len(loads) > 1 else "the only load tried"
        if stood[-1] != loads[-1].size:
            tried = "the largest held to its end"
        return f"No cliff through {show_size(stood[-1])} {unit} ({tried})"
    broken = show_size(cliff.first_broken)
    if cliff.last_held is None:
        return f"Breaks at {broken} {unit}, the smallest load tried: {cliff.evidence}"
    verb = "Breaks" if cliff.during_fault else "Tips"
    between = f"between {show_size(cliff.last_held)} and {broken} {unit}"
    return f"{verb} {between}: {cliff.evidence} at {broken}"


def _bends(unit: str, knees: dict[str, Knee], without: dict[str, NoKnee]) -> str:
    words: list[str] = []
    for operation in OPERATIONS:
        knee = knees.get(operation)
        if knee is not None:
            if knee.after_size is None:
                where = f"already before {show_size(knee.before_size)} {unit}"
            else:
                where = f"between {show_size(knee.after_size)} and {show_size(knee.before_size)} {unit}"
            grows = f"{show_us(knee.plateau_us)} to {show_us(knee.beyond_us)}"
            words.append(f"{operation} bends {where} ({grows})")
        elif without[operation].on_plateau:
            words.append(f"{operation} stays on its plateau")
    return ", ".join(words)


def _storm_words(unit: str, storms: Sequence[StormOutcome]) -> str:
    failures = [f"{s.failed} of {s.attempts} {s.operation}s failed" for s in storms if s.failed]
    stood = [f"all {s.attempts} {s.operation}s succeeded" for s in storms if not s.failed]
    happened = show_list(failures + stood)
    return f"In the restart storm of {show_size(storms[0].size)} {unit} {happened}."
