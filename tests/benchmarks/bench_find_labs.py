"""How true a search's answer is on labs whose limit is planted: whole runs of the program, over real connections.

    .venv/bin/python tests/benchmarks/bench_find_labs.py [--searches 17] [--seed 2026] [--rows 4.0,2.5.0,plain]
        [--at-once 4] [--markdown]

Each search has a SIMULATED Juju controller of its own (lab/juju/simulator.py), a figure about us and never about Juju.
A row is a profile of its store (lab/juju/store.py), at a scale that is drawn anew for each search. So the truth is
arithmetic. A commit keeps the store busy for a known time, and every lease is extended each RENEW seconds: the store is
busy for a share `rho` of the time. Above 1, what is extended at the end of a hold waits for (rho - 1) x hold. The limit
is where the 99th percentile of that is the threshold: rho = 1 + threshold / (0.99 x hold). What a ramp leaves behind
when a hold begins makes the limit smaller, but not smaller than at rho = 1. Both are shown: `holds limit` counts
the intervals that have the first within them, `holds capacity` those that have the second.

The row `etcd`, which needs root, has real etcd members instead, each with a quota of CPU that is drawn. Their load is
renewals a second by LEASES leases. Nobody knows what an extend costs there, so the truth is measured on each lab before
its search, and once more after it: rates grow by a half, and then by 7 % from the last one that met the threshold on. A
line through the 99th percentiles around the threshold meets it at the limit. `capacity` is the smaller of both limits.

The same seed makes the same labs: whoever runs it again an hour later sees whether the intervals agree.

A search stands by its answer if it names a limit, ended as it was asked to, and says nothing against it: no drift, no
target that stays hurt, no probe that says nothing. `lies` are those that stand by an interval without either truth.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import exp, inf, log
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from lab.control import LabError  # noqa: E402
from lab.etcd.cluster import EtcdLab  # noqa: E402
from lab.juju.simulator import JujuLab  # noqa: E402
from lab.juju.store import PROFILES, Profile  # noqa: E402
from tippingpoint.analysis.analyse import analyse  # noqa: E402
from tippingpoint.analysis.search.found import Found  # noqa: E402
from tippingpoint.analysis.search.stage_margins import judged  # noqa: E402
from tippingpoint.analysis.thresholds import stage_checks  # noqa: E402
from tippingpoint.plan.read import validate_plan  # noqa: E402
from tippingpoint.rundir.results import RunData, load_run  # noqa: E402

RENEW, HOLD, THRESHOLD = 2.0, 8.0, 0.5
"""Seconds: between two extensions of a lease, of the longest hold, and of the limit of the 99th percentile."""
ETCD, LEASES, LOWEST = "etcd", 100, 50.0
"""The row of real etcd members, how many leases they have, and the first rate that is tried."""
FEWEST, MOST = 80.0, 220.0
"""Between these numbers of leases the capacity is drawn."""
PLAN: dict[str, Any] = {
    "name": "planted",
    "target": {"kind": "juju"},
    "workload": {"units": 1, "claim_time": "20s", "renew_time": f"{RENEW}s", "timeout": "10s"},
    "find": {"start": 30, "limit": 2000, "over": "6s", "hold": f"{HOLD}s", "resolution": 0.1, "within": "5m"},
    "thresholds": [{"operation": "extend", "p99": f"{THRESHOLD}s", "error_rate": 0.001, "lost_rate": 0}],
    "workers": 1,
}


@dataclass(frozen=True)
class Planted:
    """The truth about a lab, in leases."""

    capacity: float
    """As many keep the store busy all the time."""
    limit: float
    """As many make the 99th percentile of a hold meet the threshold just so."""


@dataclass(frozen=True)
class Searched:
    """What one search said."""

    row: str
    planted: Planted
    found: Found | None
    """None if the run did not get as far as its first probe."""
    seconds: float

    @property
    def named(self) -> bool:
        return self.found is not None and self.found.answer.limit is not None

    @property
    def stands(self) -> bool:
        """Whether it says nothing against its own answer."""
        if self.found is None or not self.named:
            return False
        answer = self.found.answer
        silent = any(probe.held is None for probe in self.found.probes)
        return answer.ended == "resolution" and not (answer.drifts or answer.stays_hurt or silent)

    def holds(self, load: float) -> bool:
        """Whether the interval has that load within it; without a limit named, whether it is where one may be."""
        return self.found is not None and self.found.answer.low <= load <= self.found.answer.high

    @property
    def lies(self) -> bool:
        return self.stands and not (self.holds(self.planted.limit) or self.holds(self.planted.capacity))


def leases_at(profile: Profile, scale: float, rho: float) -> float:
    """Return how many leases keep a store busy for a share `rho` of the time: rho = n / RENEW * cost(n) * scale."""
    rate = rho * RENEW / scale
    slope = profile.per_lease_s * scale
    if not slope:
        return rate / profile.extend_s
    return (-profile.extend_s + (profile.extend_s**2 + 4 * slope * rate) ** 0.5) / (2 * slope)


def planted(profile: Profile, scale: float) -> Planted:
    """Return the truth about a lab of that profile at that scale."""
    rho = 1 + THRESHOLD / (0.99 * HOLD)
    return Planted(leases_at(profile, scale, 1.0), leases_at(profile, scale, rho))


def drawn_scale(row: str, draw: random.Random) -> float:
    """Return a scale at which a store's capacity is a number of leases that is drawn."""
    return leases_at(PROFILES[row], 1.0, 1.0) / exp(draw.uniform(log(FEWEST), log(MOST)))


