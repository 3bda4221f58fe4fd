"""How often a report names rightly why a target tipped: whole runs on labs whose constraint is planted.

    flock LOCK nice .venv/bin/python tests/benchmarks/bench_why.py [--runs 2] [--healthy 2] [--only quota,lock]
        [--markdown]

Each run has a lab of its own, a Prometheus that scrapes it every second, and a plan whose load doubles. `--runs` is the
number of runs of each planted cause, `--healthy` that of each kind of healthy lab. Root is needed.

| planted | lab | right is |
|---|---|---|
| quota | etcd, 3 members, each with 0.08 of a core | CPU quota, of any member |
| slow member | etcd, 3 members, one of which has 0.05 of a core | CPU quota, of that member alone |
| disk | etcd, 1 member, whose disk makes 100 writes a second | disk |
| network | etcd, 1 member whose answers have 300 kbit/s on a line beyond its machine | network |
| card | the same on its own network card | network |
| lock | a SIMULATED Juju controller, whose store makes one commit of 4 ms after the other | queue |
| healthy | etcd, 1 member whose card has 1 Gbit/s, or 3, with a threshold of 50 us that none meets | nothing |

A healthy lab "tips" at its first load, since its threshold is missed there, so that a cause is looked for. The lock is
a figure about us and never about Juju. Its queue is the simulator's own count, under the name that Juju 4 gives its
own.

"Right" is what is named at the first sign of tipping. Another program that takes the machine for a while tips a lab at
a smaller load than the planted constraint does. `beyond` counts the runs in which that is named at the cliff only.

The node exporter of the whole machine is not scraped: every lab shares the machine with the generator and whatever else
runs there, whose CPU and disk are truly used up at times.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from lab.ask import ask  # noqa: E402
from lab.etcd.cluster import EtcdLab  # noqa: E402
from lab.exporters import Exporters  # noqa: E402
from lab.figures import ServedFigures, quota_figures  # noqa: E402
from lab.juju.simulator import JujuLab  # noqa: E402
from lab.watched import watched  # noqa: E402
from tippingpoint.analysis.analyse import analyse  # noqa: E402
from tippingpoint.analysis.cause import Cause  # noqa: E402
from tippingpoint.monitoring.scrape.jobs import Found, static_targets  # noqa: E402
from tippingpoint.rundir.results import load_run  # noqa: E402

HOLD_S = 6
"""Seconds of each hold: six scrapes, of which rates over four seconds leave two or three."""
SLOW = "m2"
"""The slow member."""


@dataclass(frozen=True)
class Planted:
    """A kind of lab, the loads on it, and what is right to be named."""

    name: str
    lab: Callable[[], Any]
    leases: tuple[int, ...]
    of: str
    """The constraint that is planted; empty for none."""
    hosts: tuple[str, ...] = ()
    """The hosts that have it; empty for any."""
    p99: str = "1s"
    over: str = "2s"

    def is_right(self, cause: Cause | None) -> bool:
        """Tell whether the first cause of a run is the planted one."""
        if not self.of:
            return cause is None or cause.named is None
        if cause is None or cause.named is None or cause.named.of != self.of:
            return False
        return not self.hosts or tuple(cause.hosts) == self.hosts


class WithQuotas:
    """An etcd lab whose control groups are scraped too."""

    def __init__(self, lab: EtcdLab, figures: ServedFigures) -> None:
        self._lab, self._figures = lab, figures

    def scraped(self, exporters: Exporters) -> Found:
        """Return the scrape jobs of the members and of their control groups."""
        lines = [
            f"{endpoint.removeprefix('http://')} host={name}"
            for name, endpoint in zip(self._lab.names, self._lab.endpoints, strict=True)
        ]
        for name, groups in self._lab.groups.items():
            lines.append(f"{self._figures.serve(partial(quota_figures, groups))} host={name}")
        return static_targets("\n".join(lines))


class WithQueue:
    """A simulated controller whose store's queue is scraped."""

    def __init__(self, lab: JujuLab, figures: ServedFigures) -> None:
        self._lab, self._figures = lab, figures

    def scraped(self, exporters: Exporters) -> Found:
        """Return the scrape job of the store."""

        def waiting() -> str:
            counts = ask(self._lab.socket, {"do": "counts"})
            return f"juju_db_requests_total {counts['commits-waiting']}\n"

        return static_targets(f"{self._figures.serve(waiting)} host=s1")


@contextmanager
def scraped(lab: Any) -> Generator[str]:
    """Scrape a lab; yields the URL of Prometheus."""
    with ServedFigures() as figures:
        seen = lab
        if isinstance(lab, JujuLab):
            seen = WithQueue(lab, figures)
        elif lab.groups:
            seen = WithQuotas(lab, figures)
        with watched(seen) as prometheus:
            yield prometheus.url


