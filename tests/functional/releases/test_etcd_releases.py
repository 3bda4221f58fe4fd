"""Each release of etcd: the claim workload's contract with our client, and a run of a plan.

The contract's tests are those of `etcd/test_etcd_target.py`, which has them on this machine's etcd.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.etcd.cluster import EtcdLab
from tests.functional.etcd import test_etcd_target as contract
from tests.functional.program import leases_left, no_traceback, only_run, run, settings, write_plan

RELEASES = [("bullseye", "v2"), ("trixie", "v3"), ("forky", "v3"), ("forky", "v2")]
"""Suites, and the APIs that are tested there. bookworm's etcd has all of the tests."""
if shutil.which("go"):
    RELEASES += [("3.6", "v3"), ("3.7", "v3")]


@pytest.fixture(scope="module", params=RELEASES, ids="-".join)
def release(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest.fixture(scope="module")
def etcd(release: tuple[str, str]) -> Iterator[EtcdLab]:
    with EtcdLab(members=3, release=release[0]) as lab:
        yield lab


@pytest.fixture(scope="module")
def secure(release: tuple[str, str]) -> Iterator[EtcdLab]:
    """One member that wants a client certificate and a login. 3.5.30 refuses its status to a user then."""
    with EtcdLab(members=1, tls=True, auth=True, release=release[0]) as lab:
        yield lab


@pytest.fixture
def api(release: tuple[str, str]) -> str:
    return release[1]


scope = contract.scope
admin = contract.admin


class TestContract:
    test_grants = staticmethod(contract.test_the_first_claim_is_granted_and_others_are_denied)
    test_losses = staticmethod(contract.test_a_lease_taken_away_is_lost)
    test_releases = staticmethod(contract.test_a_release_calls_every_unit_that_waits_once)
    test_early_releases = staticmethod(contract.test_a_release_before_the_watch_is_not_missed)
    test_waiting = staticmethod(contract.test_a_unit_that_was_never_denied_waits_too)
    test_expiry = staticmethod(contract.test_an_expiry_is_a_release)
    test_drop = staticmethod(contract.test_drop_releases_nothing_and_connects_afresh)
    test_close = staticmethod(contract.test_after_close_nothing_is_left_hanging)
    test_login = staticmethod(contract.test_with_a_certificate_and_a_login_everything_works)
    test_clean = staticmethod(contract.test_clean_removes_a_runs_keys_and_leases_and_no_others)


def test_a_run_meets_its_thresholds_and_leaves_nothing(
    etcd: EtcdLab, release: tuple[str, str], tmp_path: Path
) -> None:
    api = release[1]
    plan = write_plan(tmp_path)
    done = run("run", plan, *settings(etcd), "--set", f"target.api={api}", "--out", tmp_path / "runs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.target.version.endswith(f"({api} API)")
    assert measured.stages[0].gauges["held"] == 20
    if api == "v3":
        assert leases_left(etcd) == []


def test_an_api_that_a_release_lacks_is_told_in_one_line(
    etcd: EtcdLab, release: tuple[str, str], tmp_path: Path
) -> None:
    lacks = [api for api in ("v3", "v2") if api not in etcd.apis]
    for api in lacks:
        plan = write_plan(tmp_path)
        done = run("run", plan, *settings(etcd), "--set", f"target.api={api}", "--out", tmp_path / "runs")
        assert done.returncode == 3
        (line,) = done.stderr.strip().splitlines()
        assert line.startswith(f"tippingpoint: target.api: {api}: ")
        assert "expected etcd 3." in line
    assert bool(lacks) == (release[0] in ("bullseye", "3.6", "3.7"))
