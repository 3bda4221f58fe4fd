"""A server has its time to answer, and the time in which our own process stood still is not taken from it."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from tippingpoint.util import patience
from tippingpoint.util.patience import answers_within

LOOPS = ("asyncio", "uvloop")


async def silence(patience: float) -> None:
    async with answers_within(patience):
        await asyncio.Event().wait()


async def test_a_silent_server_is_not_waited_for_longer_than_that() -> None:
    with pytest.raises(TimeoutError):
        await silence(0.01)


async def test_what_is_answered_in_time_is_not_interrupted_later() -> None:
    async with answers_within(0.01):
        pass
    await asyncio.sleep(0.05)


async def test_what_was_answered_while_this_process_stood_still_is_read() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    # given a server that is given little time, and answers in that time
    async with answers_within(0.01):
        theirs.sendall(b"answer")
        # when this process stands still past that time, then the answer counts
        time.sleep(0.01 + patience.LOCAL_STALL_TOLERANCE + 0.1)  # noqa: ASYNC251 (the loop is to stand still)
        assert await reader.readexactly(6) == b"answer"
    writer.close()
    theirs.close()


async def test_who_does_not_answer_after_a_standstill_either_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "LOCAL_STALL_TOLERANCE", 0.2)
    asyncio.get_running_loop().call_soon(time.sleep, 0.3)
    with pytest.raises(TimeoutError):
        await silence(0.01)


async def test_who_keeps_us_busy_is_given_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LOCAL_STALL_TOLERANCE", 0.02)
    rounds = 0

    async def busy() -> None:
        nonlocal rounds
        while rounds < 50:
            rounds += 1
            time.sleep(0.05)  # noqa: ASYNC251 (the loop is to stand still)
            await asyncio.sleep(0)

    # given a server that answers nothing, and an event loop that is late each time it looks
    keeping = asyncio.create_task(busy())
    # when it is waited for, then it has its time a few times more, and no longer
    with pytest.raises(TimeoutError):
        await silence(0.01)
    assert rounds < 25
    keeping.cancel()
