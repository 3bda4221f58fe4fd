"""Imports Rally's task results as run directories that load, report and compare like any other: one per scenario.

A workload becomes a stage. Its load is the number of iterations, as in a plan with `cycle`, so that the two can be
compared. If the workloads of a task differ only in concurrency or rate, that is the load, and they form a ladder. A
rate is the load of a single workload too. Workloads that differ in more than their load become separate runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tippingpoint.errors import UserError
from tippingpoint.importers.juju_log import new_journal, new_run
from tippingpoint.importers.rally_results import Results, Timed, Workload, read_rally
from tippingpoint.plan.base import MAX_STAGES
from tippingpoint.plan.fields import as_amount
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import Journal
from tippingpoint.rundir.manifest import Manifest, TargetEntry, WorkerEntry
from tippingpoint.rundir.tags import tag
from tippingpoint.util.inputs import Input
from tippingpoint.util.text import show_count

WORKER = "rally"
_SHORTEST = 0.01
"""The least seconds of a stage. An interval of the journal that begins at the stage's end would not belong to it."""
CLOSED_LOOP = (
    "closed loop: Rally begins an iteration only when another has ended, and times actions from their begin"
)
OPEN_LOOP = (
    "open loop: Rally begins iterations at a rate, whatever has ended, and times actions from their begin"
)
UNKNOWN_LOOP = "Rally times actions from their begin"
PERCENTILES = (
    "Rally's own table interpolates between two samples and has failures among them: a percentile here is one of these "
    "two samples, to 0.1 %, and of successes only"
)


def import_rally(result: Path | Input, out: Path, title: str | None = None) -> list[Path]:
    """Make a run directory below `out` for each scenario of a Rally task's result, and return their paths.

    A scenario that was run with several arguments, contexts or kinds of runner makes a run of each. Raises UserError
    if the file cannot be read, or is not Rally's.
    """
    if isinstance(result, Path):
        with Input("result", result) as opened:
            return import_rally(opened, out, title)
    results = read_rally(result)
    ladders: dict[tuple[str, str], list[Workload]] = defaultdict(list)
    for number, workload in enumerate(results.workloads):
        runner = workload.runner
        alike = [workload.arguments, runner.rest, "" if runner.pace else number]
        ladders[workload.scenario, repr(alike)].append(workload)
    for (scenario, _), workloads in ladders.items():
        if len(workloads) > MAX_STAGES:
            raise UserError("result", f"{len(workloads)} workloads of {scenario}", f"at most {MAX_STAGES}")
    alone = Counter(scenario for scenario, _ in ladders)
    return [
        _import(workloads, results, result.name, out, title, of_several=alone[scenario] > 1)
        for (scenario, _), workloads in ladders.items()
    ]


def _import(
    workloads: Sequence[Workload],
    results: Results,
    name: str,
    out: Path,
    title: str | None,
    *,
    of_several: bool,
) -> Path:
    started = workloads[0].begin
    title = title or _title(workloads)
    by_pace = _is_by_pace(workloads)
    with new_run(out, title, started) as (run_id, directory):
        with new_journal(directory, WORKER, started) as (journal, run_events):
            end = 0.0
            for number, workload in enumerate(workloads, start=1):
                size = as_amount(workload.runner.load) if by_pace else workload.iterations
                end = _write_stage(journal, number, size, workload, started, end)
            for text in _notes(workloads, results, name, of_several):
                run_events.write(0.0, "note", text=text)
        rally = f"Rally {results.version}".strip()
        Manifest(
            id=run_id,
            title=title,
            source="import",
            origin=f"{name}, a task's result of {rally} ({_loop(workloads)})",
            workload="spawn",
            load_unit=f"iterations {workloads[0].runner.pace}" if by_pace else "iterations",
            target=TargetEntry(kind="openstack"),
            status="complete",
            started=started,
            ended=started + end,
            workers=[WorkerEntry(name=WORKER, status="complete")],
        ).save(directory)
    return out / run_id


