"""Who asks for the end of a run is heard at once; what is under way may end unless there is a hurry."""

from __future__ import annotations

import asyncio

import pytest

from tippingpoint.play.interruption import EndedEarly, Interruption


async def test_what_ends_before_anybody_asks_has_its_result() -> None:
    async def seven() -> int:
        return 7

    assert await Interruption().unless_asked(seven()) == 7


def test_the_first_reason_is_the_reason() -> None:
    interruption = Interruption()
    interruption.check()
    interruption.ask("enough")
    assert not interruption.hurried.is_set()
    interruption.ask("at once")
    assert interruption.hurried.is_set()
    with pytest.raises(EndedEarly, match=r"^enough$") as early:
        interruption.check()
    assert early.value.status == "interrupted"


@pytest.mark.parametrize("hurry", [False, True])
async def test_what_is_under_way_is_seen_to_its_end_unless_there_is_a_hurry(hurry: bool) -> None:
    """Given work that has something to finish when it is cancelled, then the second request cuts that off."""
    finished: list[str] = []

    interruption = Interruption()
    begun, cancelled, rest = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await rest.wait()
            finished.append("all of it")

    waiting = asyncio.create_task(interruption.unless_asked(work()))
    await begun.wait()
    interruption.ask("enough")
    await cancelled.wait()
    if hurry:
        interruption.ask("at once")
    else:
        rest.set()
    with pytest.raises(EndedEarly, match=r"^enough$"):
        await waiting
    assert finished == ([] if hurry else ["all of it"])