KINDS = (
    Planted("quota", lambda: EtcdLab(3, cpu=0.08), (100, 200, 400, 800, 1600), "CPU quota"),
    Planted(
        "slow member", lambda: EtcdLab(3, cpu={SLOW: 0.05}), (100, 200, 400, 800, 1600), "CPU quota", (SLOW,)
    ),
    # Six loads, because a knee among fewer is told by larger odds only. Three of them are light for this disk: in a
    # ramp of 40 leases an fsync may wait already.
    Planted("disk", lambda: EtcdLab(1, writes=100), (10, 20, 40, 80, 240, 1040), "disk", over="4s"),
    Planted("network", lambda: EtcdLab(1, bits=300_000), (50, 100, 200, 400, 800), "network"),
    Planted("card", lambda: EtcdLab(1, bits=300_000, own_card=True), (50, 100, 200, 400, 800), "network"),
    Planted("lock", lambda: JujuLab(profile="plain"), (40, 80, 160, 320), "queue", over="4s"),
    Planted("healthy 1", lambda: EtcdLab(1, bits=10**9, own_card=True), (50, 100, 200), "", p99="50us"),
    Planted("healthy 3", lambda: EtcdLab(3), (50, 100, 200), "", p99="50us"),
)


def plan_of(kind: Planted) -> dict[str, Any]:
    """Return the plan of a kind of lab."""
    return {
        "name": "why",
        "target": {"kind": "juju" if kind.name == "lock" else "etcd"},
        "workload": {"units": 1, "claim_time": "20s", "renew_time": "1s", "timeout": "10s"},
        "stages": [{"leases": leases, "over": kind.over, "hold": f"{HOLD_S}s"} for leases in kind.leases],
        "thresholds": [{"operation": operation, "p99": kind.p99} for operation in ("claim", "extend")],
        "workers": 1,
    }


def run_once(kind: Planted, directory: Path) -> tuple[str, list[Cause]]:
    """Run once on a fresh lab; returns the tipping point in words, and the cause at each sign."""
    plan = directory / "plan.yaml"
    plan.write_text(yaml.safe_dump(plan_of(kind)))
    with kind.lab() as lab, scraped(lab) as url:
        settings = [word for setting in lab.settings() for word in ("--set", setting)]
        program = [sys.executable, "-m", "tippingpoint"]
        environment = {**os.environ, "JUJU_DATA": str(lab.data)} if isinstance(lab, JujuLab) else None
        subprocess.run(
            [*program, "run", str(plan), *settings, "--out", str(directory / "runs")],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        (run,) = (directory / "runs").iterdir()
        subprocess.run(
            [*program, "collect", str(run), "--prometheus", url],
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            check=True,
        )
    analysis = analyse(load_run(run))
    return analysis.tipping.sentence, analysis.causes


def main() -> None:
    """Run all kinds in turn, and print what was named."""
    parser = argparse.ArgumentParser(description="How often a cause is named rightly.")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--healthy", type=int, default=2)
    parser.add_argument("--only", default="", help="kinds, separated by commas")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    only = [word.strip() for word in options.only.split(",") if word.strip()]
    kinds = [kind for kind in KINDS if not only or kind.name in only]
    right: dict[str, list[bool]] = {kind.name: [] for kind in kinds}
    beyond: dict[str, list[bool]] = {kind.name: [] for kind in kinds}
    named: dict[str, list[str]] = {kind.name: [] for kind in kinds}
    for number in range(max(options.runs, options.healthy)):
        for kind in kinds:
            if number >= (options.runs if kind.of else options.healthy):
                continue
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="bench-why-") as directory:
                tipped, causes = run_once(kind, Path(directory))
            cause = causes[0] if causes else None
            good = kind.is_right(cause) if kind.of else all(map(kind.is_right, causes))
            right[kind.name].append(good)
            beyond[kind.name].append(bool(kind.of) and not good and any(map(kind.is_right, causes[1:])))
            found = cause.named if cause is not None else None
            named[kind.name].append(f"{found.of} of {found.host}" if found is not None else "nothing")
            report = {
                "kind": kind.name,
                "right": good,
                "seconds": round(time.monotonic() - began),
                "tipped": tipped,
                "why": [each.sentence for each in causes],
            }
            print(json.dumps(report), flush=True)
    _print(kinds, right, beyond, named, markdown=options.markdown)


def _print(
    kinds: list[Planted],
    right: dict[str, list[bool]],
    beyond: dict[str, list[bool]],
    named: dict[str, list[str]],
    *,
    markdown: bool,
) -> None:
    line = "| {} | {} | {} | {} | {} |" if markdown else "{:12} {:>5} {:>6} {:>4}  {}"
    print(line.format("planted", "right", "beyond", "of", "named"))
    if markdown:
        print("|---|---:|---:|---:|---|")
    for kind in kinds:
        told = [sum(right[kind.name]), sum(beyond[kind.name]), len(right[kind.name])]
        print(line.format(kind.name, *told, ", ".join(named[kind.name])))
    planted = [good for kind in kinds if kind.of for good in right[kind.name]]
    healthy = [good for kind in kinds if not kind.of for good in right[kind.name]]
    print(f"named rightly: {sum(planted)} of {len(planted)}")
    print(f"nothing named: {sum(healthy)} of {len(healthy)} healthy")


if __name__ == "__main__":
    main()
