"""Resource pools: each group of machines has one, so that one list shows the group and nothing else."""

from __future__ import annotations

from typing import Any, cast

from tippingpoint.targets.maas.client import MaasClient, mapping
from tippingpoint.targets.maas.errors import MaasError
from tippingpoint.targets.maas.names import mark_of, pool_name


async def make_pool(client: MaasClient, prefix: str, run: str, group: int) -> None:
    """Make the pool of a group, unless it exists; MaasError if one of this name is not the run's."""
    name = pool_name(prefix, group)
    wanted = [("name", name), ("description", mark_of(run))]
    try:
        await client.send("POST", "resourcepools/", wanted)
    except MaasError as problem:
        # The pool may exist already, for instance if an answer was lost.
        if problem.code != 400:
            raise
        found = [each for each in await pools(client) if each.get("name") == name]
        if not found:
            raise
        if found[0].get("description") != mark_of(run):
            raise MaasError(f"resource pool {name}: exists, and is not the run's", "setting") from None


async def pools(client: MaasClient) -> list[dict[str, Any]]:
    """Return all resource pools of the region."""
    found = await client.get("resourcepools/")
    if not isinstance(found, list):
        raise MaasError("an invalid list of resource pools")
    return [mapping(each) for each in cast("list[Any]", found)]
