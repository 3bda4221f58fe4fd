"""What is alive in a simulation: a process that was killed does nothing any more, not even to clean up behind itself.

Each simulated process is a `Life`, to which all code belongs that runs in its context. The loop runs no code of a life
that has ended (VirtualLoop.end).
"""

from __future__ import annotations

import contextvars
import os
from dataclasses import dataclass, field
from itertools import count


@dataclass(eq=False)
class Machine:
    """A machine of a simulation."""

    clock_ahead: float = 0.0
    """Seconds that its wall clock is ahead of the simulation's; to change it is to set the clock."""


@dataclass(eq=False)
class Life:
    """One process."""

    name: str
    dead: bool = False
    pid: int = field(default_factory=count(1_000_000).__next__)
    """As no process of the real machine has it."""


LIFE: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)
"""The process that the present code belongs to; None for the simulation's own."""
MACHINE: contextvars.ContextVar[Machine] = contextvars.ContextVar("machine")
"""The machine that the present code runs on."""


_PID = os.getpid


def pid() -> int:
    """Return the number of the present process, for os.getpid."""
    life = LIFE.get()
    return _PID() if life is None else life.pid


def is_dead() -> bool:
    """Whether the present code belongs to a process that was killed."""
    life = LIFE.get()
    return life is not None and life.dead


def context_of(life: Life, machine: Machine | None = None) -> contextvars.Context:
    """Return a context of a new process, on this machine or on that of the present code."""
    context = contextvars.copy_context()
    context.run(LIFE.set, life)
    if machine is not None:
        context.run(MACHINE.set, machine)
    return context
