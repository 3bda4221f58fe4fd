"""Which processors a lab's target runs on, and which are left to what puts load on it.

    places = take_places(cpus=None, members=3)
    with EtcdLab(3, places=places) as lab:
        ...  # lab.pids run on places.target, and this process on places.others

A target and a generator on the same processors take CPU time from each other: the load that the target bears then
depends on what the generator needs. What a thread starts inherits its processors, containers included. So a lab's
programs are started by a thread on the target's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tippingpoint.errors import UserError
from tippingpoint.util.text import show_processors


@dataclass(frozen=True)
class Places:
    """The processors of a target, and those of all else. Both are the same where nothing is placed."""

    target: tuple[int, ...]
    others: tuple[int, ...]
    members: int = 0
    """So many members share the target's out, if there is one for each; 0 if each member has all of them."""

    @classmethod
    def everywhere(cls) -> Places:
        """Return the places of a lab that nobody asked to be placed: all processors that this thread may use."""
        usable = tuple(sorted(os.sched_getaffinity(0)))
        return cls(usable, usable)

    @property
    def apart(self) -> bool:
        """Whether target and others have no processor in common."""
        return not set(self.target) & set(self.others)

    def of_member(self, number: int) -> tuple[int, ...]:
        """Return the processors of a member, by its number from 0: as many of its own as there are for each."""
        each = len(self.target) // self.members if self.members else 0
        first = number % self.members * each if each else 0
        return self.target[first : first + each] if each else self.target

    def occupy(self) -> None:
        """Have this thread, and what it starts from now on, run on the target's processors."""
        os.sched_setaffinity(0, self.target)

    def answer(self, pids: Mapping[str, int | None]) -> dict[str, Any]:
        """Return what a control socket answers to `places`: of each member that is alive, where the kernel has it."""
        members: dict[str, list[int]] = {}
        for name, pid in pids.items():
            with contextlib.suppress(ProcessLookupError):
                if pid is not None:
                    members[name] = sorted(os.sched_getaffinity(pid))
        return {"target": [*self.target], "members": members, "others": [*self.others]}

    def sentence(self) -> str:
        """Return where what runs, for people."""
        if self.apart:
            others = show_processors(self.others)
            return f"the target runs on {show_processors(self.target)}, and what loads it on {others}"
        if len(self.target) == 1:
            return "nothing is placed: there is one processor only, for the target and what loads it"
        return f"nothing is placed: the target and what loads it share {show_processors(self.target)}"


def split(usable: Collection[int], members: int = 0, cpus: str | None = None) -> Places:
    """Return the places of a target with so many members on a machine with these processors.

    `cpus` names those of the target, such as 1-3; if it names all, the others are the same. Without it, one in four is
    for what loads the target, and one at least. Nothing is placed where there is one processor only. Raises UserError
    (`--cpus`) if `cpus` names no processors, or others than these.
    """
    processors = sorted(usable)
    others = processors[: max(1, len(processors) // 4)]
    target = processors[len(others) :] or processors
    if cpus is not None:
        target = _read(cpus, processors)
        others = [one for one in processors if one not in target] or processors
    return Places(tuple(target), tuple(others), members)


def take_places(cpus: str | None = None, members: int = 0) -> Places:
    """Split the processors that this thread may use, and have it keep to the others from now on.

    So a lab's Prometheus and exporters, and a run, which this thread starts, are off the target's processors. Raises
    UserError as `split` does.
    """
    places = split(os.sched_getaffinity(0), members, cpus)
    os.sched_setaffinity(0, places.others)
    return places


@contextlib.contextmanager
def on_processors(numbers: Collection[int]) -> Generator[None]:
    """What this thread starts meanwhile runs on these processors only.

    It has to begin there: once it has threads, each would have to be moved.
    """
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, numbers)
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


def _read(text: str, usable: Sequence[int]) -> list[int]:
    """Return the processors that a text such as 0,2-3 names (the kernel's own way to write them)."""
    example = ",".join(map(str, usable[len(usable) > 1 :]))
    accepted = f"some of {show_processors(usable)}, such as {example}"
    found = set[int]()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UserError("--cpus", text, accepted)
        ends = int(first), int(last or first)
        if ends[0] > ends[1] or not set(ends) <= set(usable):
            raise UserError("--cpus", text, accepted)
        found.update(one for one in usable if ends[0] <= one <= ends[1])
    return sorted(found)
