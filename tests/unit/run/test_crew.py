"""What a crew makes of its workers' ticks."""

from __future__ import annotations

from tests.unit.run.run_ticks import tick_of
from tippingpoint.run.crew import Headway
from tippingpoint.run.messages import Tick


def ticks(*held: int, waiting: int = 0) -> dict[str, Tick]:
    return {str(worker): tick_of(there, waiting=waiting) for worker, there in enumerate(held)}


def test_a_load_that_grows_gets_on() -> None:
    headway = Headway(removing=False)
    made = [headway.made(ticks(held)) for held in (0, 3, 3, 2, 4)]
    assert made == [True, True, False, False, True]


def test_what_waits_for_a_release_is_there_too() -> None:
    headway = Headway(removing=False)
    assert headway.made(ticks(1, waiting=1))
    assert headway.made(ticks(1, waiting=2))


def test_what_is_still_to_be_made_is_no_headway_and_less_of_it_is() -> None:
    headway = Headway(removing=False, making=True)
    made = [
        headway.made(ticks(held, waiting=waiting)) for held, waiting in ((0, 10), (0, 10), (0, 9), (1, 8))
    ]
    assert made == [True, False, True, True]


def test_a_removal_gets_on_where_things_become_fewer() -> None:
    headway = Headway(removing=True)
    made = [headway.made(ticks(held, waiting=10)) for held in (9, 9, 10, 8, 0)]
    assert made == [True, False, False, True, True]


def test_one_worker_that_gets_on_is_enough_and_each_step_counts_once() -> None:
    headway = Headway(removing=False)
    made = [headway.made(ticks(*held)) for held in ((100, 0), (90, 1), (90, 1), (101, 2), (101, 2))]
    assert made == [True, True, False, True, False]
