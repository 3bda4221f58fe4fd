"""Runs one plan on two private targets, collects figures of their members, and writes one page that compares them.

    python -m lab.versus compare-etcd      # API v2 and v3
    python -m lab.versus compare-brokers   # Nova and Neutron on one message broker, and on one each

Each command is a separate process, as if started by a user. The exit code is 0 with a page, even if a threshold was
missed or one side is worse. It is 3 if a side measured nothing.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.arguments import versus_parser
from lab.commands import run_on, write_page
from lab.control import LabError
from lab.etcd.cluster import EtcdLab
from lab.openstack.cloud import OpenstackLab
from lab.places import Places, take_places
from lab.watched import watched
from tippingpoint.errors import UserError


@dataclass(frozen=True)
class _Side:
    name: str
    """The name of the run."""
    what: str
    lab: Callable[[Places], EtcdLab | OpenstackLab]
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Question:
    plan: str
    page: str
    sides: tuple[_Side, _Side]


def _etcd(places: Places) -> EtcdLab:
    return EtcdLab(_MEMBERS, places=places)


def _openstack(brokers: int) -> Callable[[Places], OpenstackLab]:
    return lambda places: OpenstackLab(brokers=brokers, places=places)


_MEMBERS = 3
_PORTS = (f"target.network={OpenstackLab.network}",)
"""Each server needs a port. Otherwise Neutron would send its agents hardly any messages."""
_QUESTIONS = {
    "compare-etcd": _Question(
        "etcd-ramp",
        "etcd-v2-v3.html",
        (
            _Side("etcd-v2", "API v2 of a private 3-member etcd", _etcd, ("target.api=v2",)),
            _Side("etcd-v3", "API v3 of a private 3-member etcd", _etcd, ("target.api=v3",)),
        ),
    ),
    "compare-brokers": _Question(
        "openstack-boot-delete",
        "openstack-brokers.html",
        (
            _Side("one-broker", "a private OpenStack with one broker", _openstack(1), _PORTS),
            _Side("two-brokers", "a private OpenStack with two brokers", _openstack(2), _PORTS),
        ),
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Run and compare both sides of a question, and return the exit code."""
    script, *rest = arguments
    options = versus_parser(script).parse_args(rest)
    question = _QUESTIONS[script]
    plan: str = options.plan or question.plan
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    runs: list[Path] = []
    try:
        places = take_places(options.cpus, _MEMBERS if script == "compare-etcd" else 0)
        for side in question.sides:
            print(f"{script}: {plan} on {side.what}", flush=True)
            with side.lab(places) as lab, watched(lab) as prometheus:
                settings = [f"name={side.name}", *lab.settings(), *side.settings, *options.settings]
                runs.append(run_on(prometheus, plan, options.out, settings))
    except UserError as problem:
        print(f"{script}: {problem}", file=sys.stderr)
        return 2
    except (LabError, KeyboardInterrupt) as problem:
        if isinstance(problem, LabError):
            print(f"{script}: {problem}", file=sys.stderr)
        if runs:
            print(f"{script}: 1 run kept: {runs[0]}")
        return 3 if isinstance(problem, LabError) else 130
    return write_page(options.out / question.page, *map(str, runs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
