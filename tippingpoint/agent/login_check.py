"""Checks before a run begins whether the target accepts us: it logs in whenever the access to the target changes.

A failed log-in is retried, but rarely, because too many refused passwords can lock a user out. Secrets never reach a
disk: each log-in writes its files to the service's runtime directory, which is in memory, and removes them afterwards.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tippingpoint.errors import TargetError, UserError, describe
from tippingpoint.plan.kinds import TargetSection, section_of
from tippingpoint.targets.registry import target_of
from tippingpoint.targets.secret import PLACE
from tippingpoint.util.backoff import doubled
from tippingpoint.util.patience import answers_within

FIRST_WAIT = 180.0
"""Seconds until a failed log-in is retried; after each refusal twice as long, up to LONGEST_WAIT."""
LONGEST_WAIT = 3600.0
WITHIN = 60.0
"""Seconds that a log-in may take."""


async def log_in(section: Any) -> None:
    """Log in to a target; raises TargetError when it does not accept us, and UserError for an unusable file of
    ours."""
    await target_of(section.kind).log_in(section)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a log-in: `problem` is empty if it succeeded, or if it is still `trying`; `refused` is as in
    TargetError."""

    problem: str = ""
    refused: bool = False
    trying: bool = False


class LoginCheck:
    """Logs in to the target with the latest access that was given."""

    def __init__(
        self,
        runtime: Path,
        is_busy: Callable[[], bool],
        changed: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Files are written below `runtime`; nothing is tried while `is_busy`; `changed` is called when the outcome
        changes."""
        self._sleep = sleep
        self._runtime = runtime
        self._is_busy = is_busy
        self._changed = changed
        self._target: dict[str, Any] = {}
        self._files: dict[str, str] = {}
        self._outcome = Outcome()
        self._task: asyncio.Task[None] | None = None

    def tell(self, target: Mapping[str, Any], files: Mapping[str, str]) -> Outcome:
        """Take the present access to the target, as in requests.AccessRequest; returns what is known about it.

        If it is new, a log-in begins.
        """
        if (target, files) != (self._target, self._files):
            self._target, self._files = dict(target), dict(files)
            self._outcome = Outcome(trying=bool(target))
            self._cancel()
            if target:
                self._task = asyncio.create_task(self._keep_trying())
        return self._outcome

    async def close(self) -> None:
        """Stop trying."""
        task = self._task
        self._cancel()
        if task is not None:
            await asyncio.wait([task])

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _keep_trying(self) -> None:
        tries = 1
        while True:
            if not self._is_busy():
                outcome = await self._try()
                if outcome != self._outcome:
                    self._outcome = outcome
                    self._changed()
                if not outcome.problem:
                    return
            await self._sleep(doubled(tries, FIRST_WAIT, LONGEST_WAIT))
            if self._outcome.refused:
                tries += 1

    async def _try(self) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="login-", dir=self._runtime) as place:
            try:
                _write(self._files, Path(place))
                async with answers_within(WITHIN):
                    await log_in(_section_at(self._target, place))
            except TimeoutError:
                return Outcome(f"no answer within {WITHIN:g} s")
            except TargetError as problem:
                # A refusal is described by what would fix it. For a target that does not answer, the address matters:
                # it is in `where`, unless that names a field or a cloud.
                known = problem.refused or problem.where.startswith("target.")
                named = not target_of(self._target["kind"]).errors_name_address
                where = "" if known or named else f"{problem.where}: "
                return Outcome(f"{where}{problem.problem}", problem.refused)
            except UserError as problem:
                return Outcome(str(problem).replace(f"{place}/", ""), refused=True)
            except Exception as problem:
                return Outcome(describe(problem).replace(f"{place}/", ""))
        return Outcome()


def _write(files: Mapping[str, str], place: Path) -> None:
    for name, text in files.items():
        fd = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)


def _section_at(target: Mapping[str, Any], place: str) -> TargetSection:
    """Return the target's section, with its files in this directory."""
    fields = {
        key: value.replace(PLACE, place) if isinstance(value, str) else value for key, value in target.items()
    }
    return section_of(fields["kind"]).model_validate(fields)