def run(lab: JujuLab | EtcdLab, plan: dict[str, Any], directory: str) -> tuple[RunData | None, str]:
    """Run a plan on a lab by the program, as a user does; returns the run, if there is one, and what was printed."""
    written = Path(directory) / "plan.yaml"
    written.write_text(yaml.safe_dump(plan))
    # Searches run at once on this machine: a run that knew its lab's processes would wait until all others have gone.
    known = [setting for setting in lab.settings() if not setting.startswith("lab=")]
    settings = [part for setting in known for part in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "tippingpoint", "run", written, *settings, "--out", f"{directory}/runs"],
        env={**os.environ, **(lab.environment if isinstance(lab, JujuLab) else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    runs = list(Path(directory, "runs").glob("*"))
    return (load_run(runs[0]) if runs else None), done.stderr.strip()


def search(lab: JujuLab | EtcdLab, row: str, truth: Planted) -> Searched:
    """Search a lab."""
    begun = time.monotonic()
    plan = PLAN
    if isinstance(lab, EtcdLab):
        find = {**PLAN["find"], "load": "renewals", "leases": LEASES, "start": LOWEST}
        plan = {**PLAN, "target": {"kind": "etcd"}, "find": find}
    with tempfile.TemporaryDirectory() as directory:
        searched_run, printed = run(lab, plan, directory)
        found = analyse(searched_run).found if searched_run is not None else None
    searched = Searched(row, truth, found, time.monotonic() - begun)
    said = found.sentence if found is not None else printed or "nothing"
    print(
        f"  {time.strftime('%H:%M:%S')} {row}, planted {truth.capacity:.0f} to {truth.limit:.0f}: {said}",
        flush=True,
    )
    return searched


def percentiles(lab: EtcdLab, rates: Sequence[float]) -> list[float]:
    """Return the seconds of the 99th percentile of extends at each of these rates, one after the other."""
    stages = [
        {"leases": LEASES, "renewals": rate, "over": PLAN["find"]["over"], "hold": f"{HOLD}s"}
        for rate in (rates[0], *rates)  # the first one has the claims
    ]
    listed = {**PLAN, "target": {"kind": "etcd"}, "stages": stages}
    del listed["find"]
    plan = validate_plan(listed)
    with tempfile.TemporaryDirectory() as directory:
        measured, printed = run(lab, listed, directory)
        if measured is None or len(measured.stages) < len(stages):
            raise LabError(f"etcd: {printed}", "a member that is loaded")
        held = [judged(replace(stage, kind="find"), plan=plan) for stage in measured.stages[1:]]
    p99 = [check for stage in held for check in stage_checks(stage, plan.thresholds) if check.limit == "p99"]
    return [inf if check.observed is None else check.observed / 1e6 for check in p99]


def last_met(rates: Sequence[float], found: Sequence[float]) -> int:
    """Return the place of the last of these rates that met the threshold; LabError if that says no limit."""
    last = max((at for at, seconds in enumerate(found) if seconds <= THRESHOLD), default=len(found))
    if last + 1 >= len(found):
        raise LabError(f"etcd: {found} at {rates}", "a limit among these rates")
    return last


def limit_among(lab: EtcdLab, rates: Sequence[float]) -> float:
    """Return where a line through the last rate that met the threshold and the next one meets it."""
    found = percentiles(lab, rates)
    last = last_met(rates, found)
    between = (THRESHOLD - found[last]) / (found[last + 1] - found[last])
    return rates[last] + between * (rates[last + 1] - rates[last])


def search_etcd(seed: str) -> Searched:
    """Make an etcd with a quota that is drawn, and search it between two measurements of its limit."""
    quota = exp(random.Random(f"{ETCD} {seed}").uniform(log(0.02), log(0.04)))
    with EtcdLab(1, cpu=quota) as lab:
        far = [LOWEST * 1.5**step for step in range(9)]
        around = far[last_met(far, percentiles(lab, far))]
        # More on the far side than the step of the look above: one of its loads may break for another reason.
        rates = [round(around * 1.07**step, 1) for step in range(-2, 12)]
        before = limit_among(lab, rates)
        searched = search(lab, ETCD, Planted(before, before))
        after = limit_among(lab, rates)
    print(f"  {ETCD}: the limit was {before:.0f} before that search, and {after:.0f} after it", flush=True)
    return replace(searched, planted=Planted(min(before, after), max(before, after)))


def search_lab(row: str, seed: str) -> Searched | None:
    """Make a lab, and search it; None if its limit cannot be measured, as on a machine that others keep busy."""
    if row == ETCD:
        try:
            return search_etcd(seed)
        except LabError as problem:
            print(f"  {time.strftime('%H:%M:%S')} {row}, left out: {problem}", flush=True)
            return None
    scale = drawn_scale(row, random.Random(f"{row} {seed}"))
    with JujuLab(profile=row, scale=scale) as lab:
        return search(lab, row, planted(PROFILES[row], scale))


HEAD = (
    *("profile", "searches", "probes", "minutes", "error p50", "error p90"),
    *("holds limit", "holds capacity", "width", "named", "stands", "lies"),
)


def line(row: str, found: Sequence[Searched]) -> list[str]:
    """Return a row of the table. The error is that of the limit named, from the nearer of the two truths."""
    answers = [(one.planted, one.found.answer) for one in found if one.found is not None and one.named]
    errors = sorted(
        max(0.0, truth.capacity - limit, limit - truth.limit) / truth.limit
        for truth, answer in answers
        if (limit := answer.limit) is not None
    )
    widths = [(answer.high - answer.low) / answer.limit for _, answer in answers if answer.limit is not None]

    def share(value: float) -> str:
        return f"{100 * value:.1f} %"

    def count(is_so: Callable[[Searched], bool]) -> str:
        return str(sum(is_so(one) for one in found))

    return [
        row,
        str(len(found)),
        f"{statistics.mean(len(one.found.probes) if one.found is not None else 0 for one in found):.1f}",
        f"{statistics.mean(one.seconds for one in found) / 60:.1f}",
        share(statistics.median(errors)) if errors else "",
        share(errors[int(0.9 * len(errors))]) if errors else "",
        count(lambda one: one.holds(one.planted.limit)),
        count(lambda one: one.holds(one.planted.capacity)),
        share(statistics.median(widths)) if widths else "",
        count(lambda one: one.named),
        count(lambda one: one.stands),
        count(lambda one: one.lies),
    ]


def show(cells: Sequence[str], markdown: bool) -> None:
    if markdown:
        print(f"| {' | '.join(cells)} |", flush=True)
    else:
        print("".join(f"{cell:>15}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--searches", type=int, default=17, help="of each row")
    parser.add_argument("--seed", default="2026")
    parser.add_argument("--rows", default="4.0,2.5.0,plain")
    parser.add_argument("--at-once", type=int, default=4, help="labs; a busy machine says less of each")
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    rows = asked.rows.split(",")
    seeds = [f"{asked.seed} {number}" for number in range(asked.searches)]
    print(f"{asked.searches} labs a row, {asked.at_once} at once, seed {asked.seed}, {os.cpu_count()} cores")
    with ThreadPoolExecutor(asked.at_once) as pool:
        jobs = [pool.submit(search_lab, row, seed) for seed in seeds for row in rows]
    found = [searched for job in jobs if (searched := job.result()) is not None]
    show(HEAD, asked.markdown)
    if asked.markdown:
        show(["---"] * len(HEAD), True)
    for row in rows:
        if of_row := [one for one in found if one.row == row]:
            show(line(row, of_row), asked.markdown)
    if found:
        show(line("all", found), asked.markdown)
    print(f"load average {os.getloadavg()[2]:.0f} in the last 15 minutes")


if __name__ == "__main__":
    main()
