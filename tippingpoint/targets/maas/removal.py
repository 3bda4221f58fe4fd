"""Removes from a MAAS what a run made there: its machines, the resource pools that have them, and its tag."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlsplit

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.client import MaasClient, mapping
from tippingpoint.targets.maas.errors import MaasError, MaasGone
from tippingpoint.targets.maas.ledger import MaasEntry
from tippingpoint.targets.maas.maker import Maker
from tippingpoint.targets.maas.makers import maker_of
from tippingpoint.targets.maas.names import group_of, mark_of, pool_name, tag_name
from tippingpoint.targets.maas.pools import pools
from tippingpoint.targets.maas.status import OWNED, Machine, Status, machine_of
from tippingpoint.targets.maas.workspace import MaasWorkspace
from tippingpoint.workloads.load import OnProgress, untold
from tippingpoint.workloads.spawn.target import SpawnFailed

AT_ONCE = 8
"""Concurrent calls. A region has four workers that answer the API."""
STUCK_AFTER = 180.0
"""Seconds without progress after which a removal ends. A region gives a machine five minutes to be released, but one
whose power controller does not answer fails within seconds."""
_PAUSE = 1.0
_UNRELEASED = (Status.FAILED_RELEASING, Status.FAILED_DISK_ERASING)
_RELEASED_SOON = (Status.RELEASING, Status.DISK_ERASING)


async def remove(entry: MaasEntry, progress: OnProgress = untold) -> int:
    """Remove what remains of a run; returns the number of machines, pools and tags removed.

    The run's things have both its prefix in their name and its mark. Machines that have an owner are released first, so
    that none is left running. TargetError names what could not be removed.
    """
    known = access(entry.target)
    client = MaasClient(known)
    maker = maker_of(MaasWorkspace(run=entry.run, prefix=entry.prefix, target=entry.target), known, client)
    try:
        await client.log_in()
        await maker.open()
        removal = _Removal(client, maker, entry, progress)
        await removal.run()
        return removal.removed
    except OperationFailed as problem:
        where = urlsplit(known.url).netloc
        raise TargetError(where, str(problem), "a MAAS that permits the removal") from None
    finally:
        await maker.close()
        await client.close()


class _Removal:
    """The removal of one run's things; `removed` counts them."""

    def __init__(self, client: MaasClient, maker: Maker, entry: MaasEntry, progress: OnProgress) -> None:
        self._client = client
        self._maker = maker
        self._entry = entry
        self._progress = progress
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._goal = 0
        self._why: SpawnFailed | None = None
        self.removed = 0

    async def run(self) -> None:
        """Remove everything until two passes find nothing: the run's last calls may still be on their way.

        Raises MaasError if nothing moves for STUCK_AFTER seconds.
        """
        loop = asyncio.get_running_loop()
        moved, before, quiet = loop.time(), (-1, -1), 0
        while quiet < 2:
            left, busy = await self._pass()
            if left == 0:
                left = await self._maker.clear()
                self.removed += left
            quiet = quiet + 1 if left == 0 else 0
            if (left, busy) != before:
                moved, before = loop.time(), (left, busy)
            elif left and loop.time() - moved > STUCK_AFTER:
                why = f", {self._why}" if self._why else ""
                raise MaasError(f"machines and pools are still there: {left}{why}")
            if quiet < 2:
                await asyncio.sleep(_PAUSE)

    async def _pass(self) -> tuple[int, int]:
        """Remove what can be removed now; returns how many things there were, and how many are being released."""
        left = busy = 0
        for pool in await pools(self._client):
            group = group_of(self._entry.prefix, pool.get("name"))
            if group is None or pool.get("description") != mark_of(self._entry.run):
                continue
            machines = await self._machines(group)
            self._goal = max(self._goal, self.removed + len(machines) + 1)
            left += len(machines) + 1
            busy += sum(machine.status in _RELEASED_SOON for machine in machines)
            await self._all([self._take_away(machine) for machine in machines])
            if not machines:
                await self._all([self._delete(f"resourcepool/{pool.get('id')}/")])
        for tag in await self._client.each("tags/", mapping):
            if tag.get("name") == tag_name(self._entry.prefix) and tag.get("comment") == mark_of(
                self._entry.run
            ):
                left += 1
                await self._all([self._delete(f"tags/{tag_name(self._entry.prefix)}/")])
        return left, busy

    async def _machines(self, group: int) -> list[Machine]:
        prefix, run = self._entry.prefix, self._entry.run
        query = [("pool", pool_name(prefix, group))]
        return await self._client.each("machines/", lambda entry: machine_of(prefix, run, entry), query)

    async def _take_away(self, machine: Machine) -> None:
        """Release a machine that has an owner, or remove it. One that cannot be released is removed as it is."""
        if machine.status in _RELEASED_SOON:
            return
        if machine.status in OWNED and machine.status not in _UNRELEASED:
            async with self._at_once:
                await self._client.send("POST", f"machines/{machine.id}/", op="release")
            return
        await self._delete(f"machines/{machine.id}/")
        await self._maker.unmake(machine.item)

    async def _delete(self, path: str) -> None:
        async with self._at_once:
            try:
                await self._client.send("DELETE", path)
            except MaasGone:
                return
        self.removed += 1
        self._progress("machines", self.removed, max(self._goal, self.removed))

    async def _all(self, calls: list[Coroutine[Any, Any, None]]) -> None:
        """Make all calls, regardless of failures of others: they are tried again in the next pass."""
        for done in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(done, SpawnFailed):
                self._why = done
            elif done is not None:
                raise done
