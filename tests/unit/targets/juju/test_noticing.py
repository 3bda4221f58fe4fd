"""Changes that units have to notice."""

from __future__ import annotations

import asyncio
from asyncio import Future

from tippingpoint.targets.juju.work import Noticing

SUBJECT = ("settings", "a:link b:link-from", "a/0")


def future() -> Future[None]:
    return asyncio.get_running_loop().create_future()


async def test_a_change_is_noticed_when_all_readers_have_read_it() -> None:
    """Given two readers, when both have read the change, then it is noticed, and not before."""
    noticing, done = Noticing(), future()
    noticing.expect(SUBJECT, 7, ["b/0", "b/1"], done)
    noticing.seen(SUBJECT, 7, "b/0")
    assert not done.done()
    noticing.seen(SUBJECT, 6, "b/1")
    assert not done.done()
    noticing.seen(SUBJECT, 7, "b/1")
    assert done.done()
    assert not noticing.expects(SUBJECT)


async def test_a_later_change_shows_the_earlier_ones() -> None:
    """Given two changes of which a reader saw only the second, then both are noticed."""
    noticing, first, second = Noticing(), future(), future()
    noticing.expect(SUBJECT, 1, ["b/0"], first)
    noticing.expect(SUBJECT, 2, ["b/0"], second)
    noticing.seen(SUBJECT, 2, "b/0")
    assert first.done()
    assert second.done()


async def test_a_change_that_was_given_up_is_forgotten() -> None:
    """Given a change that took too long, when its readers read it after all, then nothing happens."""
    noticing, late, next_one = Noticing(), future(), future()
    noticing.expect(SUBJECT, 1, ["b/0"], late)
    late.cancel()
    noticing.expect(SUBJECT, 2, ["b/0"], next_one)
    noticing.seen(SUBJECT, 1, "b/0")
    assert not next_one.done()
    noticing.seen(SUBJECT, 2, "b/0")
    assert next_one.done()
    assert late.cancelled()
