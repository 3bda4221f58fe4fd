"""Counts who used a machine's processors between two samples: the target, ourselves, and everybody else.

The kernel counts all of it in /proc (proc(5), "Pressure stall information"). `counters` makes the object that the
engine samples; tests substitute a machine of their own by setting this name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

_TICKS = os.sysconf("SC_CLK_TCK")
"""The kernel counts CPU time in units of one second divided by this."""
RESOURCES = ("cpu", "io", "memory")
"""What processes are stalled for."""
_Owner = Literal["ours", "target", ""]


@dataclass(frozen=True)
class MachineUse:
    """What happened between two samples, in seconds that are summed over processors or processes."""

    cpus: int
    """The number of the target's processors: those on which any of its processes may run; all of the machine's if no
    process of the target is known here."""
    busy: float
    """How long programs ran on these processors."""
    ours: float
    """How long ours did: the runner and its workers."""
    target: float | None
    """How long the target's did; None if none of its processes is known here."""
    steal: float
    """How long the hypervisor withheld these processors."""
    waited: float | None
    """How long the target's threads were ready to run but had no processor; None if that is unknown."""
    stalled: Mapping[str, float]
    """By resource, how long at least one process of the machine was stalled for it."""


class Counters(Protocol):
    """One machine's counters."""

    def look(self, roots: Collection[int]) -> MachineUse | None:
        """Return what happened since the last sample; None at the first one, or if the machine does not report it.

        `roots` are the first processes of the target; all their descendants belong to it, and so do the processes in
        control groups of its own.
        """
        ...


@dataclass(frozen=True)
class Processor:
    """What one processor has done since the machine booted, in seconds."""

    busy: float
    steal: float


@dataclass(frozen=True)
class Process:
    """What one process has done since it began, in seconds."""

    parent: int
    cpu: float
    """Its CPU time, with that of its children which have ended."""


def read_processors(stat: bytes) -> dict[int, Processor]:
    """Return each processor by its number, from /proc/stat; lines that make no sense are left out.

    Time spent on interrupts belongs to no program. Where the kernel does not count it separately, it is within the
    programs' own times: there, no time at all was counted for interrupts themselves.
    """
    found: dict[int, tuple[float, float, float, float]] = {}
    for line in stat.splitlines():
        name, *fields = line.split()[:11] or [b""]
        if not name.startswith(b"cpu") or name == b"cpu":
            continue
        try:
            user, nice, system, _, _, irq, softirq, steal = (int(field) / _TICKS for field in fields[:8])
            found[int(name[3:])] = user + nice + system, irq, softirq, steal
        except ValueError:
            continue
    apart = any(irq for _, irq, _, _ in found.values())
    return {
        number: Processor(busy if apart else busy + softirq, steal)
        for number, (busy, _, softirq, steal) in found.items()
    }


def read_process(stat: bytes) -> Process | None:
    """Return a process from /proc/PID/stat; None if it makes no sense, for example because the process has ended."""
    fields = stat.rpartition(b") ")[2].split()  # its name is before that, and may contain anything
    try:
        return Process(int(fields[1]), sum(int(field) for field in fields[11:15]) / _TICKS)
    except (ValueError, IndexError):
        return None


def read_waited(schedstat: bytes) -> float | None:
    """Return how many seconds a thread waited for a processor, from its schedstat; None if that is not there."""
    try:
        return int(schedstat.split()[1]) / 1e9
    except (ValueError, IndexError):
        return None


def read_stalled(pressure: bytes) -> float | None:
    """Return how many seconds any process was stalled, from a file of /proc/pressure; None if that is not there."""
    for line in pressure.splitlines():
        if line.startswith(b"some "):
            try:
                return int(line.rpartition(b"total=")[2]) / 1e6
            except ValueError:
                return None
    return None


