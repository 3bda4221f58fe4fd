"""Runs on real LXD clusters: the program as a user runs it, and the cluster as its administrator sees it."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import web

from lab.lxd.cluster import LxdLab
from lab.lxd.proxy import Forward, LxdProxy
from tests.functional.program import start, until
from tests.functional.spawn_runs import ended, merged_plan, wait_for
from tippingpoint.analysis.analyse import analyse
from tippingpoint.report import write_report
from tippingpoint.rundir.results import load_run

GROUPS, EACH = 2, 2
MEMBERS = r"^/1\.0/cluster/members\?"
eventually = partial(until, every=0.5)
"""Each look is a call of a cluster that has enough to do."""
PASS_BY_THEMSELVES = {"locked", "quorum"}
"""Why a sound cluster that is busy refuses changes: its database is locked, or has no leader for a moment."""
POLL_EVERY_S = 0.3
OFTEN = {"poll_every": f"{POLL_EVERY_S * 1000:.0f}ms"}
"""For runs whose polls are looked at."""
FEW: dict[str, Any] = {
    "name": "few",
    "target": {"kind": "lxd"},
    "workload": {
        "kind": "spawn",
        "concurrency": 4,
        "observe_every": "0s",
        "timeout": "60s",
        # (more than a heartbeat takes that is late: meanwhile a living member is offline)
        "offline_polls": 60,
    },
    "stages": [{"groups": GROUPS, "instances": EACH, "hold": "500ms"}],
    "workers": 2,
}


def spawn_plan(directory: Path, **changes: Any) -> Path:
    """A plan of a few containers, changed as `merged_plan` does."""
    return merged_plan(directory, FEW, changes)


def only_a_stage(instances: int, hold: str, groups: int = 1) -> list[dict[str, Any]]:
    return [{"groups": groups, "instances": instances, "hold": hold}]


def start_at(where: LxdLab | LxdProxy, *arguments: str | Path) -> subprocess.Popen[str]:
    """Start the program on a lab, whose members a plan's faults may act on, or by way of a proxy."""
    settings = where.settings() if isinstance(where, LxdLab) else [f"target.credentials={where.credentials}"]
    command, plan, *others = arguments
    return start(command, plan, *(part for setting in settings for part in ("--set", setting)), *others)


def run_at(where: LxdLab | LxdProxy, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program to its end at a lab, or by way of a proxy."""
    return ended(start_at(where, *arguments))


def wait_for_hold(out: Path, process: subprocess.Popen[str], stage: int = 1, workers: int = 2) -> Path:
    """The directory of the run below `out`, once all of its workers hold a stage."""
    return wait_for(out, process, "stage", workers, phase="hold", stage=stage)


def report_of(directory: Path) -> dict[str, Any]:
    """The report of a run."""
    found: dict[str, Any] = json.loads(write_report(analyse(load_run(directory)), "json"))
    return found


def counted(report: dict[str, Any], which: str) -> dict[tuple[str, str], int]:
    """`retries` or `gave_up` of a report: how many, by operation and kind."""
    found: dict[tuple[str, str], int] = {}
    for entry in report[which]:
        key = (entry["operation"], entry["kind"])
        found[key] = found.get(key, 0) + entry["count"]
    return found


def always_online(report: dict[str, Any], *members: str) -> bool:
    """Whether the run saw none of these members, or of all, offline, not even for a moment. Meanwhile things are put on
    the others."""
    return not any(
        change["status"] == "offline"
        for member in report["members"]
        if not members or member["name"] in members
        for change in member["changes"]
    )


class Online:
    """Shows all members online: one that is alive is offline for a moment when its heartbeat is late."""

    async def __call__(self, proxy: LxdProxy, request: web.Request, forward: Forward) -> web.StreamResponse:
        answer = await forward()
        assert isinstance(answer, web.Response)
        if answer.status != HTTPStatus.OK or not isinstance(answer.body, bytes):
            return answer
        listed: dict[str, list[dict[str, Any]]] = json.loads(answer.body)
        shown = [member | {"status": "Online"} for member in listed["metadata"]]
        return web.json_response(listed | {"metadata": shown})


# What is on a cluster


def await_online(lab: LxdLab) -> None:
    """Wait until all members are online: one whose heartbeat is late is not, for a moment."""
    eventually(lambda: all(lab.status(name) == "ONLINE" for name in lab.pids), "all members are online")


def everything(lab: LxdLab) -> dict[str, Any]:
    """What a person sees of what a run may make: instances, projects, images, profiles, and which clients are
    trusted."""
    listed = {
        "instances": lab.query("/1.0/instances?recursion=1&all-projects=true"),
        "projects": lab.query("/1.0/projects?recursion=1"),
        "profiles": lab.query("/1.0/profiles?recursion=1"),
        "images": lab.query("/1.0/images?recursion=1"),
        "trust": lab.query("/1.0/certificates?recursion=1"),
    }
    listed["trust"] = [each for each in listed["trust"] if each["type"] == "client"]
    keys = {"images": "fingerprint", "trust": "fingerprint"}
    return {what: sorted(each[keys.get(what, "name")] for each in there) for what, there in listed.items()}


def containers(lab: LxdLab, prefix: str = "tp") -> dict[str, str]:
    """The containers of all projects whose name begins so, and the member that each is on."""
    listed = lab.query("/1.0/instances?recursion=1&all-projects=true")
    return {each["name"]: each["location"] for each in listed if each["name"].startswith(prefix)}


def running(lab: LxdLab, prefix: str = "tp") -> set[str]:
    """Those of them that run."""
    listed = lab.query("/1.0/instances?recursion=1&all-projects=true")
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
