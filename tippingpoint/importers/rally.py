"""Imports Rally's task results as run directories that load, report and compare like any other: one per scenario.

A workload becomes a stage. Its load is the number of iterations, as in a plan with `cycle`, so that the two can be
compared. If a task has the same scenario at several concurrencies, the load is the concurrency.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tippingpoint.errors import UserError
from tippingpoint.importers.juju_log import new_journal, new_run, shown_name
from tippingpoint.importers.rally_results import Results, Timed, Workload, read_rally
from tippingpoint.plan.base import MAX_STAGES
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import Journal
from tippingpoint.rundir.manifest import Manifest, TargetEntry, WorkerEntry
from tippingpoint.rundir.tags import tag

WORKER = "rally"
_SHORTEST = 0.01
"""The least seconds of a stage. An interval of the journal that begins at the stage's end would not belong to it."""
CLOSED_LOOP = (
    "closed loop: Rally begins an iteration only when another has ended, and times actions from their begin"
)
PERCENTILES = (
    "Rally's own table interpolates between two samples and has failures among them: a percentile here is one of these "
    "two samples, to 0.1 %, and of successes only"
)


def import_rally(result: Path, out: Path, title: str | None = None) -> list[Path]:
    """Make a run directory below `out` for each scenario of a Rally task's result, and return their paths.

    Raises UserError if the file cannot be read, or is not Rally's.
    """
    results = read_rally(result)
    scenarios: dict[str, list[Workload]] = defaultdict(list)
    for workload in results.workloads:
        scenarios[workload.scenario].append(workload)
    for scenario, workloads in scenarios.items():
        if len(workloads) > MAX_STAGES:
            raise UserError("result", f"{len(workloads)} workloads of {scenario}", f"at most {MAX_STAGES}")
    return [_import(workloads, results, shown_name(result), out, title) for workloads in scenarios.values()]


def _import(workloads: Sequence[Workload], results: Results, name: str, out: Path, title: str | None) -> Path:
    started = workloads[0].begin
    paces = [workload.concurrency for workload in workloads]
    by_pace = len(set(paces)) > 1 and None not in paces
    title = title or _title(workloads)
    with new_run(out, title, started) as (run_id, directory):
        with new_journal(directory, WORKER, started) as (journal, run_events):
            end = 0.0
            for number, workload in enumerate(workloads, start=1):
                size = workload.concurrency if by_pace else None
                end = _write_stage(journal, number, size or workload.iterations, workload, started, end)
            for text in _notes(workloads, results, name):
                run_events.write(0.0, "note", text=text)
        rally = f"Rally {results.version}".strip()
        Manifest(
            id=run_id,
            title=title,
            source="import",
            origin=f"{name}, a task's result of {rally} ({CLOSED_LOOP})",
            workload="spawn",
            load_unit="iterations at once" if by_pace else "iterations",
            target=TargetEntry(kind="openstack"),
            status="complete",
            started=started,
            ended=started + end,
            workers=[WorkerEntry(name=WORKER, status="complete")],
        ).save(directory)
    return out / run_id


def _title(workloads: Sequence[Workload]) -> str:
    counts = "/".join(dict.fromkeys(str(workload.iterations) for workload in workloads))
    paces = [str(workload.concurrency) for workload in workloads if workload.concurrency is not None]
    at_once = f", {'/'.join(dict.fromkeys(paces))} at once" if paces else ""
    return f"Rally {workloads[0].scenario}: {counts} iterations{at_once}"


def _write_stage(
    journal: Journal, number: int, size: int, workload: Workload, started: float, ended: float
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


def _notes(workloads: Sequence[Workload], results: Results, name: str) -> list[str]:
    """Return remarks on the source for the run's reader."""
    found = [
        f"stage {number}: {workload.iterations} iterations of {workload.scenario}"
        + (f", {workload.concurrency} at once" if workload.concurrency is not None else "")
        + f", from {name}"
        for number, workload in enumerate(workloads, start=1)
    ]
    found.append(PERCENTILES)
    if results.old_form:
        found.append(
            "the form of `rally task results` does not say when actions began, nor which one failed: they are taken to "
            "follow each other, and the last of an iteration with an error to have failed"
        )
    found += [
        f"stage {number}: Rally's own criterion was missed, {missed}"
        for number, workload in enumerate(workloads, start=1)
        for missed in workload.missed
    ]
    if results.empty:
        found.append(f"{results.empty} workloads in {name} had no iteration")
    return found