class KernelCounters:
    """The counters of the machine on which this process runs."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = str(proc)
        self._roots: frozenset[int] = frozenset()
        self._groups: list[bytes] = []
        """The control groups that contain only processes of the target."""
        self._owners: dict[int, _Owner] = {}
        """The owner of each living process. A process that lost its parent stays with its first owner."""
        self._processes: dict[int, Process] = {}
        """The target's and our processes, as they were at the last sample."""
        self._waited: dict[tuple[int, str], float] = {}
        """The target's threads, by process and thread."""
        self._processors: dict[int, Processor] = {}
        self._stalled: dict[str, float] = {}

    def look(self, roots: Collection[int]) -> MachineUse | None:
        """Return what happened since the last sample; see Counters.look."""
        first = not self._processors
        if frozenset(roots) != self._roots:
            self._meet(frozenset(roots))
            first = True
        before, self._processors = self._processors, read_processors(self._read("stat"))
        used = self._used()
        waited, stalled = self._newly_waited(), self._newly_stalled()
        if first or not self._processors:
            return None
        cpus = self._target_processors() or frozenset(self._processors)
        there = [
            (before[number], now)
            for number, now in self._processors.items()
            if number in cpus & before.keys()
        ]
        is_known = "target" in self._owners.values()
        return MachineUse(
            cpus=len(there),
            busy=sum(now.busy - then.busy for then, now in there),
            ours=sum(used[pid] for pid in used if self._owners[pid] == "ours" and _may_run(pid, cpus)),
            target=sum(used[pid] for pid in used if self._owners[pid] == "target") if is_known else None,
            steal=sum(now.steal - then.steal for then, now in there),
            waited=waited if is_known else None,
            stalled=stalled,
        )

    def _meet(self, roots: frozenset[int]) -> None:
        """Start over with these first processes of the target."""
        self._roots = roots
        self._owners, self._processes, self._waited = {}, {}, {}
        self._groups = []
        for pid in roots:
            process = read_process(self._read(f"{pid}/stat"))
            others = set(self._groups_of(process.parent)) if process is not None else set[bytes]()
            # Whatever started it, and everything else started by that, is in a group that is not its own.
            self._groups += [group for group in self._groups_of(pid) if others and group not in others]

    def _used(self) -> dict[int, float]:
        """Return how many seconds each of the target's processes and of ours ran since the last sample."""
        pids = [int(name) for name in _entries(self._proc) if name.isdecimal()]
        known, self._owners = self._owners, {}
        for pid in pids:
            if pid in known:
                self._owners[pid] = known[pid]
        before, self._processes = self._processes, {}
        for pid in pids:
            if self._owner(pid):
                process = read_process(self._read(f"{pid}/stat"))
                if process is not None:
                    self._processes[pid] = process
        used = {
            pid: now.cpu - (before[pid].cpu if pid in before else 0.0) for pid, now in self._processes.items()
        }
        for pid in before.keys() - self._processes.keys():
            # The process that waited for its end inherits all of its time, including what was reported before.
            heir = before[pid].parent
            while heir in before and heir not in used:
                heir = before[heir].parent
            if heir in used:
                used[heir] -= before[pid].cpu
        return used

    def _owner(self, pid: int) -> _Owner:
        """Return the owner of a process; that of its parent, unless it is known."""
        path: list[int] = []
        owner: _Owner = ""
        while pid > 0 and pid not in path:
            if pid in self._roots:
                owner = "target"
            elif pid == os.getpid():
                owner = "ours"
            elif pid in self._owners:
                owner = self._owners[pid]
            elif self._groups and any(
                _is_within(group, of) for group in self._groups_of(pid) for of in self._groups
            ):
                owner = "target"
            else:
                process = read_process(self._read(f"{pid}/stat"))
                path.append(pid)
                pid = process.parent if process is not None else 0
                continue
            path.append(pid)
            break
        for each in path:
            self._owners[each] = owner
        return owner

    def _groups_of(self, pid: int) -> list[bytes]:
        return self._read(f"{pid}/cgroup").splitlines()

    def _newly_waited(self) -> float:
        """Return how many seconds the target's threads waited for a processor since the last sample."""
        before, self._waited = self._waited, {}
        for pid in self._processes:
            if self._owners[pid] != "target":
                continue
            for thread in _entries(f"{self._proc}/{pid}/task"):
                waited = read_waited(self._read(f"{pid}/task/{thread}/schedstat"))
                if waited is not None:
                    self._waited[pid, thread] = waited
        return sum(waited - before.get(thread, 0.0) for thread, waited in self._waited.items())

    def _newly_stalled(self) -> dict[str, float]:
        before, self._stalled = self._stalled, {}
        for name in RESOURCES:
            stalled = read_stalled(self._read(f"pressure/{name}"))
            if stalled is not None:
                self._stalled[name] = stalled
        return {name: stalled - before[name] for name, stalled in self._stalled.items() if name in before}

    def _target_processors(self) -> frozenset[int]:
        return frozenset[int]().union(*map(_affinity, self._roots))

    def _read(self, name: str) -> bytes:
        """Return the content of one of the kernel's files; nothing if there is none, or if we may not read it."""
        try:
            descriptor = os.open(f"{self._proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            chunks: list[bytes] = []
            while chunk := os.read(descriptor, 65536):
                chunks.append(chunk)
            return b"".join(chunks)
        except OSError:  # the process has ended meanwhile
            return b""
        finally:
            os.close(descriptor)


def _entries(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _is_within(group: bytes, of: bytes) -> bool:
    """Return whether a control group, as a line of /proc/PID/cgroup, is the group `of` or below it."""
    return group == of or group.startswith(of.rstrip(b"/") + b"/")


def _affinity(pid: int) -> frozenset[int]:
    """Return the processors on which a process may run; none if it has ended."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return frozenset()


def _may_run(pid: int, cpus: frozenset[int]) -> bool:
    return not cpus.isdisjoint(_affinity(pid))


counters: Callable[[], Counters | None] = KernelCounters
"""Return the counters of this machine; None if it has none."""
