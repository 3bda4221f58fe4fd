"""Plays a plan's faults on the members of a lab, each at its moment, and undoes them."""

from __future__ import annotations

import asyncio

from tippingpoint.errors import UserError
from tippingpoint.plan.base import UNDONE_BY, UPKEEP, Fault
from tippingpoint.plan.read import Plan
from tippingpoint.play.faults import Action, LabControl
from tippingpoint.play.record import Record


class FaultTimeline:
    """The faults of a plan: those still to be played, and those still to be undone."""

    def __init__(self, plan: Plan, record: Record) -> None:
        self._plan = plan
        self._record = record
        self._lab = LabControl(plan.lab) if plan.lab is not None else None
        self._playing: set[asyncio.Task[None]] = set()
        self._undone: list[Fault] = []
        self._asked = 0
        self.done = asyncio.Event()
        """Set while the lab has done everything that was requested."""
        self.done.set()

    async def check(self) -> None:
        """Raise UserError for a plan that needs a lab and has none, or whose faults have no members to act on."""
        if self._plan.lab_for:
            if self._lab is None:
                raise UserError("lab", "missing", f"the control socket of a lab, for {self._plan.lab_for}")
            await self._lab.members()
        wanted = {fault.member for fault in self._plan.faults if fault.member is not None}
        if not wanted:
            return
        if self._lab is None:
            raise UserError("lab", "missing", "the control socket of a lab, as faults act on its members")
        there = {member.name for member in await self._lab.members()}
        if wanted - there:
            raise UserError(
                "faults.member", ", ".join(sorted(wanted - there)), f"one of {', '.join(sorted(there))}"
            )

    async def start_members(self, wanted: int) -> None:
        """Have a lab start members, in its order, until this many run."""
        if self._lab is None or not wanted:
            return
        members = await self._lab.members()
        running = sum(member.running for member in members)
        for member in members:
            if running < wanted and not member.running:
                await self._lab.act("start", member.name)
                self._undone = [undone for undone in self._undone if undone.member != member.name]
                running += 1
                self._record.event("member-started", member=member.name)

    def start(self, stage: int | None) -> None:
        """Begin the faults of a listed stage (from 1) whose hold begins now; None begins those of the whole run."""
        for fault in self._plan.faults:
            if fault.stage == stage and fault.member is not None:
                task = asyncio.create_task(self._play(fault))
                self._playing.add(task)
                task.add_done_callback(self._playing.discard)

    def stop(self) -> None:
        """Begin no further faults."""
        for task in self._playing:
            task.cancel()

    async def undo(self) -> None:
        """Undo the faults that are still in effect."""
        await asyncio.gather(*(self._undo(fault) for fault in [*self._undone]))

    async def _play(self, fault: Fault) -> None:
        assert fault.do != "drop-claims"  # a restart storm is a turn (conduct/run_state.py)
        await asyncio.sleep(fault.at)
        if fault.do in UNDONE_BY:
            self._undone.append(fault)
        else:
            self._undone = [
                undone
                for undone in self._undone
                if (undone.member, UNDONE_BY[undone.do]) != (fault.member, fault.do)
            ]
        await self._act(fault.do, fault)
        if fault.undo_after is not None:
            await asyncio.sleep(fault.undo_after)
            await self._undo(fault)

    async def _undo(self, fault: Fault) -> None:
        await self._act(UNDONE_BY[fault.do], fault)
        if fault in self._undone:
            self._undone.remove(fault)  # not before: if this is cancelled, the fault is still to be undone

    async def _act(self, do: Action, fault: Fault) -> None:
        assert self._lab is not None
        assert fault.member is not None
        more = {"daemon": fault.daemon} if fault.daemon is not None else {}
        began = self._record.now()
        self._asked += 1
        self.done.clear()
        try:
            await self._lab.act(do, fault.member, **more)
        except UserError as problem:
            self._record.event("fault-failed", do=do, member=fault.member, **more, problem=str(problem))
        else:
            lasted = {"seconds": round(self._record.now() - began, 3)} if do in UPKEEP else {}
            self._record.event("fault", do=do, member=fault.member, **more, **lasted)
        finally:
            self._asked -= 1
            if not self._asked:
                self.done.set()
