"""Removes from their targets what parts made, however they ended, with retries while a target cannot be reached."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

from tippingpoint.agent.run_store import RunStore
from tippingpoint.errors import describe
from tippingpoint.util import timing
from tippingpoint.util.backoff import doubled

FIRST_WAIT = 15.0
"""Seconds until a failed removal is retried, twice as long each time, up to LONGEST_WAIT."""
LONGEST_WAIT = 600.0
GIVEN_UP_AFTER = 86400.0
"""Seconds after which the removal is only retried by the action `clean`."""


class Removal:
    """Removes what is left of ended parts, in the background, one part after the other."""

    def __init__(
        self,
        store: RunStore,
        going_on: Callable[[], list[str]],
        changed: Callable[[], None],
        unit: Callable[[], str],
    ) -> None:
        """`going_on` names the parts that may still need their objects; `changed` is called when a problem appears
        or is solved; `unit` returns the agent's unit."""
        self._unit = unit
        self._store = store
        self._going_on = going_on
        self._changed = changed
        self._problems: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    def begin(self) -> None:
        """Start the removal, unless it is running."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._remove_all())

    def problem(self, run: str) -> str:
        """Return what is left of the parts of a run and why, in one line; empty if nothing is known to be left."""
        return "; ".join(problem for part, problem in self._problems.items() if part.startswith(f"{run}."))

    async def remove(self, part: str) -> int:
        """Remove what is left of a part now; returns how many things were removed. Raises what RunStore.remove
        raises."""
        async with self._one_at_a_time:
            removed = await self._store.remove(part)
        self._forget(part)
        return removed

    async def close(self) -> None:
        """Leave the rest to the next agent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _remove_all(self) -> None:
        begun, tries = timing.monotonic(), 0
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(timing.wall() + GIVEN_UP_AFTER))
        while left := [part for part in self._store.left() if part not in self._going_on()]:
            again = timing.monotonic() - begun < GIVEN_UP_AFTER
            for part in left:
                try:
                    await self.remove(part)
                except Exception as problem:
                    self._note(part, describe(problem), until if again else "")
            if not again:
                return
            if any(self._store.is_left(part) for part in left):
                tries += 1
                await asyncio.sleep(doubled(tries, FIRST_WAIT, LONGEST_WAIT))
            for part in left:
                if not self._store.is_left(part):  # somebody else may have removed it
                    self._forget(part)

    def _forget(self, part: str) -> None:
        if self._problems.pop(part, ""):
            self._changed()

    def _note(self, part: str, problem: str, until: str) -> None:
        """Note what is left, and until when the removal is retried; after that, the command that removes it."""
        line = f"not all removed from the target, retried until {until}: {problem}"
        if not until:
            run = re.sub(r"(\.\d+){1,2}$", "", part)  # a resumed part has two numbers
            line = f"juju run {self._unit()} clean run={run}: not all removed from the target: {problem}"
        if self._problems.get(part) != line:
            self._problems[part] = line
            self._changed()
