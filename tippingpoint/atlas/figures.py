"""Computes the figures of an entry from its runs: from the lowest run to the highest, with three significant digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.cost import samples_between, three
from tippingpoint.analysis.latency import costs
from tippingpoint.analysis.operation_costs import cpu_costs
from tippingpoint.atlas.entry import Figure
from tippingpoint.rundir.resources import FigureData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.text import show_load

_PERCENTILES = {"p50": 50.0, "p99": 99.0}
_UNITS = {"bytes": "B", "bytes/s": "B/s", "seconds": "s"}
_PREFIXES = ((1e9, "G"), (1e6, "M"))
Bounds = tuple[float | None, float | None]


@dataclass(frozen=True)
class Meaning:
    """The name of a figure, and its unit."""

    words: str
    unit: str


def meaning_of(figure: Figure, runs: Sequence[Analysis]) -> Meaning:
    """Return a figure's words, by which claims name it, and its unit."""
    manifest = runs[0].run.manifest
    unit = manifest.load_unit
    at = "" if figure.at is None else f" {show_load(figure.at, unit, 'storm' if figure.storm else 'ramp')}"
    match figure.figure:
        case "tips":
            return Meaning("tips at", unit)
        case "p50" | "p99":
            return Meaning(f"{figure.of} {figure.figure}{at}", "ms")
        case "rate":
            return Meaning(f"{figure.of}{at}", "/s")
        case "failures":
            return Meaning(f"{figure.of} failed{at}", "%")
        case "lost":
            return Meaning("lost", runs[0].run.things)
        case "back":
            return Meaning(f"back after {figure.of or 'every fault'}", "s")
        case "made":
            return Meaning(f"{runs[0].run.things} made", "/s")
        case "cpu":
            return Meaning(f"{figure.of} CPU", "µs")
        case "resource":
            data = _data(figure, runs[0])
            if data is None:
                return Meaning(f"{figure.of}, all members{at}", "")
            return Meaning(f"{data.title}, all members{at}", _UNITS.get(data.unit, data.unit))


def measured(figure: Figure, runs: Sequence[Analysis]) -> Bounds:
    """Return a figure of these runs, the lowest and the highest, with three significant digits.

    - `tips`: the loads around the tipping point; for a search, the 95 % interval of its limit.
    - `p50`, `p99`: the response time of an operation in a stage, in ms; failures count with the time they took.
    - `rate`: successes of an operation per second while a stage is held, or brought up.
    - `failures`: the share of an operation's attempts in a stage that failed, in percent.
    - `lost`: leases or things lost in the whole run.
    - `back`: seconds from a fault until thresholds were met, or the usual level was reached, again for good; the
      longest of all faults. With `of`, only faults whose description begins with it, such as `kill`.
    - `made`: things made per second, over all stages.
    - `cpu`: microseconds of the target's CPU time for one such operation, from slices of the whole run.
    - `resource`: the total use of all members while a stage was held: the mean of a rate, or the median of anything
      else.

    A bound is None if a run did not show it, because it did not tip or did not recover. A figure is unknown if a run
    does not have it, because it did not reach the stage or had no such fault.
    """
    if figure.figure == "tips":
        return _tips(runs)
    values = [_value(figure, run) for run in runs]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known or min(known) == inf:
        return None, None
    return rounded(min(known)), rounded(max(known)) if max(known) < inf else None


def show_bounds(low: float | None, high: float | None) -> str:
    """Return a figure as tables show it: 1,120 to 1,630, beyond 4,000, or one number."""
    if low is None and high is None:
        return "not known"
    if high is None:
        return f"beyond {_short(low)}"
    if low is None:
        return f"up to {_short(high)}"
    return _short(low) if low == high else f"{_short(low)} to {_short(high)}"


def _short(value: float | None) -> str:
    assert value is not None
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{three(value / size)} {prefix}"
    return three(value)


def rounded(value: float | None) -> float | None:
    """Return a value with three significant digits."""
    return None if value is None else float(f"{value:.3g}")


def _tips(runs: Sequence[Analysis]) -> Bounds:
    lows: list[float] = []
    highs: list[float | None] = []
    for run in runs:
        point = run.tipping.point
        if point is not None:
            lows.append(point.last_held or 0.0)
            highs.append(point.first_beyond)
        elif run.found is not None:  # a search's loads are not held merely by being present
            lows.append(run.found.answer.low)
            highs.append(run.found.broken)
        else:
            lows.append(max(run.findings.loads_held, default=0.0))
            highs.append(None)
    above = [high for high in highs if high is not None]
    low = rounded(min(lows)) if lows and min(lows) > 0 else None
    return low, rounded(max(above)) if above and len(above) == len(highs) else None


def _value(figure: Figure, run: Analysis) -> float | None:
    match figure.figure:
        case "lost":
            return float(_lost(run))
        case "back":
            return _back(figure, run)
        case "cpu":
            cost = cpu_costs(run.operation_costs).get(figure.of)
            return cost.value * 1e6 if cost is not None and cost.is_told else None
        case "made":
            made = sum(fill.made for fill in run.fills)
            seconds = sum(fill.seconds for fill in run.fills)
            return made / seconds if seconds else None
        case _:
            pass
    stage = _stage(figure, run)
    if stage is None:
        return None
    match figure.figure:
        case "p50" | "p99":
            found = costs(stage, figure.of)
            return found.percentile(_PERCENTILES[figure.figure]) / 1000 if found.total else None
        case "rate":
            return stage.throughput(figure.of)
        case "failures":
            tried = stage.attempts(figure.of)
            return 100 * stage.failures(figure.of) / tried if tried else None
        case _:
            return _resource(figure, run, stage)


def _lost(run: Analysis) -> int:
    return sum(stage.count(name, "lost") for stage in run.run.stages for name in run.run.operations)


def _back(figure: Figure, run: Analysis) -> float | None:
    """Return how long the target took to recover; infinity if it did not while it was watched."""
    after = [each for each in run.aftermaths if each.injected and each.what.startswith(figure.of)]
    if not after:
        return None
    if any(each.broken and each.recovered is None for each in after):
        return inf
    return max(each.recovered or 0.0 for each in after)


def _stage(figure: Figure, run: Analysis) -> StageResult | None:
    """Return the last stage with this load; in a search, this is the last repeat."""
    found = [
        stage
        for stage in run.run.stages
        if (stage.kind == "storm") == figure.storm and (figure.at is None or stage.size == figure.at)
    ]
    return found[-1] if found else None


def _resource(figure: Figure, run: Analysis, stage: StageResult) -> float | None:
    resources, data = run.run.resources, _data(figure, run)
    if resources is None or data is None or stage.hold_begin is None or stage.end is None:
        return None
    values: Sequence[float | None] = resources.roles(data, data.parts[0]).total
    inside, _ = samples_between(resources, values, data.window, stage.hold_begin, stage.end)
    return data.typical(inside) if inside else None


def _data(figure: Figure, run: Analysis) -> FigureData | None:
    resources = run.run.resources
    return None if resources is None else resources.figure(figure.of)
