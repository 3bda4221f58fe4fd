"""Computes what one operation costs the target (CPU time, bytes, fsyncs, messages), from slices of a run's time.

The cost of an operation hardly depends on what else runs on the machine: other programs take time from a target but do
not change its work. Operations that always occur in a fixed ratio cannot be distinguished. One of them then carries the
cost of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tippingpoint.analysis.cost import Role, roles_of
from tippingpoint.analysis.fault_spans import lasting_faults
from tippingpoint.analysis.findings import Findings
from tippingpoint.analysis.slices import FEWEST, Fit, Slices, fit, left_over, rate_slices
from tippingpoint.rundir.histogram import FloatArray
from tippingpoint.rundir.operations import LAUNCHES, OWN_CALLS
from tippingpoint.rundir.resources import Resources
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.tags import OUTCOMES
from tippingpoint.util.numbers import show_quantity, show_rounded, show_us
from tippingpoint.util.text import show_list

LEVEL = 0.95
CPU = "cpu"
"""The name of the CPU time of all processes of a target together, if these have several figures or parts."""
_LEAST_WITH_CALLS = 4
"""The minimum number of slices in which an operation must occur to have a cost of its own."""
_STEADY = 0.005
"""A rate of which less than this share varies over time is too steady to be distinguished from the base."""
_SAME_RATIO = 0.1
"""Operations occur in a fixed ratio if less than this share of one (squared) is not explained by the others: a variance
inflation factor of ten."""
_SEVERAL = 0.01
"""An operation that occurs less than once in a hundred times is not listed as included in the cost of another."""
_UNITS = {
    "cores": ("seconds", 1.0),
    "bytes/s": ("bytes", 1.0),
    "bits/s": ("bytes", 0.125),
    "count/s": ("count", 1.0),
}
"""What the rates of each unit count, and the conversion factor."""


@dataclass(frozen=True)
class AtLoad:
    """What an operation cost at one load."""

    size: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class OperationCost:
    """What one operation adds to one figure of a target, with its 95 % interval."""

    figure: str
    title: str
    part: str
    """The part of a host (a process, a vhost); empty if the figure has no parts, or if all are combined."""
    role: Role
    unit: str
    """seconds (of CPU), bytes or count."""
    slices: int
    """The number of time slices that it was computed from."""
    operation: str = ""
    """Empty if nothing is known about any operation."""
    includes: tuple[str, ...] = ()
    """The operations that cannot be distinguished from it: its cost includes theirs."""
    value: float = 0.0
    low: float = 0.0
    high: float = 0.0
    error: float = 0.0
    """The standard error of `value`."""
    base: float = 0.0
    """What the target uses per second without any operation."""
    loads: tuple[AtLoad, ...] = ()
    """What it cost at each load, if loads can be distinguished; only for CPU. A run with one load has that load."""
    withheld: str = ""
    """Why nothing is known; empty if something is."""

    @property
    def is_told(self) -> bool:
        """Whether the cost of the operation is certainly above zero."""
        return not self.withheld and self.low > 0

    @property
    def is_cpu(self) -> bool:
        """Whether it is CPU time."""
        return self.unit == "seconds"

    @property
    def log_error(self) -> float:
        """The standard error of the value's logarithm."""
        return self.error / self.value if self.value > 0 else 0.0

    def at(self, size: float) -> AtLoad | None:
        """Return what it cost at a load; None if unknown."""
        return next((load for load in self.loads if load.size == size), None)

    @property
    def what(self) -> str:
        """The figure for people: CPU of pacemakerd for each extend."""
        name = f"{self.title}{f' of {self.part}' if self.part else ''}"
        return f"{name} for each {self.operation}" if self.operation else name

    def show(self, value: float) -> str:
        """Format an amount with its unit: 118 µs, 412 B, 0.98."""
        if self.unit == "seconds":
            return show_us(value * 1e6)
        return show_rounded(value, 3) if self.unit == "count" else show_quantity(value, self.unit)

    @property
    def interval(self) -> str:
        """The interval with its confidence: 95 %: 112 µs to 125 µs."""
        return interval_words(self, self.low, self.high)

    @property
    def sentence(self) -> str:
        """The cost as a sentence for people."""
        who = {"leader": " of the leader", "follower": " of a follower", "all": ""}[self.role]
        name = f"{self.title}{f' of {self.part}' if self.part else ''}{who}"
        if self.withheld:
            return f"{name}: withheld, as {self.withheld}."
        with_others = f", with {show_list(list(self.includes))}" if self.includes else ""
        if not self.is_told:
            return f"{name}: what one {self.operation} takes is within the noise{with_others}."
        return f"{name}: {self.show(self.value)} for each {self.operation}{with_others} ({self.interval})."


