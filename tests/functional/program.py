"""The program as a user runs it, and an etcd as its administrator sees it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from lab.etcd.cluster import EtcdLab
from lab.juju.simulator import JujuLab
from tests.functional.forked import Forked
from tippingpoint.analysis.analyse import analyse
from tippingpoint.report import write_report
from tippingpoint.rundir.results import RunData, load_run

T = TypeVar("T")

CHECKOUT = Path(__file__).resolve().parents[2]
WITHIN_S = 600.0
"""What takes seconds takes no longer, on a machine that is slow and busy. Only what hangs comes to this limit."""
TO_THE_END = (0, 1, 4)
"""The exit codes of a run that came to its end, whatever it says: on a slow machine the load may never be there in
full, and then no verdict is given."""
QUICK: dict[str, Any] = {
    "name": "quick",
    # (no lease runs out, and nothing is given up, while a busy machine stands still)
    "workload": {"units": 2, "claim_time": "60s", "renew_time": "500ms", "timeout": "20s"},
    "stages": [{"leases": 20, "over": "200ms", "hold": "2s"}],
    "thresholds": [{"operation": "extend", "p99": "10s", "error_rate": 1, "lost_rate": 1}],
    "workers": 2,
}


UNHURRIED: dict[str, Any] = {**QUICK["workload"], "renew_time": "2s"}
"""For searches: renewals that no machine is so late with that a load counts as not held."""
STORMY: dict[str, Any] = {**QUICK["workload"], "claim_time": "10s"}
"""For storms, in which units of etcd wait until their leases of before have run out."""


def write_plan(directory: Path, **changes: Any) -> Path:
    """The quick plan with top-level fields replaced, as a file."""
    path = directory / "plan.yaml"
    path.write_text(yaml.safe_dump({**QUICK, **changes}), encoding="utf-8")
    return path


def command(*arguments: str | Path) -> list[str]:
    """The command line of the program."""
    return [sys.executable, "-m", "tippingpoint", *map(str, arguments)]


def execute(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    """Start the program by its command line, for what looks at that, or at its environment, in /proc."""
    return subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def start(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    """Start the program without waiting for it."""
    return Forked([*map(str, arguments)], {**os.environ, **environment})


def run(*arguments: str | Path, within: float = WITHIN_S) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    with start(*arguments) as process:
        try:
            out, err = process.communicate(timeout=within)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def only_run(out: Path) -> RunData:
    """The one run kept in a directory."""
    (directory,) = [path for path in out.iterdir() if path.is_dir()]
    return load_run(directory)


def until(found: Callable[[], T], what: str = "it", within: float = WITHIN_S, every: float = 0.05) -> T:
    """Wait until something is so, looking `every` so many seconds; returns what was found."""
    deadline = time.monotonic() + within
    while not (there := found()):
        assert time.monotonic() < deadline, f"not so within {within:g} s: {what}"
        time.sleep(every)
    return there


def etcd_call(endpoint: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """A call of etcd's JSON gateway."""
    request = urllib.request.Request(endpoint + path, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
        result: dict[str, Any] = json.load(answer)
    return result


def keys(endpoint: str) -> list[str]:
    """Every key there is."""
    nothing = base64.b64encode(b"\0").decode()
    answer = etcd_call(endpoint, "/v3/kv/range", {"key": nothing, "range_end": nothing, "keys_only": True})
    return [base64.b64decode(entry["key"]).decode() for entry in answer.get("kvs", [])]


def leases(endpoint: str) -> list[int]:
    """Every lease there is."""
    return [int(lease["ID"]) for lease in etcd_call(endpoint, "/v3/lease/leases", {}).get("leases", [])]


def no_traceback(*outputs: str) -> bool:
    """Whether none of these would frighten a user."""
    return not any("Traceback" in output or "Exception" in output for output in outputs)


def wait_for_hold(out: Path) -> Path:
    """The directory of the run below `out`, once its first stage is held."""

    def held() -> Path | None:
        for directory in out.glob("*"):
            if any('"hold"' in path.read_text() for path in directory.glob("worker-*.jsonl")):
                return directory
        return None

    directory = until(held, "a stage is held")
    assert directory is not None
    return directory


def workers_of(pid: int) -> list[int]:
    """The worker processes of a run."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def settings(lab: EtcdLab) -> list[str]:
    """The options that name the lab as the target of a run."""
    return [part for setting in lab.settings() for part in ("--set", setting)]


def settings_without_lab(lab: EtcdLab | JujuLab) -> list[str]:
    """The same without the lab's socket, for a machine that does other things too.

    A run that knows the lab's processes blames what it misses on others, and a search waits until these have gone.
    """
    return [
        part for setting in lab.settings() if not setting.startswith("lab=") for part in ("--set", setting)
    ]


def leases_left(lab: EtcdLab) -> list[int]:
    """Every lease there is, told by a member that knows all that any of them has answered to."""
    keys(lab.endpoints[0])  # for which it catches up; of leases it tells what it knows
    return leases(lab.endpoints[0])


def sentences(measured: RunData) -> tuple[str, str]:
    """What a report says of a run: its verdict and its tipping point."""
    report: dict[str, Any] = json.loads(write_report(analyse(measured), "json"))
    return report["verdict"]["sentence"], report["tipping"]["sentence"]


def expect_missed(
    done: subprocess.CompletedProcess[str], measured: RunData, operation: str, limit: str
) -> None:
    """A run was beyond a limit, and its exit code says so: 1, or 4 if the generator itself was late meanwhile, as it
    may be on a busy machine, and the verdict names that."""
    verdict = analyse(measured).verdict
    assert done.returncode == verdict.exit_code, done.stdout + done.stderr
    beyond = [
        check
        for check in verdict.checks
        if (check.operation, check.limit) == (operation, limit)
        and check.observed is not None
        and check.observed > check.allowed
    ]
    assert beyond, verdict
    if verdict.outcome != "missed":
        assert verdict.outcome == "withheld", verdict
        assert all(check.why for check in beyond), verdict
