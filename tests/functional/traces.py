"""What a lab in namespaces could leave on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lab.cgroups import hierarchies
from tests.conftest import MARK


def traces(lab: str = "no lab", address: str = "") -> set[tuple[str, str]]:
    """What this session or a lab made, by kind, and all mounts and named namespaces.

    `lab` is the name of the lab's directory, and `address` that of one of its machines, from which its link is known.
    """
    found = {("process", f"{pid} {read(pid, 'comm').strip()}") for pid in pids_of(lab)}
    links = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, check=True).stdout)
    subnet = re.search(r"\b10\.87\.(\d+)\.", address)
    found |= {
        ("link", link["ifname"]) for link in links if subnet and link["ifname"] == f"tp-lab-{subnet[1]}"
    }
    namespaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    found |= {("namespace", line) for line in namespaces.splitlines()}
    found |= {("mount", line) for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    found |= {("directory", str(path)) for path in Path(tempfile.gettempdir()).glob(lab)}
    found |= {("memory", str(path)) for path in Path("/dev/shm").glob("qb-*")}
    groups = {
        directory
        for hierarchy in hierarchies()
        for directory, _directories, _files in os.walk(hierarchy.mount_point)  # others come and go meanwhile
        if f"/{lab}/" in f"{directory}/"
    }
    return found | {("cgroup", group) for group in groups}


def pids_of(lab: str) -> Iterator[int]:
    """The processes of this session, and those on the machines of a lab."""
    mark = f"{MARK}={os.environ[MARK]}"
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            pid = int(process.name)
            if mark in read(pid, "environ").split("\0") or f"/{lab}/" in read(pid, "cgroup"):
                yield pid


def read(pid: int, name: str) -> str:
    """A file of a process; nothing when it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    return ""
