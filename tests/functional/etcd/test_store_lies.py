"""A real etcd behind a proxy that lies once: the store workload names what it saw."""

from __future__ import annotations

from typing import get_args

import pytest

from lab.etcd.cluster import EtcdLab
from tests.functional.etcd.lying_proxy import NAMED, Lie, violations_behind


@pytest.mark.parametrize("lie", get_args(Lie))
async def test_a_lie_is_named_with_its_key_and_revision(etcd: EtcdLab, lie: Lie) -> None:
    found = await violations_behind(etcd.endpoints[0], lie)
    assert [each["kind"] for each in found] == [NAMED[lie]]
    assert found[0]["key"].startswith("0000/")
    assert found[0]["revision"] > 0


async def test_a_proxy_that_does_not_lie_is_not_said_to(etcd: EtcdLab) -> None:
    assert await violations_behind(etcd.endpoints[0], None) == []
