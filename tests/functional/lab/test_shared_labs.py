"""Tests that share a lab: one that fails does not take the others with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from lab.control import LabError
from lab.etcd.cluster import EtcdLab
from tests.functional.program import etcd_call
from tests.functional.shared_labs import SharedLab, look_at_etcd

Shared = tuple[SharedLab[EtcdLab], Callable[[], None]]


@pytest.fixture
def shared() -> Iterator[Shared]:
    """A shared lab of one member, and what has a test fail."""
    failures = 0

    def fail() -> None:
        nonlocal failures
        failures += 1

    with SharedLab(lambda: EtcdLab(members=1), look_at_etcd, lambda: failures) as lab:
        yield lab, fail


def _put_a_key(lab: EtcdLab) -> None:
    etcd_call(lab.endpoints[0], "/v3/kv/put", {"key": "eA==", "value": "eA=="})


@pytest.mark.parametrize("hurt", [lambda lab: lab.kill("m1"), lambda lab: lab.stop("m1"), _put_a_key])
def test_after_a_failure_that_broke_a_lab_there_is_a_new_one(
    shared: Shared, hurt: Callable[[EtcdLab], None]
) -> None:
    """Given a member that is dead or stands still, or something that is left."""
    lab, fail = shared
    first = lab.take()
    hurt(first)
    fail()

    second = lab.take()

    assert second is not first
    assert all(member["running"] for member in second.members())
    assert lab.take() is second


def test_after_a_failure_that_left_a_lab_alone_it_is_the_same(shared: Shared) -> None:
    lab, fail = shared
    first = lab.take()
    fail()

    assert lab.take() is first


def test_what_a_test_that_passes_leaves_is_its_own_affair(shared: Shared) -> None:
    lab, _fail = shared
    first = lab.take()
    _put_a_key(first)

    assert lab.take() is first


def test_a_lab_that_rests_is_started_for_the_next_test(shared: Shared) -> None:
    lab, _fail = shared
    first = lab.take()

    lab.rest()

    assert first.pids == {}
    assert lab.take().pids


def test_a_lab_that_did_not_start_is_not_tried_for_every_test() -> None:
    tried = count()

    def make() -> EtcdLab:
        next(tried)
        return EtcdLab(members=0)

    with SharedLab(make, look_at_etcd, lambda: 0) as shared:
        for _ in range(2):
            with pytest.raises(LabError, match="members: 0: expected at least 1"):
                shared.take()

    assert next(tried) == 1
