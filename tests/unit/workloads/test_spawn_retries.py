"""Which failures of a spawn are tried again, and how often."""

from __future__ import annotations

import pytest

from tippingpoint.errors import Limited, OperationFailed
from tippingpoint.plan.spawn import RETRIES
from tippingpoint.workloads.spawn.operations import Ended
from tippingpoint.workloads.spawn.retries import Retries, kind_of
from tippingpoint.workloads.spawn.target import TROUBLES, Item, SpawnFailed, Trouble

THING = Item(0, 0)


def tries(retries: Retries, kind: Trouble, thing: object = THING) -> int:
    """How often it is tried again."""
    return next(count for count in range(2000) if retries.again(str(thing), kind) is None)


@pytest.mark.parametrize("kind", TROUBLES)
def test_each_kind_has_its_cap(kind: Trouble) -> None:
    assert tries(Retries({}), kind) == dict(RETRIES).get(kind, 0)  # type: ignore[call-overload]


def test_a_plan_may_say_otherwise_but_what_a_user_must_change_is_never_tried_again() -> None:
    retries = Retries({"full": 2, "locked": 1})
    assert [tries(retries, kind) for kind in ("full", "locked", "trust", "setting")] == [2, 1, 0, 0]


def test_each_thing_and_kind_is_counted_apart() -> None:
    retries = Retries({"locked": 1, "timeout": 2})
    assert tries(retries, "locked") == 1
    assert tries(retries, "timeout") == 2
    assert tries(retries, "locked", Item(0, 1)) == 1
    assert tries(retries, "locked") == 0


def test_what_came_to_be_as_wanted_begins_anew() -> None:
    retries = Retries({"locked": 1})
    assert tries(retries, "locked", "a") == tries(retries, "locked", "b") == 1
    retries.forget("a")
    assert (tries(retries, "locked", "a"), tries(retries, "locked", "b")) == (1, 0)
    retries.clear()
    assert tries(retries, "locked", "b") == 1


def test_waits_grow_up_to_half_a_minute_whatever_the_kinds() -> None:
    retries = Retries({})
    waits = [retries.again(THING, kind) for kind in ("locked", "busy", "locked", "quorum") * 3]
    for number, wait in enumerate(waits):
        full = min(30.0, 2.0**number)
        assert wait is not None
        assert 0.75 * full <= wait <= full


@pytest.mark.parametrize(
    ("outcome", "problem", "kind"),
    [
        ("timeout", None, "timeout"),
        ("error", SpawnFailed("database is locked", "locked"), "locked"),
        ("error", SpawnFailed("no"), "other"),
        ("error", OperationFailed("no"), "other"),
        ("error", KeyError("metadata"), "other"),
        ("limited", Limited("slow down"), "busy"),
    ],
)
def test_a_failure_has_the_kind_that_the_target_gave_it(
    outcome: str, problem: BaseException | None, kind: Trouble
) -> None:
    assert kind_of(Ended(outcome, 1.0, 0.0, problem=problem)) == kind
