"""Builds the section on a cluster's own tests: each test's duration, what failed, and the nodes' loads meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

from tippingpoint.compare.baselines import list_baselines
from tippingpoint.report import figures
from tippingpoint.rundir.resources import MOST_POINTS
from tippingpoint.rundir.results import RunData
from tippingpoint.util.text import show_count

MINUTES = ("1 min", "5 min", "15 min")
"""The load averages, as charts name them."""
HOW = (
    "A node's load average is computed from the node's own tasks, as the nodes of a lab share one kernel. Every 5 s "
    "those that run, may run, or wait uninterruptibly are counted, and averaged as the kernel does. A node that is off "
    "counts none, and its averages go on. CPU is that of the node's processes. Nodes that share a few cores wait for "
    "each other, which counts as load."
)


def build_cluster_tests(run: RunData) -> dict[str, Any]:
    """Return `cluster_tests`: the tests in order, with a sentence, repairs and the loads of nodes.

    Other workloads have no such key.

    Times are seconds. `load` has, for each node, the columns of MINUTES and `cpu` (cores) over `t`; None where unknown.
    `node` is the first node, as in the author's graphs; `peaks` has its highest one-minute load average in each stage,
    and `published` has what others published about such tests.
    """
    if run.manifest.workload != "cts":
        return {}
    tests = [_test(event) for event in run.events if event["event"] == "test"]
    samples = [event for event in run.events if event["event"] == "node-load"]
    load = _loads(samples)
    section = {
        "tests": tests,
        "sentence": _sentence(tests),
        "repairs": [
            {name: event.get(name) for name in ("t", "test", "did", "seconds", "problem")}
            for event in run.events
            if event["event"] == "repair"
        ],
        "load": load,
        "peaks": _peaks(run, load, tests),
        "published": _published(run.manifest.target.kind),
        "how": HOW,
    }
    return {"cluster_tests": section}


def _test(event: Mapping[str, Any]) -> dict[str, Any]:
    felt = cast("dict[str, Any]", event.get("felt") or {})
    told = {
        name: event.get(name)
        for name in ("t", "test", "stage", "nodes", "seconds", "outcome", "assertion", "problem")
    }
    steps = [{"name": name, "seconds": seconds} for name, seconds in event.get("steps", ())]
    return {
        **told,
        "steps": steps,
        "updates": felt.get("updates"),
        "longest_update": felt.get("longest_update"),
        "failed_updates": felt.get("failed_updates"),
        "dc_changes": max(0, len(felt.get("dcs", ())) - 1),
        "fenced": felt.get("fenced", []),
        "updates_apart": felt.get("updates_apart"),
    }


def _sentence(tests: Sequence[Mapping[str, Any]]) -> str:
    if not tests:
        return "No test ended."
    outcomes = [test["outcome"] for test in tests]
    passed, failed, skipped = (outcomes.count(each) for each in ("passed", "failed", "skipped"))
    said = f"{passed} of {show_count(passed + failed, 'test')} passed"
    if skipped:
        said += f", and {skipped} {'was' if skipped == 1 else 'were'} skipped"
    timed = [test for test in tests if test["outcome"] == "passed"]
    if timed:
        longest = max(timed, key=lambda test: test["seconds"])
        said += f"; the longest of them was {longest['test']}, {figures.seconds(longest['seconds'])}"
    names = list(dict.fromkeys(str(test["test"]) for test in tests if test["outcome"] == "failed"))
    return f"{said}." + (f" Failed: {figures.listed(names)}." if names else "")


def _loads(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the nodes' loads over time; None without any sample."""
    if not samples:
        return None
    thin = samples[:: max(1, -(-len(samples) // MOST_POINTS))]
    names = sorted({name for sample in thin for name in sample["loads"]}, key=_natural)
    t = [float(sample["t"]) for sample in thin]
    return {
        "t": t,
        "nodes": {name: _node(name, thin) for name in names},
        "node": names[0] if names else "",
    }


def _node(name: str, samples: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    told: list[Mapping[str, Any] | None] = [sample["loads"].get(name) for sample in samples]
    columns: dict[str, list[float | None]] = {
        minutes: [each["load"][place] if each else None for each in told]
        for place, minutes in enumerate(MINUTES)
    }
    columns["cpu"] = [None, *(_cpu(*pair) for pair in pairwise(zip(samples, told, strict=True)))]
    return columns


def _cpu(
    before: tuple[Mapping[str, Any], Mapping[str, Any] | None],
    now: tuple[Mapping[str, Any], Mapping[str, Any] | None],
) -> float | None:
    """Return the cores that a node used between two samples; None if it was off or booted meanwhile."""
    (earlier, was), (later, told) = before, now
    seconds = float(later["t"]) - float(earlier["t"])
    if was is None or told is None or seconds <= 0 or told["cpu"] < was["cpu"]:
        return None
    return round((told["cpu"] - was["cpu"]) / seconds, 3)


def _peaks(
    run: RunData, load: Mapping[str, Any] | None, tests: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return, for each stage, how many nodes there were and the first node's highest loads."""
    if load is None:
        return []
    nodes: dict[int, int] = defaultdict(int)
    for test in tests:
        nodes[test["stage"]] = max(nodes[test["stage"]], test["nodes"] or 0)
    peaks: list[dict[str, Any]] = []
    for stage in run.stages:
        inside = [
            place
            for place, t in enumerate(load["t"])
            if t >= stage.begin and (stage.end is None or t <= stage.end)
        ]
        columns = load["nodes"][load["node"]]
        highest = {
            name: max((columns[name][place] or 0.0 for place in inside), default=None)
            for name in (*MINUTES, "cpu")
        }
        every = [
            value
            for node in load["nodes"].values()
            for place in inside
            if (value := node[MINUTES[0]][place]) is not None
        ]
        peaks.append(
            {
                "stage": stage.number,
                "nodes": nodes[stage.number],
                **highest,
                "of_all": max(every, default=None),
            }
        )
    return peaks


def _published(kind: str) -> list[dict[str, Any]]:
    """Return published load averages of such tests."""
    return [
        {"version": baseline.target.version, "baseline": baseline.name, **figure.model_dump()}
        for baseline in list_baselines()
        if baseline.target.kind == kind
        for figure in baseline.figures
        if figure.unit == "load"
    ]


def _natural(name: str) -> tuple[str, int]:
    """Return a sort key that puts node2 before node10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)
