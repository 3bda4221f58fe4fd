"""How the machines of a run are made, and what is left of them when MAAS has deleted them: the contract of a kind of
`target.made`."""

from __future__ import annotations

from typing import Any, Protocol

from tippingpoint.workloads.spawn.target import Item


class Maker(Protocol):
    """Makes machines in one of the ways that a plan names. A worker has one, and so has a removal.

    It is used from one event loop. Failures raise SpawnFailed. Calls have no time limit. A maker that involves only
    MAAS implements only `make`.
    """

    async def open(self) -> None:
        """Connect to what makes machines beside MAAS; TargetError if it cannot be reached or refuses us."""

    async def make(self, item: Item) -> Any:
        """Make a machine and register it in MAAS, with the run's name and mark, in its group's pool.

        Returns MAAS's answer about the machine, as a list has it. Raises MaasExists if MAAS knows the machine already.
        """
        ...

    async def unmake(self, item: Item) -> None:
        """Remove what is left of a machine that MAAS has deleted; no error if nothing is."""

    async def clear(self) -> int:
        """Remove everything of the run outside MAAS, once its machines are deleted there; returns how many things.

        Things that a dead worker left half made are found by the run's prefix.
        """
        return 0

    async def close(self) -> None:
        """Close what `open` opened."""
