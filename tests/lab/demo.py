"""The demo: a private 3-member etcd, the shipped plan `etcd-demo` run on it, and where its report is.

The run is a process of its own, as a user would start it. Ctrl-C, SIGTERM and SIGHUP end it with a report of
what was measured; then the cluster goes. Exit code: 0 when there is a report (a threshold missed because a
member was killed on purpose is what a demo shows), else the run's own.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.lab.control import LabError
from tests.lab.etcd import EtcdLab
from tests.lab.tether import tethered

_MEASURED = {0: "thresholds met", 1: "thresholds missed", 4: "verdict withheld"}
_END_WITHIN_S = 20.0


def main(arguments: list[str]) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="demo", description="Leases on a private etcd; one member is killed."
    )
    parser.add_argument("--set", dest="settings", metavar="KEY=VALUE", action="append", default=[])
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="where reports go (./runs)"
    )
    options = parser.parse_args(arguments)
    before = _reports(options.out)
    run: subprocess.Popen[bytes] | None = None
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
    print("demo: starting a private 3-member etcd on loopback", flush=True)
    try:
        with EtcdLab(members=3) as lab:
            settings = [f"--set={setting}" for setting in [*lab.settings(), *options.settings]]
            tippingpoint = str(Path(sys.executable).with_name("tippingpoint"))
            command = [tippingpoint, "run", "etcd-demo", f"--out={options.out}", *settings]
            # A session of its own: the terminal's Ctrl-C reaches the run once, through `end`.
            run = subprocess.Popen(tethered(command, signal.SIGINT), start_new_session=True)
            code = run.wait()
    except LabError as problem:
        print(f"demo: {problem}", file=sys.stderr)
        return 3
    new = sorted(_reports(options.out) - before, key=os.path.getmtime)
    print("demo: etcd is stopped; nothing is left running")
    if not new or (code not in _MEASURED and not signals):
        return code if code > 0 else 1
    if signals:
        print("demo: ended early, as asked")
    elif code == 1:
        print("demo: thresholds missed; a member was killed on the way, on purpose")
    else:
        print(f"demo: {_MEASURED[code]}")
    print(f"demo: the report is {new[-1].resolve()}")
    return 0


def _reports(directory: Path) -> set[Path]:
    return set(directory.glob("**/report.html"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
