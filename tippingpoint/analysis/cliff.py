"""Finds the cliff: the load from which leases are lost, operations fail, throughput falls, the leader changes, or a
store violates its guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lgamma
from typing import Literal

import numpy as np

from tippingpoint.analysis.fault_spans import lasting_faults
from tippingpoint.analysis.findings import Findings, StageFindings
from tippingpoint.analysis.held_loads import MOST, stood_still
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.tags import tag
from tippingpoint.util.numbers import show_rate
from tippingpoint.util.text import show_calls, show_size

SIGNIFICANT = 0.01
"""The probability below which failures count as breaking, given the smaller loads."""
FLOOR = (0.5, 500.0)
"""The prior for a healthy target: its share of failures is Beta(0.5, 500).

Its mean is one in a thousand, with the weight of half a failure (Jeffreys), so data soon outweigh it. Without any
history, one lease lost in ten attempts counts as breaking, and one in a thousand does not.
"""
FALL = 0.8
"""Throughput has fallen if it is below this share of a smaller load's. Smaller falls are pacing noise."""
_EXPECTED_AGAIN = 3.0
"""A larger load contradicts a break if at least this many failures were expected there: exp(-3) is 5 %."""
_FAR_FEWER = 0.2
"""Fewer than this share of the expected failures counts as far fewer."""

Breakage = Literal["violation", "leader", "lost", "error", "throughput"]


@dataclass(frozen=True)
class Cliff:
    """The load from which the target breaks and does not recover at any higher load."""

    last_held: float | None
    """The largest load below the cliff that was held; None without one."""
    first_broken: float
    """The size of the stage that broke."""
    by: Breakage
    """How it broke: a store violated its guarantees, the leader changed or a controller ended without a fault, leases
    were lost, operations failed (errors and timeouts), or throughput fell or was below the due rate."""
    evidence: str
    """The evidence in a few words: "2 of 11 extends lost"."""
    stage: int
    """The number of the stage that broke."""
    confidence: float
    """1 minus the probability of this evidence by chance, if nothing had changed since the smaller stages."""
    operation: str = ""
    """The operation that was lost or failed; empty if the workload as a whole was."""
    during_fault: bool = False
    """Whether a fault was injected during the stage; the break then says little about the load."""
    doubt: str = ""
    """Why the generator itself may be the cause; the break then says little about the target."""


@dataclass(frozen=True)
class Load:
    """All stages of one size, taken together."""

    size: float
    stages: list[StageResult]
    faulted: bool
    load_missing: bool
    """Whether a worker was cut off before the end of a stage."""
    was_held: bool
    """Whether the load was held; see findings.loads_held."""
    own_load: tuple[str, ...]
    """The operations whose throughput counts: those of the workload's own load."""
    doubt: str
    """Why the generator itself may have lost leases; empty if it did not."""
    failed_to_hold: tuple[Breakage, str] | None
    """How the target broke in most stages, and the evidence; None if it held them (see held_loads.py)."""
    stood_still: float
    """Seconds of the holds in which a worker stood still: what was due meanwhile was not asked of the target then."""
    not_its_doing: str
    """Why something other than the target may be the cause; see StageFindings.not_its_doing."""
    violated: str
    """The evidence that a store violated its guarantees in any stage of this size."""
    leader_changed: str
    """The evidence of a new leader or an ended controller without a fault in one of its stages; see leaders.py."""

    def failed(self, operation: str, by: Breakage) -> int:
        """Count the losses of an operation, or its errors and timeouts."""
        outcomes = ("lost",) if by == "lost" else ("error", "timeout")
        return sum(stage.count(operation, outcome) for stage in self.stages for outcome in outcomes)

    def attempts(self, operation: str) -> int:
        """Count the operations that ended, with any outcome."""
        return sum(stage.attempts(operation) for stage in self.stages)

    def held(self) -> tuple[int, float]:
        """Return the successes of the load's own operations during the holds, and the seconds of these holds."""
        seconds = 0.0
        successes = 0
        for stage in self.stages:
            if stage.hold_begin is not None and stage.end is not None:
                seconds += stage.end - stage.hold_begin
                successes += sum(stage.held.get(tag(op), Histogram()).total for op in self.own_load)
        return successes, seconds


