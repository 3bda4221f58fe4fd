"""A worker is told its job in one line."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tippingpoint.plan.read import load_plan
from tippingpoint.play.worker import Job


@pytest.mark.parametrize("name", ["etcd-leases-small", "juju-add-unit", "lxd-cluster-small"])
def test_a_worker_hears_the_plan_that_the_runner_has(name: str) -> None:
    """Given a plan of any workload, then it comes to the worker whole, and nothing is warned of on the terminal."""
    job = Job(
        plan=load_plan(name),
        directory=Path("runs/r"),
        rescue=Path("rescue"),
        name="0",
        workspace={"lab": "m1"},
        started_wall=1e9,
        started=1.0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        line = job.model_dump_json()
    assert Job.model_validate_json(line) == job
