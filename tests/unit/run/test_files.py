"""The open files that a run's workers may have."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from tippingpoint.plan.read import validate_plan
from tippingpoint.run.files import allow_files

FEW = 256
MANY = 10_000


@pytest.fixture
def few_files() -> Iterator[None]:
    """This process may open few files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_things_that_are_made_at_once_may_have_a_connection_each() -> None:
    """Given a batch of a thousand servers and a login shell's limit, then calls do not run out of files."""
    plan = validate_plan(
        {
            "name": "test",
            "target": {"kind": "openstack"},
            "workload": {"kind": "spawn", "until": "started", "batch": 1000},
            "stages": [{"instances": 1000}],
        }
    )
    allow_files(plan, {}, workers=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft >= min(MANY, hard)