def loads_of(findings: Findings) -> list[Load]:
    """Return the loads of a run in ascending order, without storms and removals.

    If a size was tried with and without a fault, only the stages without one are kept.
    """
    run = findings.run
    faults = lasting_faults(run.events)
    found: dict[float, dict[bool, list[StageFindings]]] = {}
    for each in findings.stages:
        stage = each.stage
        if stage.is_step:
            faulted = any(stage.overlaps(fault.begin, fault.until) for fault in faults)
            found.setdefault(stage.size, {}).setdefault(faulted, []).append(each)
    loads: list[Load] = []
    for size in sorted(found):
        faulted = False not in found[size]
        stages = found[size][faulted]
        whole = [each for each in stages if not each.cut_short]
        gave = [each for each in whole if each.failed_to_hold]
        how: tuple[Breakage, str] | None = None
        excuse = ""
        if len(gave) >= MOST * len(whole) and gave:
            first = gave[0]
            how = ("throughput", first.late) if first.late else ("error", first.failed_to_hold)
            excuse = first.not_its_doing
        loads.append(
            Load(
                size=size,
                stages=[each.stage for each in stages],
                faulted=faulted,
                load_missing=any(each.load_missing for each in stages),
                was_held=size in findings.loads_held,
                own_load=run.own_load,
                doubt=next((each.own_losses.why for each in stages if each.own_losses), ""),
                failed_to_hold=how,
                stood_still=sum(map(_stood_still, stages)),
                not_its_doing=excuse,
                violated=next(
                    (each.violated for tries in found[size].values() for each in tries if each.violated), ""
                ),
                leader_changed=next((each.leader_changed for each in stages if each.leader_changed), ""),
            )
        )
    return loads


def find_cliff(
    loads: Sequence[Load], operations: Sequence[str], *, rates_known: bool
) -> tuple[Cliff | None, list[str]]:
    """Return the cliff, and one line for each failure that does not count as a cliff.

    A load breaks if its failures are improbable (SIGNIFICANT) given those of all smaller loads without a fault. It is
    the cliff unless a larger load shows that the target recovered. `rates_known` is False if throughput says nothing
    about the target, because there is no clock or the plan alone decides the rate.
    """
    notes: list[str] = []
    cliffs: list[Cliff] = []
    for operation in operations:
        for by in ("lost", "error"):
            cliffs += _by_failures(loads, operation, by, notes)
    cliffs += _by_violation(loads)
    cliffs += _by_leader(loads)
    cliffs += _by_giving_way(loads, notes)
    if rates_known:
        cliffs += _by_throughput(loads, notes)
    order: dict[Breakage, int] = {"violation": 0, "leader": 1, "lost": 2, "error": 3, "throughput": 4}
    # A violation is the strongest evidence at any load; a break without a fault is stronger than one with.
    cliffs.sort(
        key=lambda cliff: (
            cliff.by != "violation",
            cliff.during_fault,
            cliff.first_broken,
            order[cliff.by],
        )
    )
    return (cliffs[0] if cliffs else None), notes


def improbability(failed: int, attempts: int, failed_before: int, attempts_before: int) -> float:
    """Return the probability of at least `failed` failures, given earlier ones and FLOOR (beta-binomial tail)."""
    if failed <= 0:
        return 1.0
    a = FLOOR[0] + failed_before
    b = FLOOR[1] + attempts_before - failed_before
    below = np.arange(failed, dtype=np.float64)
    # P(k + 1) / P(k) of the beta-binomial distribution, from P(0) = B(a, b + n) / B(a, b).
    ratios = (attempts - below[:-1]) * (a + below[:-1]) / ((below[:-1] + 1) * (b + attempts - below[:-1] - 1))
    log_zero = _log_beta_ratio(a, b, attempts)
    logs = log_zero + np.concatenate(([0.0], np.cumsum(np.log(np.maximum(ratios, 1e-300)))))
    return float(max(0.0, 1.0 - np.exp(logs).sum()))


def _log_beta_ratio(a: float, b: float, n: int) -> float:
    """Return the logarithm of B(a, b + n) / B(a, b)."""
    return lgamma(b + n) - lgamma(a + b + n) - lgamma(b) + lgamma(a + b)


def _by_failures(loads: Sequence[Load], operation: str, by: Breakage, notes: list[str]) -> list[Cliff]:
    failed_before = attempts_before = 0
    cliff: Cliff | None = None
    word = "lost" if by == "lost" else "failed"
    for position, load in enumerate(loads):
        failed, attempts = load.failed(operation, by), load.attempts(operation)
        chance = improbability(failed, attempts, failed_before, attempts_before)
        evidence = f"{show_size(failed)} of {show_size(attempts)} {show_calls(operation, attempts)} {word}"
        where = f"{evidence} at {show_size(load.size)}"
        if failed and chance >= SIGNIFICANT:
            notes.append(f"{where}: no more than chance explains")
        elif failed and _recovered(loads[position + 1 :], operation, failed / attempts):
            notes.append(f"{where}{_fault_words(load)}: larger loads did not repeat it")
        elif failed:
            cliff = _cliff(loads, position, by, evidence, chance, operation)
            if not load.faulted:
                return [cliff]
            continue  # the fault explains it; a larger load may break without one
        if not load.faulted:
            failed_before += failed
            attempts_before += attempts
    return [cliff] if cliff is not None else []


