"""Records each second of a run who uses this machine's processors, and waits until other programs have left them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection
from pathlib import Path

from tippingpoint.analysis.foreign_work import foreign_work
from tippingpoint.errors import UserError
from tippingpoint.play.faults import LabControl
from tippingpoint.play.record import Record
from tippingpoint.rundir.machine import Used
from tippingpoint.util import kernel_counters, timing

_EVERY = 1.0
"""Seconds between two samples."""
_COSTS_AT_MOST = 0.005
"""The largest share of a core that sampling may take: a target of a thousand processes is sampled less often."""
_ASK_EVERY = 10.0
"""Seconds after which a lab is asked for its members again, because their processes may have changed."""
_LAB_ANSWERS_WITHIN = 5.0
_LATEST = 5.0
"""The latest seconds, which show whether other programs are running now."""


class MachineWatch:
    """This machine, during one run."""

    def __init__(self, record: Record, lab: Path | None) -> None:
        """`lab` is the control socket of the lab whose members are the target; without one, the target's processes are
        unknown."""
        self._record = record
        self._lab = LabControl(lab) if lab is not None else None
        self._counters = kernel_counters.counters()
        self._roots: Collection[int] = ()
        self._asked = -_ASK_EVERY
        self._latest: deque[Used] = deque(maxlen=round(_LATEST / _EVERY))

    async def until_quiet(self, longest: float, words: str) -> bool:
        """Wait until other programs use little of the target's processors; returns whether they do.

        It waits at most `longest` seconds, and shows `words` meanwhile.
        """
        if self._counters is None:
            return True
        self._latest.clear()
        began = timing.monotonic()
        while (waited := timing.monotonic() - began) < longest:
            self._record.waiting(words, waited, longest)
            await asyncio.sleep(min(_EVERY, longest - waited))
            if len(self._latest) == self._latest.maxlen:
                found = foreign_work(self._latest)
                if found is None or not found.explains:
                    return True
        return False

    async def watch(self) -> None:
        """Sample each second, until this is cancelled; a machine without counters is not sampled."""
        if self._counters is None:
            return
        looked = self._record.now()
        while True:
            await self._ask_lab()
            began, looked_before = timing.cpu(), looked
            looked = self._record.now()
            use = self._counters.look(self._roots)
            if use is not None and looked > looked_before:
                self._note(use, looked, looked - looked_before)
            await asyncio.sleep(max(_EVERY, (timing.cpu() - began) / _COSTS_AT_MOST))

    def _note(self, use: kernel_counters.MachineUse, t: float, seconds: float) -> None:
        used = Used(
            t=t,
            seconds=round(seconds, 4),
            cpus=use.cpus,
            busy=_amount(use.busy),
            ours=_amount(use.ours),
            target=None if use.target is None else _amount(use.target),
            steal=_amount(use.steal),
            waited=None if use.waited is None else _amount(use.waited),
            stalled={name: _amount(stalled) for name, stalled in use.stalled.items()},
        )
        self._latest.append(used)
        self._record.used(used)

    async def _ask_lab(self) -> None:
        """Ask now and then which processes the target's members are."""
        if self._lab is None or self._record.now() - self._asked < _ASK_EVERY:
            return
        self._asked = self._record.now()
        try:
            async with asyncio.timeout(_LAB_ANSWERS_WITHIN):
                members = await self._lab.members()
        except (UserError, TimeoutError):
            return
        self._roots = frozenset(member.pid for member in members if member.pid is not None)


def _amount(seconds: float) -> float:
    return round(max(0.0, seconds), 4)
