"""The quick tests: the part of the functional tests that plain `./scripts/test` runs.

`pytest -m quick tests/functional` runs them alone. The rule: the clients of etcd and Juju in full, the simulated MAAS,
one server of LXD, whole runs on etcd, Juju and LXD, the example of a target, and `clean`. Nothing that needs OpenStack,
Pacemaker, libvirt, RabbitMQ, Prometheus or a packed charm is quick, and no test that starts or shares a cluster of LXD.
All of it takes some three minutes of CPU time.
"""

from __future__ import annotations

from collections.abc import Collection

QUICK = (
    "docs",
    "etcd/test_etcd_target.py",
    "etcd/test_runs.py",
    "juju/test_juju_contract.py",
    "juju/test_juju_hollow.py",
    "juju/test_juju_runs.py::TestRefusals",
    "juju/test_juju_runs.py::test_a_run_claims_extends_reports_and_leaves_nothing",
    "juju/test_juju_runs.py::test_after_a_crash_clean_removes_exactly_what_was_made",
    "juju/test_juju_spawn.py",
    "lxd/test_lxd_client.py",
    "lxd/test_lxd_lab.py",
    "lxd/test_lxd_proxy.py",
    "lxd/test_lxd_runs.py::TestOneServer",
    "maas/test_maas_contract.py",
    "maas/test_maas_lab.py",
    "run/test_clean.py",
    "run/test_refusals.py",
    "run/test_run_faults.py::test_a_killed_member_costs_no_lease",
    "units/test_parts.py::test_units_share_each_stage_hold_it_together_and_leave_nothing",
)
"""Folders, files, classes and functions of this folder."""
CLUSTERS = {"lxd", "new_lxd"}
"""The fixtures of those that are left out of these."""


def is_quick(test: str, fixtures: Collection[str]) -> bool:
    """Whether a test is quick. `test` is its id, as it is below this folder."""
    return not CLUSTERS & {*fixtures} and any(
        test == chosen or test.startswith((f"{chosen}/", f"{chosen}::", f"{chosen}[")) for chosen in QUICK
    )