def _recovered(larger: Sequence[Load], operation: str, share: float) -> bool:
    """Return whether larger loads without a fault show far fewer failures than that share.

    Failures of any kind count there, because a lost lease cannot fail in another way. A single larger load may just
    have been lucky, so it must have no failure at all.
    """
    failures = [
        load.failed(operation, "lost") + load.failed(operation, "error")
        for load in larger
        if not load.faulted and (expected := share * load.attempts(operation)) >= _EXPECTED_AGAIN
        if load.failed(operation, "lost") + load.failed(operation, "error") < _FAR_FEWER * expected
    ]
    return len(failures) > 1 or failures == [0]


def _by_throughput(loads: Sequence[Load], notes: list[str]) -> list[Cliff]:
    best: tuple[float, float] | None = None
    for position, load in enumerate(loads):
        successes, seconds = load.held()
        if seconds <= 0 or load.load_missing:
            continue
        rate, spread = successes / seconds, np.sqrt(successes + 1) / seconds
        asked = max(0.0, seconds - load.stood_still) / seconds  # the share of the holds in which it was asked
        if best is not None and rate + 3 * spread < asked * FALL * (best[0] - 3 * best[1]):
            evidence = f"throughput fell from {show_rate(best[0])} to {show_rate(rate)}"
            later = [other.held() for other in loads[position + 1 :] if not other.faulted]
            if any(n / s >= FALL * best[0] for n, s in later if s > 0):
                notes.append(
                    f"{evidence} at {show_size(load.size)}{_fault_words(load)}: larger loads did not repeat it"
                )
                continue
            return [_cliff(loads, position, "throughput", evidence, 0.0)]
        if not load.faulted and (best is None or rate > best[0]):
            best = rate, float(spread)
    return []


def _by_violation(loads: Sequence[Load]) -> list[Cliff]:
    """Return the first load with a violation. Neither larger loads nor faults excuse it: it must never happen."""
    for position, load in enumerate(loads):
        if load.violated:
            return [replace(_cliff(loads, position, "violation", load.violated, 0.0), during_fault=False)]
    return []


def _by_leader(loads: Sequence[Load]) -> list[Cliff]:
    """Return the first load with a leader change. Larger loads do not excuse it: leaders never change by chance."""
    for position, load in enumerate(loads):
        if load.leader_changed:
            return [_cliff(loads, position, "leader", load.leader_changed, 0.0)]
    return []


def _by_giving_way(loads: Sequence[Load], notes: list[str]) -> list[Cliff]:
    """Return the first load that the target did not hold, unless it held a larger one."""
    for position, load in enumerate(loads):
        if load.failed_to_hold is None or load.failed_to_hold[1] in (load.leader_changed, load.violated):
            continue
        by, evidence = load.failed_to_hold
        if any(larger.was_held for larger in loads[position + 1 :]):
            where = f"{evidence} at {show_size(load.size)}{_fault_words(load)}"
            notes.append(f"{where}: larger loads did not repeat it")
            continue
        return [_cliff(loads, position, by, evidence, 0.0)]
    return []


def _stood_still(found: StageFindings) -> float:
    """Return the seconds of a hold in which a worker stood still."""
    begin, end = found.stage.hold_begin, found.stage.end
    return 0.0 if begin is None or end is None else stood_still(found.stalls, begin, end)


def _cliff(
    loads: Sequence[Load], position: int, by: Breakage, evidence: str, chance: float, operation: str = ""
) -> Cliff:
    load = loads[position]
    return Cliff(
        last_held=max((smaller.size for smaller in loads[:position] if smaller.was_held), default=None),
        first_broken=load.size,
        by=by,
        evidence=evidence,
        stage=load.stages[0].number,
        confidence=1.0 - chance,
        operation=operation,
        during_fault=load.faulted,
        doubt=load.doubt if by == "lost" else load.not_its_doing if by == "throughput" else "",
    )


def _fault_words(load: Load) -> str:
    return " during an injected fault" if load.faulted else ""
