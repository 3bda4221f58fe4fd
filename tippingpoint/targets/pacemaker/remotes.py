"""Adds remote nodes to a cluster before a run's stages: resources that connect to where a pacemaker_remote waits."""

from __future__ import annotations

import asyncio

from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.targets.pacemaker.access import access
from tippingpoint.targets.pacemaker.cib import Cib
from tippingpoint.targets.pacemaker.live import Live
from tippingpoint.targets.pacemaker.plan import REMOTE, PacemakerTarget
from tippingpoint.targets.pacemaker.primitives import Names, primitive
from tippingpoint.targets.pacemaker.wire import CAN_CREATE
from tippingpoint.targets.target import Tell
from tippingpoint.util import timing

ONLINE_WITHIN = 600.0
"""Seconds until all are online. 50 took 34 s on 2 busy cores."""
_LIST_EVERY = 5.0


def check_remotes(target: PacemakerTarget) -> None:
    """UserError if the credentials have fewer addresses than the plan has remote nodes."""
    has, wanted = len(access(target).remotes), target.nodes.remote
    if wanted > has:
        raise UserError(
            "target.nodes.remote",
            str(wanted),
            f"at most {has}, as many addresses as `remotes` of the credentials",
        )


async def add_remotes(target: PacemakerTarget, prefix: str, tell: Tell) -> None:
    """Add the plan's remote nodes by one change, wait until all are online, and report how long that took."""
    known, names, live = access(target), Names(prefix), Live(prefix)
    ids = [names.remote(number) for number in range(target.nodes.remote)]
    cib = Cib(known, 1, 0, live)
    try:
        await cib.open()
        await cib.look()
        begin = timing.monotonic()
        nodes = "".join(
            primitive(id, REMOTE, {"server": address}, 0)
            for id, address in zip(ids, known.remotes, strict=False)
        )
        code = await cib.change("cib_modify", "resources", f"<resources>{nodes}</resources>", CAN_CREATE)
        if code:
            raise cib.failure(code)
        times = sorted(await _await_online(cib, live, ids, begin))
    except (OperationFailed, TimeoutError) as problem:
        online = sum(id in live.at for id in ids)
        raise TargetError(
            "target.nodes.remote",
            f"{online} of {len(ids)} online: {problem or f'after {ONLINE_WITHIN:.0f} s'}",
            "a pacemaker_remote at each of the credentials' `remotes` that accepts the cluster's key",
        ) from None
    finally:
        await cib.close(0.0)
    half, last = times[len(times) // 2], times[-1]
    tell(f"{len(ids)} remote nodes were online after {last:.1f} s, half of them after {half:.1f} s.")


async def _await_online(cib: Cib, live: Live, ids: list[str], begin: float) -> list[float]:
    async def online(id: str) -> float:
        await live.until(id, lambda: live.at.get(id), starts=True)
        return timing.monotonic() - begin

    async with asyncio.timeout(ONLINE_WITHIN):
        waits = [asyncio.ensure_future(online(id)) for id in ids]
        try:
            pending = set(waits)
            while pending:
                done, pending = await asyncio.wait(
                    pending, timeout=_LIST_EVERY, return_when=asyncio.FIRST_EXCEPTION
                )
                for each in done:
                    each.result()
                if pending:
                    await cib.look()
        finally:
            for each in waits:
                each.cancel()
    return [each.result() for each in waits]