def interval_words(cost: OperationCost, low: float, high: float) -> str:
    """Return an interval in words; its bounds are at least zero."""
    first, last = cost.show(max(low, 0.0)), cost.show(high)
    return f"95 %: {f'about {first}' if first == last else f'{first} to {last}'}"


def operation_costs(findings: Findings) -> list[OperationCost]:
    """Compute what each operation of a run cost its target, for each figure that has a cost per operation.

    The CPU time that the kernel counts each second for a lab's processes takes precedence over Prometheus. Stages in
    which a fault was injected, or that the target did not hold, are left out because the target does other work there.
    The time after the last stage is left out too. The list is empty if nothing was measured on the target.
    """
    run = findings.run
    until = max((stage.end or stage.begin for stage in run.stages), default=0.0)
    out = [*_other_work(findings), (until, np.inf)]
    calls = _Calls(run)
    found: list[OperationCost] = []
    for source in _sources(run):
        found += _costs(run, calls, source, source.slices.outside(out).joined())
    return found


def cpu_costs(costs: Iterable[OperationCost]) -> dict[str, OperationCost]:
    """Return the CPU time of the whole target for each operation.

    The operation is empty if nothing is known about any. The result is empty if there are several figures and none
    covers all of the target's CPU time.
    """
    of_cpu = [cost for cost in costs if cost.role == "all" and cost.is_cpu]
    figures = {(cost.figure, cost.part) for cost in of_cpu}
    if (CPU, "") not in figures and (len(figures) > 1 or any(part for _, part in figures)):
        return {}
    found: dict[str, OperationCost] = {}
    for cost in of_cpu:
        if not cost.part and (cost.figure == CPU or len(figures) == 1):
            found.setdefault(cost.operation, cost)
    return found


@dataclass(frozen=True)
class _Source:
    figure: str
    title: str
    part: str
    role: Role
    unit: str
    slices: Slices

    @property
    def is_whole_cpu(self) -> bool:
        """Whether it is the CPU time of all hosts, not of a part of them."""
        return self.role == "all" and self.unit == "cores" and not self.part


def _sources(run: RunData) -> list[_Source]:
    """Return what was measured on the target, its total CPU time first."""
    of_machine = _of_machine(run)
    of_resources = _of_resources(run.resources) if run.resources is not None else []
    # The kernel's counts are finer. Using both under one name would give two answers to one question.
    return of_machine + [source for source in of_resources if not (of_machine and source.is_whole_cpu)]


def _of_machine(run: RunData) -> list[_Source]:
    """Return the CPU time of a target whose processes run on the generator's machine, if that is known."""
    known = [(used.t, used.seconds, used.target) for used in run.machine if used.target is not None]
    if not known:
        return []
    end, seconds, amount = np.array(known, dtype=np.float64).T
    return [_Source(CPU, "CPU", "", "all", "cores", Slices(end - seconds, end, amount))]


def _of_resources(resources: Resources) -> list[_Source]:
    """Return the figures of Prometheus. Where several make up the CPU time of the target, their sum is the first."""
    found: list[_Source] = []
    cpu: list[_Rates] = []
    whole = True
    for figure in resources.figures:
        if figure.cost != "operations" or figure.unit not in _UNITS:
            continue
        lag, span = (figure.slice_lag, resources.step) if figure.slices else (0.0, figure.window)
        sliced = figure.model_copy(update={"series": figure.slices or figure.series})
        for part in figure.parts:
            for role, values in roles_of(resources, sliced, part).items():
                rates = _Rates(lag, span, values)
                found.append(
                    _Source(figure.name, figure.title, part, role, figure.unit, rates.slices(resources.t))
                )
                if role == "all" and figure.unit == "cores":
                    cpu.append(rates)
                    whole = whole and not part
    if len({(rates.lag, rates.span) for rates in cpu}) == 1 and (len(cpu) > 1 or not whole):
        total = [_sum(values) for values in zip(*(rates.values for rates in cpu), strict=True)]
        slices = _Rates(cpu[0].lag, cpu[0].span, total).slices(resources.t)
        found.insert(0, _Source(CPU, "CPU", "", "all", "cores", slices))
    return found


