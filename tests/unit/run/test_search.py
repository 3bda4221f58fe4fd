"""The search for the largest load that holds."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.plan.claim import Find
from tippingpoint.run.search import Found, find_load


async def search(find: Find, holds_up_to: int) -> tuple[Found, list[int]]:
    probed: list[int] = []

    async def probe(size: int, _kind: Literal["find", "confirm"]) -> bool:
        probed.append(size)
        return size <= holds_up_to

    return await find_load(find, probe), probed


@given(tipping=st.integers(1, 100_000), start=st.integers(1, 1000), resolution=st.floats(0.01, 1))
async def test_a_steady_target_is_bracketed_within_the_resolution(
    tipping: int, start: int, resolution: float
) -> None:
    # given a target that holds exactly up to a load
    find = Find(start=start, limit=100_000, resolution=resolution, repeats=2)
    # when it is searched
    found, probed = await search(find, tipping)
    # then the answer encloses that load, is confirmed, and no probe went beyond the limit
    assert found.confirmed
    assert found.held is not None
    assert found.held <= tipping
    assert max(probed) <= 100_000
    if found.broken is None:
        assert found.held == 100_000
    else:
        assert tipping < found.broken
        assert found.broken - found.held <= max(1, resolution * found.held)


async def test_a_target_that_never_breaks_holds_the_limit() -> None:
    found, probed = await search(Find(start=100, limit=700, repeats=3), 10**9)
    assert (found.held, found.broken, found.confirmed) == (700, None, True)
    assert probed[:4] == [100, 200, 400, 700]


async def test_a_target_that_holds_nothing_is_said_to_hold_nothing() -> None:
    found, _ = await search(Find(start=100, limit=700, repeats=1), 0)
    assert (found.held, found.broken) == (None, 1)


async def test_a_load_that_held_once_by_luck_is_not_the_answer() -> None:
    # given a target that holds 100, and let 200 pass the first time it was tried
    tried = 0

    async def probe(size: int, _kind: Literal["find", "confirm"]) -> bool:
        nonlocal tried
        if size == 200:
            tried += 1
            return tried == 1
        return size <= 100

    found = await find_load(Find(start=100, limit=1000, resolution=1.0, repeats=3), probe)
    # then the repeats find out
    assert found.confirmed
    assert found.held == 100
    assert found.broken is not None
    assert found.broken <= 200
