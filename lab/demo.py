"""The demo: starts a private cluster, runs a shipped plan, collects figures of the members, and names the report.

    python -m lab.demo etcd              # leases on 3 members of etcd, until they tip over
    python -m lab.demo lxd --members 8   # containers on 8 members of LXD; needs root
    python -m lab.demo pacemaker         # a ramp of CIB updates on 3 nodes of Pacemaker; needs root

The run is a separate process, as if started by a user. Ctrl-C, SIGTERM and SIGHUP end it with a report of what was
measured; then the cluster is removed. The exit code is 0 with a report, even if the run missed a threshold. It is 130
if the demo was ended early, and otherwise the run's own.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lab.arguments import demo_parser
from lab.commands import directory_said
from lab.control import LabError
from lab.etcd.cluster import EtcdLab
from lab.lxd.cluster import LxdLab
from lab.openstack.cloud import OpenstackLab
from lab.pacemaker.cluster import PacemakerLab
from lab.places import Places, take_places
from lab.prometheus import PrometheusLab
from lab.tether import tethered
from lab.watched import watched
from tippingpoint.errors import UserError

Lab = EtcdLab | LxdLab | OpenstackLab | PacemakerLab
LABS: dict[str, Callable[[int, str | None, Places], Lab]] = {
    "etcd": lambda members, release, places: EtcdLab(members, release=release, places=places),
    "lxd": lambda members, release, places: LxdLab(members, release=release, places=places),
    "incus": lambda members, release, places: LxdLab(
        members, product="incus", release=release, places=places
    ),
    "openstack": lambda members, release, places: OpenstackLab(members, release=release, places=places),
    "pacemaker": lambda members, release, places: PacemakerLab(members, release=release or "", places=places),
}
"""By the number of members, the release (None is this machine's), and the processors."""
_PLANS = {
    "etcd": "etcd-demo",
    "lxd": "lxd-cluster-small",
    "incus": "lxd-cluster-small",
    "pacemaker": "pacemaker-cib-small",
}
_NAMES = {"etcd": "etcd", "lxd": "LXD", "incus": "Incus", "pacemaker": "Pacemaker"}
_MEASURED = {0: "thresholds met", 1: "thresholds missed", 4: "verdict withheld"}
_END_WITHIN_S = 20.0


def main(arguments: list[str]) -> int:
    """Run the demo and return the exit code."""
    parser = demo_parser()
    options = parser.parse_args(arguments)
    if options.target is None:
        parser.error("TARGET: missing: expected etcd, lxd, incus or pacemaker")
    try:
        places = take_places(options.cpus, options.members)
    except UserError as problem:
        print(f"demo: {problem}", file=sys.stderr)
        return 2
    run: subprocess.Popen[str] | None = None
    signals = 0

    def end(number: int, _frame: object) -> None:
        nonlocal signals
        signals += 1
        if run is None:
            raise SystemExit(128 + number)  # the cluster is not up yet: its context cleans up
        run.send_signal(signal.SIGINT)
        if number != signal.SIGINT:
            signal.setitimer(signal.ITIMER_REAL, _END_WITHIN_S)

    def end_now(_number: int, _frame: object) -> None:
        if run is not None:
            run.kill()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    signal.signal(signal.SIGALRM, end_now)
    name = _NAMES[options.target] + (f" of {options.release}" if options.release else "")
    print(f"demo: starting a private {options.members}-member {name}: {places.sentence()}", flush=True)
    try:
        with (
            LABS[options.target](options.members, options.release, places) as lab,
            _watched_if_possible(lab) as prometheus,
        ):
            settings = [f"--set={setting}" for setting in [*lab.settings(), *options.settings]]
            # In its own session, so that Ctrl-C reaches the run only once, through `end`.
            run = _start("run", _PLANS[options.target], f"--out={options.out}", *settings)
            made = directory_said(run.stdout or (), options.out)
            code = run.wait()
            if prometheus and made and (code in _MEASURED or signals):
                run = _start("collect", str(made), f"--prometheus={prometheus.url}")
                _show_gathered(run.communicate()[0])
    except LabError as problem:
        print(f"demo: {problem}", file=sys.stderr)
        return 3
    print(f"demo: {name} is stopped; nothing is left running")
    if made is None or (code not in _MEASURED and not signals):
        return code if code > 0 else 1
    if signals:
        print("demo: ended early, as asked")
    elif code == 1:
        on_purpose = (
            ", as intended: the load grew until the cluster tipped over" if options.target == "etcd" else ""
        )
        print(f"demo: thresholds missed{on_purpose}")
    else:
        print(f"demo: {_MEASURED[code]}")
    page = (made / "report.html").resolve()
    print(f"demo: the report is {page}" if page.exists() else f"demo: the run is {made.resolve()}")
    return 130 if signals else 0


@contextmanager
def _watched_if_possible(lab: Lab) -> Generator[PrometheusLab | None]:
    """Yield a Prometheus that scrapes the lab; None if there is none, which the report then says."""
    with ExitStack() as ending:
        try:
            prometheus = ending.enter_context(watched(lab))
        except LabError as problem:
            print(f"demo: {problem}; the report lacks what members felt", file=sys.stderr)
            prometheus = None
        yield prometheus


def _show_gathered(said: str) -> None:
    """Print the output of `collect`, without the list of figures that a lab does not export: the report has it."""
    lines = said.splitlines()
    for line in lines:
        if not line.startswith("missing: "):
            print(line)
    if any(line.startswith("missing: ") for line in lines):
        print("demo: the report names the figures that nothing in this lab exports")


def _start(*arguments: str) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("tippingpoint")), *arguments]
    return subprocess.Popen(
        tethered(command, signal.SIGINT), stdout=subprocess.PIPE, text=True, start_new_session=True
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