@dataclass(frozen=True)
class _Rates:
    """Rates over time, each the mean of `span` seconds that ended `lag` seconds before the resources' moments."""

    lag: float
    span: float
    values: Sequence[float | None]

    def slices(self, t: Sequence[float]) -> Slices:
        return rate_slices([moment - self.lag for moment in t], self.values, self.span)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _other_work(findings: Findings) -> list[tuple[float, float]]:
    faults = lasting_faults(findings.run.events)
    return [
        (each.stage.begin, each.stage.end if each.stage.end is not None else np.inf)
        for each in findings.stages
        if each.failed_to_hold or any(each.stage.overlaps(fault.begin, fault.until) for fault in faults)
    ]


@dataclass
class _Calls:
    """How many calls of each operation the target had worked on by any moment.

    A call is spread over the median duration of the calls that ended with it: a boot of one minute is work for the
    whole minute.
    """

    run: RunData
    _curves: dict[str, list[tuple[FloatArray, FloatArray, FloatArray]]] = field(init=False)
    _known: dict[tuple[str, bytes], FloatArray] = field(init=False)

    def __post_init__(self) -> None:
        self._known = {}
        self._curves = {}
        for name, curve in self.run.curves.items():
            operation, _, outcome = name.rpartition(".")
            if outcome not in OUTCOMES:  # other tags repeat the same calls, or are the generator's own
                continue
            end = curve.t + self.run.bin_seconds
            begin = np.minimum(curve.t, end - curve.p50 / 1e6)
            counts = curve.count.astype(np.float64)
            self._curves.setdefault(operation, []).append((begin, end, counts))

    @property
    def operations(self) -> list[str]:
        """The operations of the run: first those that represent a whole life, then the workload's, by their number."""
        own = self.run.own_load
        wholes = (*LAUNCHES, "boot_server")
        totals = {name: sum(float(one[2].sum()) for one in of) for name, of in self._curves.items()}
        return sorted(
            totals, key=lambda name: (name in OWN_CALLS, name not in wholes, name not in own, -totals[name])
        )

    def between(self, operation: str, begin: FloatArray, end: FloatArray) -> FloatArray:
        """Return the number of calls in each slice of time."""
        moments = np.concatenate((begin, end))
        key = operation, moments.tobytes()
        if key not in self._known:
            total = np.zeros(len(moments))
            for since, until, counts in self._curves[operation]:
                shares = np.clip((moments[:, None] - since) / (until - since), 0.0, 1.0)
                total += shares @ counts
            self._known[key] = total[len(begin) :] - total[: len(begin)]
        return self._known[key]


@dataclass(frozen=True)
class _Told:
    """The operations that have a cost of their own, each with its rate in every slice, and what they include."""

    rates: dict[str, FloatArray]
    includes: dict[str, list[str]]


def _costs(run: RunData, calls: _Calls, source: _Source, slices: Slices) -> list[OperationCost]:
    unit, factor = _UNITS[source.unit]
    unknown = OperationCost(source.figure, source.title, source.part, source.role, unit, slices=len(slices))
    if len(slices) < 2 * FEWEST:
        few = f"it takes {2 * FEWEST} slices of time, and this run has {len(slices)}"
        return [replace(unknown, withheld=few)]
    told = _told_apart(calls, slices)
    if not told.rates:
        return [replace(unknown, withheld="the rates of operations hardly varied")]
    levels = slices.amount / (slices.end - slices.begin) * factor
    whole = fit(_columns(told.rates.values(), len(slices)), levels, LEVEL)
    costs: list[OperationCost] = []
    for place, operation in enumerate(told.rates, start=1):
        of_all = whole.mixed(np.eye(len(whole.values))[place])
        base, loads = float(whole.values[0]), ()
        if unit == "seconds":
            of_all, base, loads = _at_loads(run, calls, slices, told, operation, levels) or (
                of_all,
                base,
                _only_load(run, of_all),
            )
        costs.append(
            replace(
                unknown,
                operation=operation,
                includes=tuple(sorted(told.includes[operation])),
                value=float(of_all.values[0]),
                low=float(of_all.low[0]),
                high=float(of_all.high[0]),
                error=float(of_all.errors[0]),
                base=base,
                loads=loads,
            )
        )
    return costs


