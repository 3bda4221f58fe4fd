"""How long a run may take to remove what it made on etcd."""

from __future__ import annotations

from tippingpoint.targets.registry import target_of


def test_the_more_leases_a_run_held_the_longer_their_removal_may_take() -> None:
    """Given etcd, which revokes leases one by one, then 100,000 have the time that 200 a second take, and few are given
    up soon."""
    etcd = target_of("etcd")
    assert etcd.clean_within(100_000) >= 100_000 / 200
    assert etcd.clean_within(100) < 30
