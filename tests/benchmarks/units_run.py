"""Many units that play one run on this machine, each with a runner and workers of its own, and the gathered report.

    python tests/benchmarks/units_run.py PLANS OUT

PLANS is a JSON file with one plan for each unit: the same but for targets, which are a unit's own. Runners share this
process, and their workers are processes. The units hear their leader at once, without a Juju between them. What they
hear and say is what relation data would have, and its largest sizes are printed as a line of JSON, beside the gathered
run's directory. Each unit removes what it made.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tests.functional.units.troupe import Troupe  # noqa: E402
from tippingpoint.analysis.analyse import analyse  # noqa: E402
from tippingpoint.digest.merge import gather  # noqa: E402
from tippingpoint.digest.unit_digest import make_digest  # noqa: E402
from tippingpoint.plan.read import validate_plan  # noqa: E402
from tippingpoint.report import write_report  # noqa: E402
from tippingpoint.rundir.results import load_run  # noqa: E402


async def play(plans: Path, out: Path) -> None:
    """Play the run, gather it, and write its report."""
    units = [validate_plan(plan) for plan in json.loads(plans.read_text())]
    troupe = Troupe(units[0], len(units), out / "parts")
    troupe.waits_for = len(units)
    parts = await asyncio.gather(*(troupe.enter(plan) for plan in units))
    digests = {unit: make_digest(part) for unit, part in zip(troupe.run.units, parts, strict=True)}
    over = troupe.run.model_copy(update={"over": True})
    directory = gather(over, digests, {}, out)
    page = write_report(analyse(load_run(directory)), "html")
    (directory / "report.html").write_text(page, encoding="utf-8")
    told = {
        "directory": str(directory),
        "digest": max(map(len, digests.values())),
        "run": len(over.model_dump_json()),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(play(Path(sys.argv[1]), Path(sys.argv[2])))
