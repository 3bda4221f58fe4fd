"""Analyses a run once, for reports, the terminal, agents, collectors and comparisons."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tippingpoint.analysis.cause import Cause, causes_of
from tippingpoint.analysis.cliff import loads_of
from tippingpoint.analysis.cost import Cost, costs_of
from tippingpoint.analysis.fill_rate import Fill, fills_of
from tippingpoint.analysis.findings import Findings, examine, plan_of
from tippingpoint.analysis.judge import judge
from tippingpoint.analysis.operation_costs import OperationCost, cpu_costs, operation_costs
from tippingpoint.analysis.profiles import Profiled, profiled_of
from tippingpoint.analysis.recovery.aftermath import Aftermath, aftermaths
from tippingpoint.analysis.recovery.comeback import Comeback, comeback_of
from tippingpoint.analysis.search.found import Found, found_of
from tippingpoint.analysis.search.stage_margins import judged
from tippingpoint.analysis.tipping import Tipping, find_tipping
from tippingpoint.analysis.verdict import Verdict
from tippingpoint.rundir.cluster_events import Cluster, read_cluster
from tippingpoint.rundir.probe_events import probe_events
from tippingpoint.rundir.results import RunData


@dataclass(frozen=True)
class Analysis:
    """All conclusions from a run."""

    run: RunData
    findings: Findings
    """For each stage, whether it was held, why not, and when workers stalled; also which loads were held."""
    verdict: Verdict
    tipping: Tipping
    """The tipping point: knees, cliff, storms and forecast."""
    causes: list[Cause]
    """What bound the target at its tipping point, and at a cliff beyond it; empty if it did not tip."""
    costs: list[Cost]
    """The target's resource use per unit of load; empty if no figures were collected."""
    operation_costs: list[OperationCost]
    """The target's resource use per operation; empty if no figures were collected."""
    cluster: Cluster
    """The status changes of the target's members."""
    fills: list[Fill]
    """How fast containers were created, for each number of members."""
    comeback: Comeback | None
    """Whether the target recovered from the last load; None if the run did not test this."""
    found: Found | None
    """What the run's search found; None for a run that did not search."""
    aftermaths: list[Aftermath]
    """What followed each fault, and each change of leader or members without one."""
    profiled: Profiled | None
    """Where the target spent its time, according to profiles; None if the plan asks for none."""


def analyse(run: RunData) -> Analysis:
    """Analyse a run as far as it went. In a search, only the judged part of each probe counts, as during the search.

    Raises UserError if this version cannot read the plan in its manifest.
    """
    if probe_events(run.events):
        plan = plan_of(run)
        run = replace(run, stages=[judged(stage, plan=plan) for stage in run.stages])
    findings = examine(run)
    found = found_of(run, findings.plan)
    loads = loads_of(findings)
    of_operations = operation_costs(findings)
    verdict = judge(findings, found, cpu_costs(of_operations))
    cluster = read_cluster(run.events)
    fills = fills_of(run, cluster)
    tipping = find_tipping(findings, loads, verdict.checks, cluster, fills, found)
    causes = causes_of(findings, tipping)
    costs = costs_of(findings, loads, tipping.cliff)
    thresholds = findings.plan.thresholds if findings.plan is not None else []
    comeback, after_faults = comeback_of(findings), aftermaths(run, thresholds)
    profiled = profiled_of(findings, tipping)
    return Analysis(
        run,
        findings,
        verdict,
        tipping,
        causes,
        costs,
        of_operations,
        cluster,
        fills,
        comeback,
        found,
        after_faults,
        profiled,
    )
