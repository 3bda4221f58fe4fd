"""Runs one plan on two private targets, collects figures of their members, and writes one page that compares them.

    python -m lab.versus etcd        # API v2 against v3
    python -m lab.versus openstack   # Nova and Neutron on one message broker, and on one each

Each command is a separate process, as if started by a user. The exit code is 0 with a page, even if a threshold was
missed or one side is worse. Otherwise it is that of the command that failed.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.control import LabError
from lab.etcd.cluster import EtcdLab
from lab.openstack.cloud import OpenstackLab
from lab.tether import tethered
from lab.watched import watched


@dataclass(frozen=True)
class _Side:
    name: str
    """The name of the run."""
    what: str
    lab: Callable[[], EtcdLab | OpenstackLab]
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Question:
    plan: str
    page: str
    sides: tuple[_Side, _Side]


_PORTS = (f"target.network={OpenstackLab.network}",)
"""Each server needs a port. Otherwise Neutron would send its agents hardly any messages."""
_QUESTIONS = {
    "etcd": _Question(
        "etcd-ramp",
        "etcd-v2-v3.html",
        (
            _Side("etcd-v2", "API v2 of a private 3-member etcd", EtcdLab, ("target.api=v2",)),
            _Side("etcd-v3", "API v3 of a private 3-member etcd", EtcdLab, ("target.api=v3",)),
        ),
    ),
    "openstack": _Question(
        "openstack-boot-delete",
        "openstack-brokers.html",
        (
            _Side(
                "one-broker", "a private OpenStack with one broker", lambda: OpenstackLab(brokers=1), _PORTS
            ),
            _Side(
                "two-brokers", "a private OpenStack with two brokers", lambda: OpenstackLab(brokers=2), _PORTS
            ),
        ),
    ),
}
_MEASURED = (0, 1, 4)
"""Exit codes of a run that measured something: met, missed, withheld."""


def main(arguments: Sequence[str]) -> int:
    """Run and compare both, and return the exit code."""
    parser = argparse.ArgumentParser(prog="versus", description="One plan on two private targets.")
    parser.add_argument("target", choices=_QUESTIONS)
    parser.add_argument("--plan", help="another plan than the one that is shipped for this")
    parser.add_argument("--set", dest="settings", metavar="KEY=VALUE", action="append", default=[])
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="where runs go (./runs)"
    )
    options = parser.parse_args(arguments)
    question = _QUESTIONS[options.target]
    plan: str = options.plan or question.plan
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    runs: list[Path] = []
    try:
        for side in question.sides:
            before = _runs(options.out)
            code = _run(side, plan, options)
            made = sorted(_runs(options.out) - before)
            if code not in _MEASURED or not made:
                return code or 1
            runs.append(made[-1])
    except LabError as problem:
        print(f"versus: {problem}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130
    page = options.out / question.page
    with page.open("wb") as file:
        code = _call("compare", *map(str, runs), "--format=html", into=file.fileno())
    if code not in (0, 1):
        return code
    _call("compare", *map(str, runs), "--format=md", "--tolerance=0.1", lines=3)
    print(f"versus: the page is {page.resolve()}")
    return 0


def _run(side: _Side, plan: str, options: argparse.Namespace) -> int:
    print(f"versus: {plan} on {side.what}", flush=True)
    with side.lab() as lab, watched(lab) as prometheus:
        settings = [f"name={side.name}", *lab.settings(), *side.settings, *options.settings]
        before = _runs(options.out)
        code = _call("run", plan, f"--out={options.out}", *(f"--set={one}" for one in settings))
        for made in _runs(options.out) - before if code in _MEASURED else ():
            _call("collect", str(made), f"--prometheus={prometheus.url}")
    return code


def _call(*arguments: str, into: int | None = None, lines: int | None = None) -> int:
    """Run a command of tippingpoint, and print at most the first `lines` of its output."""
    command = tethered([str(Path(sys.executable).with_name("tippingpoint")), *arguments], signal.SIGINT)
    if lines is None:
        return subprocess.run(command, stdout=into, check=False).returncode
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print("\n".join(done.stdout.splitlines()[:lines]))
    return done.returncode


def _runs(directory: Path) -> set[Path]:
    return {manifest.parent for manifest in directory.glob("*/manifest.json")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
