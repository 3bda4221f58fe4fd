"""Runs of containers or servers: the program as a user runs it, and what it writes down."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.halt import halt
from tests.functional.program import WITHIN_S, no_traceback, until, workers_of

Event = dict[str, Any]
_LOOKS_EVERY_S = 0.2
"""Each look reads the journals of a run from their beginning."""


def merged_plan(directory: Path, few: Mapping[str, Any], changes: dict[str, Any]) -> Path:
    """A plan with top-level fields replaced, as a file; fields of `workload` and `target` are replaced one by one, and
    one that is None is left out."""
    merged = {
        name: {
            key: value for key, value in {**few[name], **changes.pop(name, {})}.items() if value is not None
        }
        for name in ("workload", "target")
    }
    path = directory / "plan.yaml"
    path.write_text(yaml.safe_dump({**few, **merged, **changes}), encoding="utf-8")
    return path


def ended(process: subprocess.Popen[str], within: float = WITHIN_S) -> subprocess.CompletedProcess[str]:
    """The end of a program, which shows no traceback."""
    try:
        out, err = process.communicate(timeout=within)
    finally:
        process.kill()
    assert no_traceback(out, err), err
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@contextlib.contextmanager
def going(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A run that goes on meanwhile, and ends with the test at the latest."""
    try:
        yield process
    finally:
        if process.poll() is None:
            crash(process)


def crash(process: subprocess.Popen[Any]) -> None:
    """Kill a run and its workers, without a moment to put anything in order."""
    halt(process.pid)  # or it would see its workers die
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


def wait_for(
    out: Path,
    process: subprocess.Popen[str],
    name: str,
    count: int = 1,
    *,
    within: float = WITHIN_S,
    **fields: Any,
) -> Path:
    """The directory of the run below `out` that a process makes, once its journals have so many such events."""

    def there() -> Path | None:
        over = process.poll() is not None  # asked before a last look
        directory = directory_of(out)
        if directory is not None and len(named(directory, name, **fields)) >= count:
            return directory
        assert not over, f"ended before {name}: {process.communicate()}"
        return None

    try:
        directory = until(there, f"{count} {name} {fields}", within, every=_LOOKS_EVERY_S)
    except BaseException:
        process.kill()
        raise
    assert directory is not None
    return directory
