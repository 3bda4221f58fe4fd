"""The section on a search: its answer, the chance to pass by load, and every probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.search.answer import Answer
from tippingpoint.rundir.probe_events import ProbeEvent, probe_words


def build_search(analysis: Analysis) -> dict[str, Any] | None:
    """Describe a run's search; None for plans with listed stages.

    `answer` is the result of its probes, as in analysis.search.Answer. `probes` are the loads that were tried, in
    order: `t` is when each began, in seconds since the run's start, and `words` describes its result. `further` are the
    answers for the thresholds of `find.also`. `unknown` says what the answer relies on although it is unknown; the key
    is absent if everything is known.
    """
    found = analysis.found
    if found is None:
        return None
    machine = analysis.run.machine
    unknown = (
        bool(machine) and found.answer.limit is not None and all(used.others is None for used in machine)
    )
    begun = {stage.number: stage.begin for stage in analysis.run.stages}
    return {
        "found": _told(analysis, "found"),
        "sentence": found.sentence,
        "seconds": round(found.seconds, 1),
        **({"unknown": "What else ran on the target's processors is not known."} if unknown else {}),
        "answer": _answer(found.answer),
        "probes": [_probe(probe, begun) for probe in found.probes],
        "further": [
            {"threshold": each.threshold, "sentence": each.sentence, "answer": _answer(each.answer)}
            for each in found.further
        ],
    }


def _answer(answer: Answer) -> dict[str, Any]:
    entry = asdict(answer)
    entry["high"] = answer.high if isfinite(answer.high) else None
    return entry


def _probe(probe: ProbeEvent, begun: Mapping[int, float]) -> dict[str, Any]:
    entry = probe.model_dump(exclude=None if probe.foreign else {"foreign"})
    entry["t"] = begun.get(probe.stage) if probe.stage is not None else None
    entry["words"] = probe_words(probe)
    return entry


def _told(analysis: Analysis, name: str) -> dict[str, Any] | None:
    """Return the last event with a name; None if there is none."""
    return next((_bare(event) for event in reversed(analysis.run.events) if event["event"] == name), None)


def _bare(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in ("event", "worker")}
