"""Runs on real LXD clusters: the program as a user runs it, and the cluster as its administrator sees it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.functional.program import no_traceback, start
from tests.functional.test_run_faults import workers_of
from tests.lab.lxd import LxdLab
from tests.lab.lxd_proxy import LxdProxy
from tippingpoint.report import write_report
from tippingpoint.results import load_run

WITHIN_S = 150
GROUPS, EACH = 3, 2
POLL_EVERY_S = 0.3
FEW: dict[str, Any] = {
    "name": "few",
    "target": {"kind": "lxd"},
    "workload": {
        "kind": "spawn",
        "concurrency": 4,
        "observe_every": "0s",
        "poll_every": f"{POLL_EVERY_S * 1000:.0f}ms",
        "timeout": "60s",
    },
    "stages": [{"groups": GROUPS, "instances": EACH, "hold": "500ms"}],
    "workers": 2,
}
Event = dict[str, Any]


def spawn_plan(directory: Path, **changes: Any) -> Path:
    """A plan of a few containers with top-level fields replaced, as a file; fields of `workload` and `target` are
    replaced one by one."""
    merged = {name: {**FEW[name], **changes.pop(name, {})} for name in ("workload", "target")}
    path = directory / "plan.yaml"
    path.write_text(yaml.safe_dump({**FEW, **merged, **changes}), encoding="utf-8")
    return path


def only_a_stage(instances: int, hold: str, groups: int = 1) -> list[dict[str, Any]]:
    return [{"groups": groups, "instances": instances, "hold": hold}]


def start_at(where: LxdLab | LxdProxy, *arguments: str | Path) -> subprocess.Popen[str]:
    """Start the program on a lab, whose members a plan's faults may act on, or by way of a proxy."""
    settings = where.settings() if isinstance(where, LxdLab) else [f"target.credentials={where.credentials}"]
    command, plan, *others = arguments
    return start(command, plan, *(part for setting in settings for part in ("--set", setting)), *others)


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """The end of a program, which shows no traceback."""
    try:
        out, err = process.communicate(timeout=WITHIN_S)
    finally:
        process.kill()
    assert no_traceback(out, err), err
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run_at(where: LxdLab | LxdProxy, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program to its end at a lab, or by way of a proxy."""
    return ended(start_at(where, *arguments))


@contextlib.contextmanager
def going(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A run that goes on meanwhile, and ends with the test at the latest."""
    try:
        yield process
    finally:
        if process.poll() is None:
            crash(process)


def crash(process: subprocess.Popen[str]) -> None:
    """Kill a run and its workers, without a moment to put anything in order."""
    os.kill(process.pid, signal.SIGSTOP)  # or it would see its workers die
    for pid in [*workers_of(process.pid), process.pid]:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=WITHIN_S)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a refusal is."""
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


# What a run writes down


def events(directory: Path) -> list[Event]:
    """What the journals of a run say so far, in the order of time; a line that is being written is left out."""
    found: list[Event] = []
    for path in directory.glob("*.jsonl"):
        if path.name != "ledger.jsonl":
            whole = path.read_text().rpartition("\n")[0]
            found += [json.loads(line) for line in whole.splitlines()]
    return sorted(found, key=lambda event: event["t"])


def named(directory: Path, name: str, **fields: Any) -> list[Event]:
    """The events of that name with these fields."""
    return [
        event for event in events(directory) if event["event"] == name and fields.items() <= event.items()
    ]


def directory_of(out: Path) -> Path | None:
    """The one run kept in a directory, once there is one."""
    there = [path for path in out.glob("*") if path.is_dir()]
    assert len(there) <= 1
    return there[0] if there else None


def wait_until(condition: Callable[[], Any], what: str, within: float = WITHIN_S) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not so within {within:g} s: {what}"
        time.sleep(0.05)


def wait_for(out: Path, process: subprocess.Popen[str], name: str, count: int = 1, **fields: Any) -> Path:
    """The directory of the run below `out` that a process makes, once its journals have so many such events."""

    def there() -> bool:
        directory = directory_of(out)
        if directory is not None and len(named(directory, name, **fields)) >= count:
            return True
        assert process.poll() is None, f"ended before {name}: {process.communicate()}"
        return False

    wait_until(there, f"{count} {name} {fields}")
    directory = directory_of(out)
    assert directory is not None
    return directory


def wait_for_hold(out: Path, process: subprocess.Popen[str], stage: int = 1, workers: int = 2) -> Path:
    """The directory of the run below `out`, once all of its workers hold a stage."""
    return wait_for(out, process, "stage", workers, phase="hold", stage=stage)


def report_of(directory: Path) -> dict[str, Any]:
    """The report of a run."""
    found: dict[str, Any] = json.loads(write_report(load_run(directory), "json"))
    return found


def counted(report: dict[str, Any], which: str) -> dict[tuple[str, str], int]:
    """`retries` or `gave_up` of a report: how many, by operation and kind."""
    found: dict[tuple[str, str], int] = {}
    for entry in report[which]:
        key = (entry["operation"], entry["kind"])
        found[key] = found.get(key, 0) + entry["count"]
    return found


# What is on a cluster


def everything(lab: LxdLab) -> dict[str, Any]:
    """What a person sees of what a run may make: instances, projects, images, profiles, and which clients are
    trusted."""
    listed = {
        what: json.loads(lab.lxc(*command, "--format=json"))
        for what, command in {
            "instances": ["list", "--all-projects"],
            "projects": ["project", "list"],
            "profiles": ["profile", "list"],
            "images": ["image", "list"],
            "trust": ["config", "trust", "list"],
        }.items()
    }
    listed["trust"] = [each for each in listed["trust"] if each["type"] == "client"]
    keys = {"images": "fingerprint", "trust": "fingerprint"}
    return {what: sorted(each[keys.get(what, "name")] for each in there) for what, there in listed.items()}


def containers(lab: LxdLab, prefix: str = "tp") -> dict[str, str]:
    """The containers of all projects whose name begins so, and the member that each is on."""
    listed = json.loads(lab.lxc("query", "/1.0/instances?recursion=1&all-projects=true"))
    return {each["name"]: each["location"] for each in listed if each["name"].startswith(prefix)}


def running(lab: LxdLab, prefix: str = "tp") -> set[str]:
    """Those of them that run."""
    listed = json.loads(lab.lxc("query", "/1.0/instances?recursion=1&all-projects=true"))
    return {
        each["name"] for each in listed if each["name"].startswith(prefix) and each["status"] == "Running"
    }


def prefix_of(directory: Path) -> str:
    """What the names of all that a run makes begin with."""
    prefix: str = json.loads((directory / "ledger.jsonl").read_text().splitlines()[0])["prefix"]
    return prefix


def goal(prefix: str, groups: int = GROUPS, each: int = EACH) -> set[str]:
    """The names of the containers that a stage wants."""
    return {f"{prefix}-{group:03d}-{number:04d}" for group in range(groups) for number in range(each)}
