"""Defects that are planted into the engine, one at a time: after how many seeds does a question find each?

./scripts/simulate --planted --runs 2000    # each in at most 2000 seeds

Only what a question finds counts, or a run that never ends. A crash of what was planted ends the search for it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.seeds import play_and_ask
from tests.simulation.simulated.target import Simulated
from tippingpoint.agent import reports
from tippingpoint.conduct import director
from tippingpoint.play import closing, inventory
from tippingpoint.play.early_warning import EarlyWarning
from tippingpoint.play.stages import Stages
from tippingpoint.play.turns import Turns
from tippingpoint.play.worker import _Worker
from tippingpoint.rundir import waited
from tippingpoint.rundir.recorder import Recorded, Recorder
from tippingpoint.rundir.standstills import Pulse
from tippingpoint.workloads.calls import Calls
from tippingpoint.workloads.store.target import Change
from tippingpoint.workloads.store.watchers import Watcher, Watchers
from tippingpoint.workloads.store.workload import StoreLoad

Plant = Callable[[pytest.MonkeyPatch], None]


def _instead(owner: Any, name: str, make: Callable[[Any], Any]) -> Plant:
    """Return a plant that puts into the place of a function what `make` makes of it."""

    def plant(patched: pytest.MonkeyPatch) -> None:
        patched.setattr(owner, name, make(getattr(owner, name)))

    return plant


def _turn_twice(play_turn: Any) -> Any:
    async def again(self: Turns, turn: Any, late: float) -> Any:
        if turn.number == 1:
            await self.bring_up(turn)
            self._stages.begin_hold(1.0)
            await self._pool.wait(1.0)
        return await play_turn(self, turn, late)

    return again


def _not_missing(gather: Any) -> Any:
    def of_the_rest(run: Any, digests: Any, words: Any, out: Path) -> Path:
        there = [unit for unit in run.units if unit not in run.missing] or run.units
        fewer = run.model_copy(update={"missing": {}, "units": there})
        return gather(fewer, digests, words, out)  # type: ignore[no-any-return]

    return of_the_rest


def _judged_forgotten(after_judged: Any) -> Any:
    def but_one(run: Any, *args: Any) -> Any:
        fewer = run if run.is_in_memory else run.model_copy(update={"probes": run.probes[1:]})
        return after_judged(fewer, *args)

    return but_one


def _ledger_at_the_end(patched: pytest.MonkeyPatch) -> None:
    remember, unwritten = inventory.remember, list[tuple[Path, Any]]()
    finish = closing.Closing._finish

    def write(self: Any, *args: Any) -> Path:
        for each in unwritten:
            remember(*each)
        unwritten.clear()
        return finish(self, *args)

    patched.setattr(inventory, "remember", lambda *args: unwritten.append(args))
    patched.setattr(closing.Closing, "_finish", write)


def _drop_lost(end: Any) -> Any:
    def without(self: Any, call: Any, outcome: str, moment: float, message: str = "") -> None:
        if outcome == "lost":
            self._calls.pop(call.number, None)
        else:
            end(self, call, outcome, moment, message)

    return without


def _count_twice(drain: Any) -> Any:
    def twice(self: Recorder) -> dict[str, Recorded]:
        drained = drain(self)
        for name in ("extend.ok", "claim.ok"):
            for slot in list(drained[name]._counts)[:1] if name in drained else ():
                drained[name]._counts[slot] += 1
        return drained  # type: ignore[no-any-return]

    return twice


def _mark_first(patched: pytest.MonkeyPatch) -> None:
    def mark(self: Any, phase: str) -> None:
        stage = self._stage
        t = self._now()
        self._journal.events.write(
            t, "stage", stage=stage.number, size=stage.size, kind=stage.kind, phase=phase
        )

    patched.setattr(_Worker, "_mark", mark)


def _shorter(begin_hold: Any) -> Any:
    return lambda self, hold: begin_hold(self, 0.7 * hold)


def _of_all(patched: pytest.MonkeyPatch) -> None:
    async def clean(self: Simulated, entry: Any, run_id: str, progress: Any) -> int:
        from tests.simulation.simulated.service import SERVICES

        service = SERVICES[entry.target.name]
        left = [name for name in service.leases if name.startswith(entry.prefix)]
        for name in left:
            service.let_go(name)
        return len(left)

    patched.setattr(Simulated, "clean", clean)


async def _nothing(*_: Any) -> int:
    return 0


def _twice(event: Any) -> Any:
    return lambda self, moment, now: (event(self, moment, now), event(self, moment, now))


def _miss_some(happened: Any) -> Any:
    def miss(self: Watcher, changes: Sequence[Change]) -> None:
        if any(change.revision % 10 for change in changes):
            happened(self, changes)

    return miss


PLANTED: Mapping[str, Plant] = {
    "a turn played twice": _instead(Turns, "_play_turn", _turn_twice),
    "an abort missed": _instead(EarlyWarning, "heard", lambda _: lambda *_: ""),
    "a lost unit left out": _instead(reports, "gather", _not_missing),
    "a leader that forgets a judged load": _instead(director, "_after_judged", _judged_forgotten),
    "timeouts not counted at their cost": lambda patched: patched.setattr(waited, "WAITED", ("ok",)),
    "a ledger written at the end": _ledger_at_the_end,
    "a stall blamed on the target": _instead(Pulse, "stopped", lambda _: lambda *_: 0.0),
    "a lost lease not counted": _instead(Calls, "end", _drop_lost),
    "clean removes what others have": _of_all,
    "clean leaves what was made": lambda patched: patched.setattr(inventory, "clean_entries", _nothing),
    "an operation counted twice": _instead(Recorder, "drain", _count_twice),
    "a stage's begin counted in the one before": _mark_first,
    "a hold cut short": _instead(Stages, "begin_hold", _shorter),
    "an event counted twice": _instead(Watchers, "event", _twice),
    "an event that a watcher misses": _instead(Watcher, "happened", _miss_some),
    "an old read accepted": _instead(StoreLoad, "_check_read", lambda _: lambda *_: None),
}
"""What each does to the engine, by what it is called."""


def found_after(plant: Plant, most: int, *, first: int = 0, large: bool = False) -> tuple[int, str] | None:
    """Return how many seeds it took until a question found the defect, and what it found; None if none did.

    Raises Crashed if a run ends with an exception that nobody handled, which is no answer to a question.
    """
    with pytest.MonkeyPatch.context() as patched:
        plant(patched)
        for number in range(most):
            with tempfile.TemporaryDirectory() as out:
                try:
                    play_and_ask(first + number, Path(out), large=large)
                except AssertionError as found:
                    return number + 1, str(found).partition("\n")[0]
    return None


def look_for_all(most: int, *, first: int = 0, large: bool = False) -> int:
    """Look for each defect in the seeds from `first` on, and print a table; returns how many were not found."""
    missed = 0
    for name, plant in PLANTED.items():
        found = found_after(plant, most, first=first, large=large)
        missed += found is None
        print(
            f"{name:40} {'not found' if found is None else found[0]:>9}  {'' if found is None else found[1][:90]}",
            flush=True,
        )
    return missed