def _columns(rates: Iterable[FloatArray], count: int) -> FloatArray:
    return np.column_stack([np.ones(count), *rates])


def _told_apart(calls: _Calls, slices: Slices) -> _Told:
    """Choose the operations that have a cost of their own, the most informative first."""
    seconds = slices.end - slices.begin
    told = _Told({}, {})
    for operation in calls.operations:
        rate = calls.between(operation, slices.begin, slices.end) / seconds
        if not rate.any():
            continue
        base = left_over(_columns((), len(slices)), rate)
        apart = left_over(_columns(told.rates.values(), len(slices)), rate)
        room = len(slices) >= FEWEST * (len(told.rates) + 2)
        often = np.count_nonzero(rate) >= _LEAST_WITH_CALLS
        if base >= _STEADY and apart >= _SAME_RATIO * base and room and often:
            told.rates[operation] = rate
            told.includes[operation] = []
        elif told.rates:
            like = _most_like(rate, told.rates)
            if rate.sum() >= _SEVERAL * told.rates[like].sum():
                told.includes[like].append(operation)
    return told


def _most_like(rate: FloatArray, others: Mapping[str, FloatArray]) -> str:
    """Return the operation whose rate correlates most with this one."""

    def alike(other: FloatArray) -> float:
        return float((rate - rate.mean()) @ (other - other.mean())) / (float(other.std()) or 1.0)

    return max(others, key=lambda name: alike(others[name]))


def _at_loads(
    run: RunData, calls: _Calls, slices: Slices, told: _Told, operation: str, levels: FloatArray
) -> tuple[Fit, float, tuple[AtLoad, ...]] | None:
    """Return what an operation cost over all loads, the base, and what it cost at each load; None if unknown.

    Targets work in batches, so an operation takes less CPU time the more of them there are. The cost over all loads is
    the mean of the costs at each load, weighted by calls. A straight line through the loads would be less accurate.
    """
    seconds = slices.end - slices.begin
    sizes: dict[float, FloatArray] = {}
    for stage in run.stages:
        if stage.is_step and stage.end is not None:
            begin, end = np.clip([slices.begin, slices.end], stage.begin, stage.end)
            of_stage = calls.between(operation, begin, end) / seconds
            sizes[stage.size] = sizes.get(stage.size, 0.0) + of_stage
    sizes = {size: of for size, of in sorted(sizes.items()) if np.count_nonzero(of) >= _LEAST_WITH_CALLS}
    elsewhere = told.rates[operation] - sum(sizes.values(), np.zeros(len(slices)))
    others = [rate for name, rate in told.rates.items() if name != operation]
    if np.abs(elsewhere).max() > 1e-9 * np.abs(told.rates[operation]).max():
        others.append(elsewhere)
    if len(sizes) < 2 or len(slices) < _LEAST_WITH_CALLS * (len(sizes) + len(others) + 1):
        return None
    columns = _columns((*sizes.values(), *others), len(slices))
    if any(
        left_over(np.delete(columns, place, axis=1), columns[:, place]) < _STEADY
        for place in range(columns.shape[1])
    ):
        return None
    found = fit(columns, levels, LEVEL)
    number = np.array([float(of @ seconds) for of in sizes.values()])
    shares = np.zeros(len(found.values))
    shares[1 : len(number) + 1] = number / number.sum()
    loads = tuple(_at_load(found, place, size) for place, size in enumerate(sizes, start=1))
    return found.mixed(shares), float(found.values[0]), loads


def _only_load(run: RunData, found: Fit) -> tuple[AtLoad, ...]:
    """Return an operation's cost in a run with one load as its cost at that load; empty for a run with several."""
    sizes = {stage.size for stage in run.stages if stage.is_step}
    return tuple(_at_load(found, 0, size) for size in sizes if len(sizes) == 1)


def _at_load(found: Fit, place: int, size: float) -> AtLoad:
    return AtLoad(size, float(found.values[place]), float(found.low[place]), float(found.high[place]))
