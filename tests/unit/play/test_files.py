"""The open files that a run's workers may have."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tippingpoint.plan.read import validate_plan
from tippingpoint.play.files import allow_files

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
    allow_files(plan, {}, workers=1, of_worker={})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft >= min(MANY, hard)


_ASKED = """
import os, resource, sys
from tippingpoint.errors import UserError
from tippingpoint.plan.read import validate_plan
from tippingpoint.play.files import allow_files
from tippingpoint.targets.registry import target_of

soft, hard, connections, api = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
target = {"kind": "etcd", "connections": connections, "api": api, "endpoints": ["http://[::1]:1", "http://[::1]:2"]}
plan = validate_plan({"name": "p", "target": target, "stages": [{"leases": 1}]})
etcd = target_of("etcd")
try:
    allow_files(plan, etcd.connections(plan), 2, etcd.connections_of_worker(plan))
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
except UserError as refused:
    print(refused)
"""


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "api", "said"),
    [
        (64, 5000, 1, "v3", "130"),
        (1024, 5000, 1100, "v3", "2328"),
        (1024, 5000, 100, "v2", "1024"),
        (
            1024,
            1024,
            1100,
            "v3",
            "target.connections: 1100: expected a limit of open files (ulimit -n) of at least 2328, as each of the "
            "run's workers has 2,200 connections; this one allows 448",
        ),
        (
            1024,
            1024,
            300,
            "v2",
            "target.connections: 300: expected a limit of open files (ulimit -n) of at least 1328, as each of the "
            "run's workers has 1,200 connections; this one allows 224",
        ),
    ],
)
def test_the_connections_of_each_worker_are_allowed_or_refused_before_a_run(
    soft: int, hard: int, connections: int, api: str, said: str
) -> None:
    """Given a login shell's soft limit, then it is raised as far as a plan needs; a lower hard limit is named."""
    done = subprocess.run(
        [sys.executable, "-c", _ASKED, str(soft), str(hard), str(connections), api],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert (done.stdout.strip(), done.stderr) == (said, "")