def _is_by_pace(workloads: Sequence[Workload]) -> bool:
    """Return whether the load is the pace, and not the number of iterations done at it."""
    runner = workloads[0].runner
    loads = {(workload.runner.load, workload.iterations) for workload in workloads}
    return bool(runner.pace) and (runner.open_loop or not runner.counted or len(loads) > 1)


def _loop(workloads: Sequence[Workload]) -> str:
    runner = workloads[0].runner
    return OPEN_LOOP if runner.open_loop else CLOSED_LOOP if runner.pace else UNKNOWN_LOOP


def _title(workloads: Sequence[Workload]) -> str:
    counts = "/".join(dict.fromkeys(str(workload.iterations) for workload in workloads))
    paces = list(dict.fromkeys(workload.runner.words for workload in workloads if workload.runner.words))
    pace = workloads[0].runner.pace
    loads = "/".join(words.removesuffix(f" {pace}") for words in paces)
    return f"Rally {workloads[0].scenario}: {counts} iterations" + (
        f", {loads} {pace}".rstrip() if paces else ""
    )


def _write_stage(
    journal: Journal, number: int, size: float, workload: Workload, started: float, ended: float
) -> float:
    """Append a workload as a stage, which ends with its last iteration, and return that time."""
    begin = max(ended, workload.begin - started)
    end = max(begin + _SHORTEST, workload.end - started)

    def mark(phase: str, t: float) -> None:
        journal.events.write(t, "stage", stage=number, size=size, kind="ramp", phase=phase)

    mark("begin", begin)
    errors: Counter[tuple[int, str, str, str]] = Counter()
    seconds: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for second, sample in _in_seconds(workload.timed, begin + started, end + started):
        seconds[second][tag(sample.operation, sample.outcome)].append(sample.microseconds)
        if sample.error:
            errors[second, sample.operation, sample.outcome, sample.error] += 1
    for second, samples in sorted(seconds.items()):
        histograms = {name: Histogram.of(np.asarray(values)) for name, values in sorted(samples.items())}
        journal.interval(begin + second, min(begin + second + 1.0, end), histograms)
    for (second, operation, outcome, message), count in sorted(errors.items()):
        journal.events.write(
            begin + second, "error", operation=operation, outcome=outcome, error=message, count=count
        )
    mark("hold", end)
    mark("end", end)
    return end


def _in_seconds(samples: Iterable[Timed], begin: float, end: float) -> Iterator[tuple[int, Timed]]:
    """Yield each sample with the second of the stage in which it ended; later ones get the last second."""
    last = max(0, int(np.ceil(end - begin - _SHORTEST)) - 1)
    for sample in samples:
        yield min(last, max(0, int(sample.ended - begin))), sample


def _notes(workloads: Sequence[Workload], results: Results, name: str, of_several: bool) -> list[str]:
    """Return remarks on the source for the run's reader."""
    found = [
        f"stage {number}: {show_count(workload.iterations, 'iteration')} of {workload.scenario}"
        + (f", {workload.runner.words}" if workload.runner.words else "")
        + f", from {name}"
        for number, workload in enumerate(workloads, start=1)
    ]
    found.append(PERCENTILES)
    if of_several:
        found.append(
            f"{name} has {workloads[0].scenario} more than once, with other arguments or another runner: "
            "each is a run of its own, as they differ in more than the load"
        )
    if any(isinstance(workload.runner.rest.get("rps"), dict) for workload in workloads):
        found.append("the rate rose within this workload, so it has no load of its own: it counts iterations")
    if results.old_form:
        found.append("the form of `rally task results` does not say when actions began, nor which one failed")
    unblamed = sum(workload.unblamed for workload in workloads)
    if unblamed:
        found.append(
            f"{name} has its keys sorted by name, so which action failed is unknown in "
            f"{show_count(unblamed, 'iteration')} with an error: only the total counts as failed, and the actions are "
            "left out"
        )
    elif results.old_form:
        found.append(
            "an action without a time is taken to have failed, else the last action of an iteration with an error"
        )
    found += [
        f"stage {number}: Rally's own criterion was missed, {missed}"
        for number, workload in enumerate(workloads, start=1)
        for missed in workload.missed
    ]
    if results.empty:
        found.append(f"{results.empty} workloads in {name} had no iteration")
    return found
