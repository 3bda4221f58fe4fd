"""What a runner is asked while it runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tippingpoint.errors import UserError
from tippingpoint.plan.read import load_plan
from tippingpoint.play.runner import Runner


async def test_only_a_run_that_makes_containers_has_members_to_evict(tmp_path: Path) -> None:
    runner = Runner(load_plan("etcd-leases-small"), tmp_path)
    with pytest.raises(UserError, match=r"^member: m1: expected a run of the workload spawn$"):
        await runner.evict("m1")


async def test_before_a_stage_is_on_nobody_is_evicted_and_nothing_repaired(tmp_path: Path) -> None:
    runner = Runner(load_plan("lxd-cluster-small"), tmp_path)
    runner.repair()
    assert await runner.evict("m1") == "no stage is running"
