"""Removes from a CIB what a run created there. Everything else stays as it is, except the CIB's version."""

from __future__ import annotations

import asyncio
import re

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.targets.pacemaker.access import PacemakerAccess
from tippingpoint.targets.pacemaker.connection import Connection, in_plain_words
from tippingpoint.targets.pacemaker.cts_things import Call, put_back
from tippingpoint.targets.pacemaker.nodes import Link, Nodes
from tippingpoint.targets.pacemaker.resource_removal import remove_resources
from tippingpoint.targets.pacemaker.stores import MADE, STORES
from tippingpoint.targets.pacemaker.wire import LOCAL, MULTIPLE, NO_MATCH, SYNC, XPATH, Answer
from tippingpoint.util.network_errors import in_words
from tippingpoint.workloads.load import OnProgress, untold

AT_ONCE = 500
"""The most leases that one change removes. The cluster answers nobody meanwhile; 3,000 tickets take it 0.4 s."""
ANSWER_WITHIN = 60.0
_EMPTY = f"/cib/status/tickets[@{MADE} and not(*)]"


async def remove(access: PacemakerAccess, prefix: str, progress: OnProgress = untold) -> int:
    """Remove every lease and resource whose id begins with PREFIX-, and the settings that put nodes in standby; returns
    how many there were. TargetError when that fails."""
    nodes = Nodes(access, 1)
    try:
        await nodes.open()
        link = await nodes.quorate()
        count = await put_back(_checked(link), prefix) + await remove_leases(link, f"{prefix}-")
        await remove_element(link)
        return count + await remove_resources(nodes, prefix, progress)
    except (OperationFailed, TimeoutError) as problem:
        raise TargetError("target.credentials", in_words(problem), "a cluster that removes them") from None
    finally:
        nodes.close("closed")


def _checked(link: Link | Connection) -> Call:
    """A call whose return code is checked."""

    async def call(operation: str, section: str | None, data: str | None, options: int) -> Answer:
        async with asyncio.timeout(ANSWER_WITHIN):
            answer = await link.call(operation, section, data, options)
        if answer.code not in (0, NO_MATCH):
            raise OperationFailed(f"{link.name}: {in_plain_words(answer.code)}")
        return answer

    return call


async def remove_leases(link: Link | Connection, prefix: str) -> int:
    """Remove every lease whose id begins with `prefix`; returns their number. OperationFailed when it fails."""
    count = 0
    for store in STORES.values():
        every = store.all_of(prefix)
        found = await _ask(link, "cib_query", every, LOCAL)
        # The ids of properties begin in the same way as those of their sets.
        count += len(re.findall(rb"<(?:ticket_state|cluster_property_set) ", found.body))
        while found.code != NO_MATCH:
            await _ask(link, "cib_delete", f"({every})[position() <= {AT_ONCE}]", MULTIPLE)
            found = await _ask(link, "cib_query", f"({every})[1]", LOCAL)
    return count


async def remove_element(link: Link | Connection) -> None:
    """Remove the element for tickets, if a run made it and it is empty. OperationFailed when it fails."""
    await _ask(link, "cib_delete", _EMPTY, 0)


async def _ask(link: Link | Connection, operation: str, path: str, options: int) -> Answer:
    return await _checked(link)(operation, path, None, SYNC | XPATH | options)
