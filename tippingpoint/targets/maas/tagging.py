"""A tag on the machines of a group: some regions take minutes for what users do with one command."""

from __future__ import annotations

from collections.abc import Collection

from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.errors import MaasError, MaasGone
from tippingpoint.targets.maas.names import mark_of, tag_name
from tippingpoint.targets.maas.workspace import MaasWorkspace

AT_ONCE = 500
"""Machines that one call tags. Django accepts 1000 fields in a form by default."""
_EXISTS = "already exists"


class Tagging:
    """Makes the run's tag, puts it on machines, and removes it. It has no definition, which would match others'
    machines.

    A region that takes longer than the workload's interval gets no second request meanwhile.
    """

    def __init__(self, client: MaasClient, workspace: MaasWorkspace) -> None:
        self._client = client
        self._name = tag_name(workspace.prefix)
        self._mark = mark_of(workspace.run)
        self._made = False
        self._busy = False

    async def tag(self, ids: Collection[str]) -> bool:
        """Make the tag, and put it on machines; False if it exists already, or there is no machine."""
        if self._busy or self._made or not ids:
            return False
        self._busy = self._made = True
        try:
            try:
                await self._client.send("POST", "tags/", [("name", self._name), ("comment", self._mark)])
            except MaasError as problem:
                if _EXISTS not in str(problem):  # else an answer was lost
                    raise
            added = [("add", each) for each in ids]
            for first in range(0, len(added), AT_ONCE):
                part = added[first : first + AT_ONCE]
                await self._client.send("POST", f"tags/{self._name}/", part, op="update_nodes")
        finally:
            self._busy = False
        return True

    async def untag(self) -> bool:
        """Remove the tag from the region, and so from the machines; False if there is none."""
        if self._busy or not self._made:
            return False
        self._busy = True
        try:
            await self._client.send("DELETE", f"tags/{self._name}/")
        except MaasGone:
            pass
        finally:
            self._busy = False
        self._made = False
        return True
