"""Stages of the claim workload with a rate of their own: of renewals, and of leases that are held for a moment."""

from __future__ import annotations

import asyncio

from tests.unit.workloads.test_claim_workload import HandTarget, Rig, stage_order
from tippingpoint.plan.claim import MAX_LEASES, Stage
from tippingpoint.workloads.load import StageOrder

LONG_S = 3600.0
"""Far longer than any test waits for."""


def asking(number: int = 1, share: tuple[int, int] = (0, 1), **fields: float) -> StageOrder:
    """The begin of a stage with these loads."""
    return stage_order(0, number=number, share=share, spec=Stage.model_validate(fields))


async def released(target: HandTarget, count: int) -> None:
    """Wait until so many leases were released in all."""
    async with asyncio.timeout(600):
        while len(target.released) < count:  # noqa: ASYNC110 - a timer of the load is waited for
            await asyncio.sleep(0.005)


async def test_leases_are_extended_as_often_as_the_stage_says() -> None:
    # given a plan that would extend a lease once in a very long time
    rig = Rig(renew_time=LONG_S, claim_time=2 * LONG_S)
    # when its stage asks for 40 renewals a second by two leases
    await rig.load.begin_stage(asking(leases=2, renewals=40))
    await rig.target.calls(claims=2)
    for number in (0, 1):
        rig.target.grant(number)
    # then both are extended
    await rig.target.calls(extends=2)
    assert {holding.lease for holding, _ in rig.target.extends} == {0, 1}


async def test_renewals_without_a_number_of_leases_are_made_by_as_many_as_renew_time_needs() -> None:
    rig = Rig(renew_time=0.5)
    await rig.load.begin_stage(asking(renewals=12))
    await rig.target.calls(claims=6)
    assert len(rig.target.claims) == 6


async def test_leases_that_are_there_are_extended_more_often_from_the_next_stage_on() -> None:
    # given a lease that is held, and whose next extension is due in a very long time
    rig = Rig(claim_time=2 * LONG_S)
    await rig.load.begin_stage(asking(leases=1, renewals=1 / LONG_S))
    await rig.target.calls(claims=1)
    rig.target.grant(0)
    await asyncio.sleep(0)
    assert not rig.target.extends
    # when the next stage asks for more renewals by the same lease
    await rig.load.begin_stage(asking(2, leases=1, renewals=50))
    # then it is extended, and was not claimed again
    await rig.target.calls(extends=1)
    assert len(rig.target.claims) == 1


async def test_claims_come_at_their_rate_however_late_the_target_answers() -> None:
    rig = Rig()
    await rig.load.begin_stage(asking(claims=200))
    await rig.target.calls(claims=5)
    leases = [lease for lease, _, _ in rig.target.claims]
    assert leases[:5] == [MAX_LEASES - 1 - number for number in range(5)]
    assert rig.load.gauge.in_flight >= 5


async def test_a_claimed_lease_is_released_a_moment_later_and_claimed_again() -> None:
    # given a claim that was answered
    rig = Rig()
    await rig.load.begin_stage(asking(claims=50))
    await rig.target.calls(claims=1)
    first = rig.target.claims[0][0]
    rig.target.grant(0)
    # when the moment is over
    await released(rig.target, 1)
    # then its lease is released, which is timed, and it is used for a later claim
    assert rig.target.released == [first]
    await rig.target.calls(claims=len(rig.target.claims) + 2)
    assert [lease for lease, _, _ in rig.target.claims].count(first) == 2
    counts = rig.counts()
    assert counts["claim.ok"] == counts["release-claim.ok"] == 1


async def test_workers_claim_different_leases_and_none_that_is_held() -> None:
    rigs = [Rig(), Rig()]
    for index, rig in enumerate(rigs):
        await rig.load.begin_stage(asking(share=(index, 2), leases=4, claims=300))
        await rig.target.calls(claims=8)
    claimed = [{lease for lease, _, _ in rig.target.claims} for rig in rigs]
    assert not claimed[0] & claimed[1]
    assert [sorted(leases)[:2] for leases in claimed] == [[0, 2], [1, 3]]


async def test_a_lease_that_somebody_has_is_left_alone_until_that_claim_is_over() -> None:
    # given a claim that is denied
    rig = Rig()
    await rig.load.begin_stage(asking(claims=100))
    await rig.target.calls(claims=1)
    denied, _, future = rig.target.claims[0]
    future.set_result(None)
    # then the claims that follow are for others
    await rig.target.calls(claims=6)
    assert [lease for lease, _, _ in rig.target.claims].count(denied) == 1
    assert rig.counts()["claim.denied"] == 1


async def test_a_stage_without_claims_ends_them() -> None:
    # given claims, one of which is held
    rig = Rig()
    await rig.load.begin_stage(asking(claims=100))
    await rig.target.calls(claims=2)
    rig.target.grant(0)
    # when the next stage has none, and the held one was released
    await rig.load.begin_stage(asking(2, leases=1))
    await released(rig.target, 1)
    claimed = len(rig.target.claims)
    await asyncio.sleep(0.05)
    # then there are none but for the lease that stays
    assert 0 in {lease for lease, _, _ in rig.target.claims}
    assert len(rig.target.claims) == claimed


async def test_leases_held_for_a_moment_are_given_back_with_the_others() -> None:
    # given one that stays and one that is held for a moment
    rig = Rig()
    await rig.load.begin_stage(asking(leases=1, claims=100))
    await rig.target.calls(claims=2)
    brief = next(number for number, (lease, _, _) in enumerate(rig.target.claims) if lease)
    stays = next(number for number, (lease, _, _) in enumerate(rig.target.claims) if not lease)
    rig.target.grant(brief)
    rig.target.grant(stays)
    await asyncio.sleep(0.01)
    rig.load.stop()
    # when all is given back
    left = await rig.load.give_back(60)
    # then each was released once
    assert left == 0
    assert sorted(rig.target.released) == sorted([0, rig.target.claims[brief][0]])
