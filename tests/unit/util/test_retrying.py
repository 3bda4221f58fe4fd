"""What is no part of the load is asked again while it fails of what passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tippingpoint.util.retrying import retry

T = TypeVar("T")


class Locked(Exception):
    """What passes by itself."""


class Calls:
    """A call that raises these, one after the other, and then has an answer."""

    def __init__(self, *problems: Exception) -> None:
        self.problems = list(problems)
        self.made = 0

    async def __call__(self) -> str:
        self.made += 1
        if self.problems:
            raise self.problems.pop(0)
        return "done"


async def retried(call: Callable[[], Awaitable[T]], within: float = 60.0) -> T:
    return await retry(call, within, lambda problem: isinstance(problem, Locked), 0.001, 0.002)


async def test_what_passes_is_asked_again_until_it_is_answered() -> None:
    calls = Calls(Locked(), Locked(), Locked())
    assert await retried(calls) == "done"
    assert calls.made == 4


async def test_what_does_not_pass_is_raised_at_once() -> None:
    calls = Calls(Locked(), ValueError("wrong"), Locked())
    with pytest.raises(ValueError, match="wrong"):
        await retried(calls)
    assert calls.made == 2


async def test_what_does_not_pass_in_time_is_raised_as_it_was_last() -> None:
    calls = Calls(*(Locked(str(number)) for number in range(3)))
    with pytest.raises(Locked, match="0"):
        await retried(calls, within=0.0)
    assert calls.made == 1


async def test_an_answer_that_does_not_come_in_time_is_waited_for_no_longer() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await retried(never, within=0.01)
