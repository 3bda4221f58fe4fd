"""Who used a machine's processors, from what its kernel counts: a made /proc, whose every figure a test sets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.util.kernel_counters import (
    KernelCounters,
    MachineUse,
    read_process,
    read_processors,
    read_stalled,
    read_waited,
)

TICKS = os.sysconf("SC_CLK_TCK")
CPUS = sorted(os.sched_getaffinity(0))
LAB, MEMBER, CHILD, GRANDCHILD, STRANGER = (2**22 + number for number in range(1, 6))
"""Larger numbers than any process has."""


class MadeProc:
    """A directory like /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.processors(0.0)
        self.pressure()
        self.process(os.getpid(), 1, 0.0)

    def processors(self, busy: float, steal: float = 0.0, irq: float = 0.0, softirq: float = 0.0) -> None:
        """Each processor's seconds since the boot."""
        fields = [busy, 0.0, 0.0, 100.0, 0.0, irq, softirq, steal]
        counted = " ".join(str(round(field * TICKS)) for field in fields)
        lines = [f"cpu  {counted} 0 0", *(f"cpu{number} {counted} 0 0" for number in CPUS), "intr 1 2 3"]
        (self.root / "stat").write_text("\n".join(lines))

    def pressure(self, **seconds: float) -> None:
        (self.root / "pressure").mkdir(exist_ok=True)
        for name in ("cpu", "io", "memory"):
            total = round(seconds.get(name, 0.0) * 1e6)
            (self.root / "pressure" / name).write_text(
                f"some avg10=1.00 total={total}\nfull avg10=0 total=9\n"
            )

    def process(
        self, pid: int, parent: int, cpu: float, *, ended: float = 0.0, waited: float = 0.0, group: str = "/"
    ) -> None:
        """A process with this CPU time of its own, and of its children that ended."""
        place = self.root / str(pid)
        (place / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
        of = " ".join(str(round(seconds * TICKS)) for seconds in (cpu, 0.0, ended, 0.0))
        (place / "stat").write_text(f"{pid} (a) b) S {parent} 0 0 0 0 0 0 0 0 0 {of} 20 0 1 0 1")
        (place / "task" / str(pid) / "schedstat").write_text(f"1 {round(waited * 1e9)} 1\n")
        (place / "cgroup").write_text(f"0::{group}\n")

    def end(self, pid: int) -> None:
        for path in sorted((self.root / str(pid)).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (self.root / str(pid)).rmdir()


@pytest.fixture
def proc(tmp_path: Path) -> MadeProc:
    return MadeProc(tmp_path)


def looked(counters: KernelCounters, *roots: int) -> MachineUse:
    found = counters.look(roots)
    assert found is not None
    return found


def test_a_machine_without_proc_does_not_tell(tmp_path: Path) -> None:
    counters = KernelCounters(tmp_path)
    assert counters.look([]) is None
    assert counters.look([]) is None


def test_the_first_look_tells_nothing(proc: MadeProc) -> None:
    assert KernelCounters(proc.root).look([]) is None


def test_what_passed_is_told_apart_by_whose_it_is(proc: MadeProc) -> None:
    # given a member of a lab with a child, a process of ours, and a stranger
    proc.process(LAB, 1, 5.0)
    proc.process(MEMBER, LAB, 1.0)
    proc.process(CHILD, MEMBER, 2.0, waited=1.0)
    proc.process(STRANGER, 1, 3.0)
    counters = KernelCounters(proc.root)
    counters.look([MEMBER])
    # when each of them ran for a while
    proc.processors(0.9, steal=0.1)
    proc.pressure(cpu=0.5, io=0.25)
    proc.process(LAB, 1, 5.5)
    proc.process(MEMBER, LAB, 1.1, waited=0.5)
    proc.process(CHILD, MEMBER, 2.2, waited=1.25)
    proc.process(os.getpid(), 1, 0.05)
    found = looked(counters, MEMBER)
    # then the target's is that of the member and what it started, and the lab is a program like any other
    assert found.cpus == len(CPUS)
    assert found.busy == pytest.approx(0.9 * len(CPUS))
    assert found.steal == pytest.approx(0.1 * len(CPUS))
    assert found.target == pytest.approx(0.3)
    assert found.ours == pytest.approx(0.05)
    assert found.waited == pytest.approx(0.75)
    assert found.stalled == pytest.approx({"cpu": 0.5, "io": 0.25, "memory": 0.0})


def test_without_a_process_of_the_target_it_is_not_known_what_the_target_took(proc: MadeProc) -> None:
    counters = KernelCounters(proc.root)
    counters.look([])
    found = looked(counters)
    assert (found.target, found.waited) == (None, None)
    assert found.cpus == len(CPUS)


def test_the_time_of_a_child_that_ended_is_not_counted_again_with_its_parent(proc: MadeProc) -> None:
    # given a member whose grandchild has run
    proc.process(MEMBER, 1, 1.0)
    proc.process(CHILD, MEMBER, 0.5)
    proc.process(GRANDCHILD, CHILD, 2.0)
    counters = KernelCounters(proc.root)
    counters.look([MEMBER])
    # when it runs on, and both end; the member then has all of their times
    proc.end(GRANDCHILD)
    proc.end(CHILD)
    proc.process(MEMBER, 1, 1.0, ended=0.5 + 2.0 + 0.25)
    assert looked(counters, MEMBER).target == pytest.approx(0.25)


def test_what_a_member_starts_counts_from_its_first_moment(proc: MadeProc) -> None:
    proc.process(MEMBER, 1, 1.0)
    counters = KernelCounters(proc.root)
    counters.look([MEMBER])
    proc.process(CHILD, MEMBER, 0.5)
    assert looked(counters, MEMBER).target == pytest.approx(0.5)
    # and when it has lost its parent
    proc.process(CHILD, 1, 0.75)
    assert looked(counters, MEMBER).target == pytest.approx(0.25)


def test_a_process_in_the_members_own_control_group_is_the_targets(proc: MadeProc) -> None:
    proc.process(LAB, 1, 0.0, group="/session")
    proc.process(MEMBER, LAB, 0.0, group="/session/lab/m1")
    proc.process(STRANGER, 1, 0.0, group="/session")
    counters = KernelCounters(proc.root)
    counters.look([MEMBER])
    proc.process(CHILD, 1, 0.5, group="/session/lab/m1/container")
    proc.process(GRANDCHILD, 1, 0.25, group="/session/lab/m10")
    proc.process(STRANGER, 1, 0.25, group="/session")
    assert looked(counters, MEMBER).target == pytest.approx(0.5)


def test_a_control_group_that_a_member_shares_with_who_started_it_is_not_its_own(proc: MadeProc) -> None:
    proc.process(LAB, 1, 0.0, group="/session")
    proc.process(MEMBER, LAB, 0.0, group="/session")
    counters = KernelCounters(proc.root)
    counters.look([MEMBER])
    proc.process(STRANGER, 1, 0.5, group="/session")
    assert looked(counters, MEMBER).target == 0.0


def test_other_members_are_met_anew(proc: MadeProc) -> None:
    # given a member that is killed and started again, as another process
    proc.process(MEMBER, LAB, 1.0)
    counters = KernelCounters(proc.root)
    counters.look([MEMBER])
    proc.end(MEMBER)
    proc.process(CHILD, LAB, 0.5)
    # then what happened in between is told of nobody, and what follows of the new one
    assert counters.look([CHILD]) is None
    proc.process(CHILD, LAB, 0.75)
    assert looked(counters, CHILD).target == pytest.approx(0.25)


def test_time_for_interrupts_is_the_programs_where_the_kernel_does_not_tell_it_apart(proc: MadeProc) -> None:
    counters = KernelCounters(proc.root)
    counters.look([])
    proc.processors(0.5, softirq=0.25)
    assert looked(counters).busy == pytest.approx(0.75 * len(CPUS))
    proc.processors(0.5, softirq=0.25, irq=0.25)
    counters.look([])
    proc.processors(0.75, softirq=0.5, irq=0.5)
    assert looked(counters).busy == pytest.approx(0.25 * len(CPUS))


def test_the_counters_of_this_machine_tell_of_this_process() -> None:
    # given this process, which runs until the kernel has counted some of its time
    counters = KernelCounters()
    counters.look([os.getpid()])
    begun = os.times()
    while os.times().user + os.times().system < begun.user + begun.system + 0.1:
        sum(range(10_000))
    found = looked(counters, os.getpid())
    # then it is in it
    assert found.cpus == len(CPUS)
    assert (found.target or 0.0) >= 0.09


@given(st.binary(max_size=200))
def test_garbage_is_read_as_not_known(garbage: bytes) -> None:
    assert all(isinstance(number, int) for number in read_processors(b"cpu0 1 2 3\ncpu" + garbage))
    assert 0 not in read_processors(b"cpu0 1 2 3")
    for read in (read_process, read_waited, read_stalled):
        read(garbage)
    read_stalled(b"some " + garbage)


@given(st.text(alphabet="() a1\n", max_size=15), st.integers(0, 2**22), st.integers(0, 10**9))
def test_a_process_may_have_any_name(name: str, parent: int, ticks: int) -> None:
    stat = f"77 ({name}) S {parent} 0 0 0 0 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 1".encode()
    found = read_process(stat)
    assert found is not None
    assert (found.parent, found.cpu) == (parent, ticks / TICKS)
