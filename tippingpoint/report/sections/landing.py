"""Builds the section on placement: the things on each host after each stage, their spread, and agents that flap."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import Any, cast

from tippingpoint.report import figures
from tippingpoint.rundir.cluster_events import Cluster
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.text import choose, show_amount, show_count

_HASH = re.compile(r"[0-9a-f]{56}")
"""OpenStack's name of a host for users who are not administrators: SHA-224 of project and host."""
_SHOWN_OF_HASH = 12
_INSTANT = 0.001
"""Seconds before a stage's end at which its state is read: at the end it may belong to the next stage."""
_NAMED = 3
"""The maximum number of hosts to name."""
_UNEVEN = 0.1
"""With a spread below this, hosts count as even, even if random placement would be more even."""
_MOST_STAGES = 12
_TOGETHER = 5.0
"""Seconds within which agents that go down share a mark on the charts; in long runs, a hundredth of the run."""


def host_name(name: str) -> str:
    """Return a host's name for people; a hash is shortened."""
    return f"{name[:_SHOWN_OF_HASH]}…" if _HASH.fullmatch(name) else name


def build_spread(run: RunData, cluster: Cluster) -> dict[str, Any] | None:
    """Return the spread of things over the hosts, stage by stage; None if hosts are unknown, or for one host.

    `counts` are the things per host, ascending, at the stage's end. If things are removed as soon as they are created
    (`landed`), all of the stage's things count. `cv` is the coefficient of variation, `chance` that of random placement
    (Poisson). `hidden` is true if the target only shows hashes of hosts, so that hosts without things are unknown. If
    there are too many stages, the last ones are kept.
    """
    landed = run.manifest.load_unit.startswith("iterations")
    stages: list[dict[str, Any]] = []
    for stage in run.stages:
        if stage.kind != "destroy" and stage.end is not None:
            end = max(stage.begin, stage.end - _INSTANT)
            things = _landed(run.events, stage) if landed else cluster.things(end)
            if any(things.values()):
                stages.append(_spread(stage.number, things, cluster.online(end)))
    stages = stages[-_MOST_STAGES:]
    if not stages or max(entry["hosts"] for entry in stages) < 2:
        return None
    hidden = any(_HASH.fullmatch(member.name) for member in cluster.members)
    return {
        "landed": landed,
        "hidden": hidden,
        "stages": stages,
        "sentence": _sentence(stages[-1], run.things, landed=landed, hidden=hidden),
    }


def _spread(number: int, things: Mapping[str, int], online: Sequence[str]) -> dict[str, Any]:
    hosts = dict.fromkeys([*online, *things])
    named = sorted(hosts, key=lambda name: things.get(name, 0))
    counts = [things.get(name, 0) for name in named]
    mean = fmean(counts)
    return {
        "stage": number,
        "things": sum(counts),
        "hosts": len(counts),
        "most": counts[-1],
        "median": median(counts),
        "fewest": counts[0],
        "none": sum(not count for count in counts),
        "cv": pstdev(counts) / mean,
        "chance": mean**-0.5,
        "fullest": [host_name(name) for name in reversed(named[-_NAMED:])],
        "empty": [host_name(name) for name, count in zip(named, counts, strict=True) if not count][:_NAMED],
        "counts": counts,
    }


def _landed(events: Iterable[Mapping[str, Any]], stage: StageResult) -> Counter[str]:
    """Return how many things landed on each host in a stage: the sum of each worker's last report."""
    last: dict[str, Mapping[str, Any]] = {}
    for event in events:
        counts: Any = event.get("counts")
        inside = stage.begin <= event["t"] <= (stage.end or 0.0)
        if event["event"] == "landed" and inside and isinstance(counts, dict):
            last[str(event.get("worker", ""))] = cast(dict[str, Any], counts)
    found: Counter[str] = Counter()
    for counts in last.values():
        found.update({name: count for name, count in counts.items() if isinstance(count, int) and count > 0})
    return found


def _sentence(last: Mapping[str, Any], things: str, *, landed: bool, hidden: bool) -> str:
    """Describe where things are at the end of the last stage."""
    there = show_amount(last["things"], things)
    on = f"on {show_count(last['hosts'], 'host')}"
    said = (
        f"In stage {last['stage']}, {there} landed {on}"
        if landed
        else f"At the end of stage {last['stage']}, {there} {choose(last['things'], 'is', 'are')} {on}"
    )
    said += (
        f": {figures.number(last['median'])} on the median host, {figures.number(last['most'])} at most "
        f"({last['fullest'][0]}), {figures.number(last['fewest'])} at least"
    )
    if last["none"]:
        more = last["none"] - len(last["empty"])
        names = figures.listed([*last["empty"], *([f"{figures.number(more)} more"] if more > 0 else [])])
        said += f"; {show_count(last['none'], 'host')} {choose(last['none'], 'has', 'have')} none ({names})"
    if last["cv"] > max(_UNEVEN, 2 * last["chance"]):
        said += ". This is less even than random placement would be"
    unknown = "Hosts without any are unknown, because only an administrator can list hosts."
    return f"{said}. {unknown}" if hidden else f"{said}."


def build_agents(run: RunData, cluster: Cluster) -> list[dict[str, Any]]:
    """Return Neutron's agents that went down, the most frequent ones first.

    Each has the count, the total seconds (to the run's end if it stayed down), and the first and last time. It also has
    the number of things on its host, and in all, when it first went down.
    """
    end = max((stage.end for stage in run.stages if stage.end is not None), default=0.0)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    since: dict[tuple[str, str], float] = {}
    for event in run.events:
        if event["event"] != "agent":
            continue
        t, key = float(event["t"]), (str(event.get("agent", "")), str(event.get("host", "")))
        end = max(end, t)
        if event.get("alive") is False:
            there = cluster.things(t)
            entry = found.setdefault(
                key,
                {
                    "agent": key[0],
                    "host": host_name(key[1]),
                    "times": 0,
                    "seconds": 0.0,
                    "first": t,
                    "on_it": there.get(key[1], 0),
                    "in_all": sum(there.values()),
                },
            )
            entry["last"] = t
            if key not in since:
                entry["times"] += 1
                since[key] = t
        elif key in since:
            found[key]["seconds"] += t - since.pop(key)
    for key, begin in since.items():
        found[key]["seconds"] += end - begin
    for key, entry in found.items():
        entry["down"] = key in since
    return sorted(found.values(), key=lambda entry: (-entry["times"], entry["first"]))


def agent_marks(events: Iterable[Mapping[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """Return the marks on charts over time for agents that went down, joined if they are close in time."""
    near = max(_TOGETHER, seconds / 100)
    groups: list[tuple[float, list[str]]] = []
    for event in events:
        if event["event"] == "agent" and event.get("alive") is False:
            t, name = (
                float(event["t"]),
                f"{event.get('agent', '')} of {host_name(str(event.get('host', '')))}",
            )
            if groups and t - groups[-1][0] <= near:
                groups[-1][1].append(name)
            else:
                groups.append((t, [name]))
    return [
        {
            "t": t,
            "kind": "agent-down",
            "text": f"{names[0] if len(names) == 1 else f'{len(names)} agents'} down",
        }
        for t, names in groups
    ]
