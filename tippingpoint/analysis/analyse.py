"""The analysis of a run: done once, and read by reports, the terminal, agents, collectors and comparisons."""

from __future__ import annotations

from dataclasses import dataclass

from tippingpoint.analysis.cliff import loads_of
from tippingpoint.analysis.cost import Cost, costs_of
from tippingpoint.analysis.fill_rate import Fill, fills_of
from tippingpoint.analysis.findings import Findings, examine
from tippingpoint.analysis.tipping import Tipping, find_tipping
from tippingpoint.analysis.verdict import Verdict, judge
from tippingpoint.rundir.cluster_events import Cluster, read_cluster
from tippingpoint.rundir.results import RunData


@dataclass(frozen=True)
class Analysis:
    """All that is concluded from a run."""

    run: RunData
    findings: Findings
    """Of each stage: whether it was held and why not, when workers stood still in it; and the loads that were held."""
    verdict: Verdict
    tipping: Tipping
    """Knees, cliff, storms and forecast."""
    costs: list[Cost]
    """What the target took per unit of load; none when nothing was gathered of it."""
    cluster: Cluster
    """What became of the target's members."""
    fills: list[Fill]
    """How fast containers were made, for each number of members."""


def analyse(run: RunData) -> Analysis:
    """Conclude from a run as far as it went; UserError when its manifest holds a plan that is none."""
    findings = examine(run)
    verdict = judge(findings)
    loads = loads_of(findings)
    cluster = read_cluster(run.events)
    fills = fills_of(run, cluster)
    tipping = find_tipping(findings, loads, verdict.checks, cluster, fills)
    costs = costs_of(findings, loads, tipping.cliff)
    return Analysis(run, findings, verdict, tipping, costs, cluster, fills)
