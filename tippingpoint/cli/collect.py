"""`tippingpoint collect`: add the resource use of a run's target, from a Prometheus."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import uvloop

from tippingpoint.analysis.analyse import analyse
from tippingpoint.cli.page import keep_report
from tippingpoint.cli.prometheus import prometheus_of
from tippingpoint.errors import UserError
from tippingpoint.monitoring.gather import gather_run
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.selecting import read_matchers
from tippingpoint.play.progress import ConsoleProgress
from tippingpoint.report import write_report
from tippingpoint.report.sections.cautions import gap_lines
from tippingpoint.rundir.held import HeldDirectory
from tippingpoint.rundir.resources import FILE as RESOURCES
from tippingpoint.rundir.resources import Resources, write_resources
from tippingpoint.rundir.results import RunData, add_resources, load_run
from tippingpoint.util.exit_codes import MET, TARGET_FAILED


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    prometheus = prometheus_of(options)
    selector = read_matchers("--only", options.only)
    run = load_run(options.run)
    if run.manifest.status == "running":
        raise UserError("run", str(options.run), "one that has ended: it is still running")
    held = HeldDirectory.open(options.run, follow=True)  # gathering takes minutes
    gathered = uvloop.run(_gather(run, prometheus, selector))
    if not gathered.figures:
        why = gathered.missing[0][1] if gathered.missing else "there is no query pack for this target"
        among = f" (of the series that --only {options.only} selects)" if selector else ""
        print(f"tippingpoint: nothing was gathered: {why}{among}", file=sys.stderr)
        return TARGET_FAILED
    write_resources(held.inside, gathered)
    add_resources(run, gathered)
    page = keep_report(run, write_report(analyse(run), "html"), held)
    held.close()
    if options.json:
        print(json.dumps(_summary(gathered, run.directory, page), indent=2, ensure_ascii=False))
        return MET
    missing: dict[str, list[str]] = {}
    for what, why in gathered.missing:
        missing.setdefault(why, []).append(what)
    lines = [
        f"{len(gathered.figures)} figures of {len(gathered.hosts)} hosts from {gathered.source}, "
        f"{len(gathered.t)} moments {gathered.step:g} s apart: {run.directory / RESOURCES}",
        *(f"missing: {', '.join(what)}: {why}" for why, what in missing.items()),
        *gap_lines(gathered),
        f"report: {page or 'no room for it'}",
    ]
    print("\n".join(lines))
    return MET


async def _gather(run: RunData, prometheus: Prometheus, selector: str) -> Resources:
    progress = ConsoleProgress()
    try:
        async with prometheus:
            return await gather_run(run, prometheus, selector=selector, asked=progress.gathering)
    finally:
        progress.close()


def _summary(gathered: Resources, directory: Path, page: Path | None) -> dict[str, Any]:
    told = gathered.model_dump(mode="json", exclude={"figures", "t"})
    return {
        **told,
        "run": str(directory),
        "file": str(directory / RESOURCES),
        "report": str(page) if page else None,
        "moments": len(gathered.t),
        "hosts": gathered.hosts,
        "figures": [figure.name for figure in gathered.figures],
    }
