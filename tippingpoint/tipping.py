"""Where a run tipped: the knee of each operation, the cliff, storms and the forecast, as one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tippingpoint.cliff import SIGNIFICANT, Cliff, Load, find_cliff, improbability, loads_of
from tippingpoint.cluster import Cluster, read_cluster
from tippingpoint.durations import show_us
from tippingpoint.filling import fill_words, fills_of
from tippingpoint.knee import Knee, NoKnee, find_knee
from tippingpoint.latency import costs
from tippingpoint.results import OWN_CALLS, REMOVING, RunData
from tippingpoint.usl import Forecast, forecast
from tippingpoint.wording import show_calls, show_list, show_size

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

    Knees and forecast leave out storms, removals and, like the cliff's idea of normal, loads with a fault on purpose.
    How much is made per second is the plan's decision: only leases, which are renewed for as long as they are
    held, have a throughput that tells of the target. Containers are made as fast as it goes unless a plan has a
    rate: the sentence says whether that fell as there were more of them.
    """
    judged = [operation for operation in run.operations if operation not in OWN_CALLS]
    cluster = read_cluster(run.events)
    loads = loads_of(run)
    claims = run.manifest.workload == "claim"
    clock_known = run.manifest.timeline == "seconds"
    undisturbed = [stage for load in loads if not load.faulted for stage in load.stages]
    bends = {op: find_knee(undisturbed, op) for op in judged if op not in REMOVING}
    cliff, notes = find_cliff(loads, judged, rates_known=clock_known and claims)
    predicted = forecast(loads, clock_known=clock_known) if claims else _NO_THROUGHPUT[run.instances]
    storms = _storms(run, loads, cliff)
    fills = fills_of(run, cluster)
    return Tipping(
        knees={operation: bend for operation, bend in bends.items() if isinstance(bend, Knee)},
        no_knee={operation: bend.reason for operation, bend in bends.items() if isinstance(bend, NoKnee)},
        cliff=cliff,
        storms=storms,
        forecast=predicted if isinstance(predicted, Forecast) else None,
        no_forecast=predicted if isinstance(predicted, str) else "",
        notes=notes,
        sentence=" ".join(
            [
                _sentence(run.manifest.load_unit, loads, bends, cliff, storms),
                *_gone_meanwhile(run, cluster, cliff),
                *(fill_words(fill, len(fills) == 1, run.things) for fill in fills if fill.slower),
            ]
        ),
    )


_NAMED_SINGLY = 2
_NO_THROUGHPUT = {
    False: "the plan decides how much is made per second, so throughput says nothing of the target",
    True: "there is no throughput while a stage is held, as all is made before it is",
}


def _gone_meanwhile(run: RunData, cluster: Cluster, cliff: Cliff | None) -> list[str]:
    """What a reader should know of a cliff at which members were away, though by nobody's plan."""
    if cliff is None or cliff.during_fault:
        return []
    stage = run.stage(cliff.stage)
    gone = cluster.gone(stage.begin, stage.end if stage.end is not None else float("inf"))
    if not gone:
        return []
    who = show_list(gone) if len(gone) <= _NAMED_SINGLY else f"{len(gone)} members"
    return [f"{who} {'was' if len(gone) == 1 else 'were'} away then, so that may be no matter of the load."]


def _storms(run: RunData, loads: Sequence[Load], cliff: Cliff | None) -> list[StormOutcome]:
    held = [load for load in loads if not load.faulted and (cliff is None or load.size < cliff.first_broken)]
    outcomes: list[StormOutcome] = []
    for stage in run.stages:
        if stage.kind != "storm":
            continue
        for operation in run.operations:
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
    bends: Mapping[str, Knee | NoKnee],
    cliff: Cliff | None,
    storms: Sequence[StormOutcome],
) -> str:
    sentences: list[str] = []
    told = _bends(unit, bends)
    if loads:
        sentences.append("; ".join([_cliff_words(unit, loads, cliff), *([told] if told else [])]) + ".")
    if cliff is not None and cliff.during_fault:
        sentences.append("A fault was injected there on purpose, so this says little about the load.")
    if cliff is not None and cliff.doubt:
        sentences.append(f"This says little about the target: {cliff.doubt}.")
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


def _bends(unit: str, bends: Mapping[str, Knee | NoKnee]) -> str:
    words: list[str] = []
    flat = [operation for operation, bend in bends.items() if isinstance(bend, NoKnee) and bend.on_plateau]
    for operation, bend in bends.items():
        if isinstance(bend, Knee):
            if bend.after_size is None:
                where = f"already before {show_size(bend.before_size)} {unit}"
            else:
                where = f"between {show_size(bend.after_size)} and {show_size(bend.before_size)} {unit}"
            grows = f"{show_us(bend.plateau_us)} to {show_us(bend.beyond_us)}"
            words.append(f"{operation} bends {where} ({grows})")
        elif operation in flat and len(flat) <= _NAMED_SINGLY:
            words.append(f"{operation} stays on its plateau")
    if len(flat) > _NAMED_SINGLY:
        words.append(f"{show_list(flat)} stay on their plateaus")
    return ", ".join(words)


def _storm_words(unit: str, storms: Sequence[StormOutcome]) -> str:
    failures = [f"{s.failed} of {s.attempts} {show_calls(s.operation)} failed" for s in storms if s.failed]
    stood = [f"all {s.attempts} {show_calls(s.operation)} succeeded" for s in storms if not s.failed]
    happened = show_list(failures + stood)
    return f"In the restart storm of {show_size(storms[0].size)} {unit} {happened}."
