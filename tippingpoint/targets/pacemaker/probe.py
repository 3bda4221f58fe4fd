"""What a cluster's administrators wait for, timed once now: a login, the full status, an update, and a ticket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.targets.pacemaker.access import LOGIN_WITHIN, PacemakerAccess, access, refusal
from tippingpoint.targets.pacemaker.connection import Connection, in_plain_words
from tippingpoint.targets.pacemaker.plan import PacemakerTarget
from tippingpoint.targets.pacemaker.removal import remove_element, remove_leases
from tippingpoint.targets.pacemaker.status import read_status
from tippingpoint.targets.pacemaker.stores import CONFIG, TICKET, TICKETS, Store
from tippingpoint.targets.pacemaker.wire import CAN_CREATE, LOCAL, SYNC, Answer, WireError
from tippingpoint.util import timing
from tippingpoint.util.network_errors import in_words
from tippingpoint.util.patience import answers_within

PROBE = "tippingpoint-probe"
"""The id of what is made when no run is in progress. The next probe removes what a crash left of it."""
ANSWERS_WITHIN = 30.0
"""Seconds to wait for each answer. While the membership changes, a cluster of 16 nodes answers no update for 22 s."""


async def probe(target: PacemakerTarget, prefix: str = "") -> list[str]:
    """Log in to the first node that answers, ask it for each of these once, and return a line for each.

    The update makes a property, so that every node writes the configuration to its disk. (2.1.5 does not write a
    `cibadmin --bump`.) The ticket stays in memory. Both are removed at once; `prefix` is that of the run in
    progress. TargetError if no node lets us in.
    """
    known = access(target)
    began = timing.monotonic()
    connection = await _log_in(known)
    lines = [f"login {_ms(began)}, at {connection.name}"]
    name = f"{prefix}-probe" if prefix else PROBE
    try:
        lines.append(await _timed("status", lambda: _status(connection)))
        lines.append(await _timed("update", lambda: _make(connection, CONFIG, name)))
        await _timed("tickets", lambda: _tickets(connection))
        lines.append(await _timed("ticket", lambda: _make(connection, TICKET, name)))
        with contextlib.suppress(OperationFailed, WireError, TimeoutError):  # it is removed next time
            await remove_leases(connection, name)
            if not prefix:
                await remove_element(connection)
    finally:
        connection.close("closed")
    return lines


async def _log_in(known: PacemakerAccess) -> Connection:
    """Connect to one node after another: a wrong password blocks the CIB daemon of each that is asked."""
    problems: list[str] = []
    for address in known.addresses:
        try:
            async with answers_within(LOGIN_WITHIN):
                return await Connection.connect(
                    address, known.port, known.tls, known.user, known.password, lambda reason: None
                )
        except Exception as error:  # a broken server can make a TLS library raise anything
            if (refused := refusal(f"{address}:{known.port}", error)) is not None:
                raise refused from None
            problems.append(f"{address}:{known.port}: {in_words(error)}")
    raise TargetError("target.credentials", "; ".join(problems[:5]), "at least one node that answers")


async def _timed(what: str, ask: Callable[[], Awaitable[str]]) -> str:
    began = timing.monotonic()
    try:
        async with asyncio.timeout(ANSWERS_WITHIN):
            more = await ask()
    except TimeoutError:
        return f"{what}: no answer within {ANSWERS_WITHIN:g} s"
    except (OperationFailed, WireError) as problem:
        return f"{what}: {problem}"
    return f"{what} {_ms(began)}{more}"


async def _status(connection: Connection) -> str:
    """Read the whole CIB, as `crm_mon` does."""
    answer = _accepted(await connection.call("cib_query", None, None, SYNC | LOCAL))
    status = read_status(answer.body)
    quorum = "" if status.quorum else ", no quorum"
    return f", {len(answer.body)} bytes, {len(status.online)} nodes online, DC {status.dc or 'none'}{quorum}"


async def _tickets(connection: Connection) -> str:
    """Make the element for tickets, marked as ours, unless there is one."""
    await connection.call("cib_create", "status", TICKETS, SYNC)
    return ""


async def _make(connection: Connection, store: Store, name: str) -> str:
    made = store.create(name, "")
    _accepted(await connection.call("cib_modify", store.section, made, SYNC | CAN_CREATE))
    return ""


def _accepted(answer: Answer) -> Answer:
    if answer.code != 0:
        raise OperationFailed(in_plain_words(answer.code))
    return answer


def _ms(began: float) -> str:
    return f"{(timing.monotonic() - began) * 1000:.1f} ms"
