"""Incus, LXD's fork: the client's contract with a server, and a run of a plan.

The contract's tests are those of `lxd/test_lxd_client.py`, which has them on this machine's LXD.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.lxd.access import make_client_certificate
from lab.lxd.cluster import LxdLab
from lab.lxd.unix_socket import ask
from tests.functional.lxd import test_lxd_client as contract
from tests.functional.lxd.lxd_runs import only_a_stage, spawn_plan
from tests.functional.program import no_traceback, only_run, run
from tippingpoint.targets.lxd.secret import SECRET
from tippingpoint.targets.secret import PLACE


@pytest.fixture(scope="module")
def lxd_single() -> Iterator[LxdLab]:
    """One server of trixie's Incus."""
    with LxdLab(members=1, clustered=False, product="incus") as lab:
        lab.image("tiny")
        yield lab


access = contract.access


class TestContract:
    test_life = staticmethod(contract.test_an_instance_is_made_started_stopped_and_removed)
    test_told = staticmethod(contract.test_what_an_operation_tells_is_returned)
    test_trust = staticmethod(contract.test_a_server_that_trusts_us_tells_about_itself)
    test_strangers = staticmethod(contract.test_a_certificate_that_nobody_trusts_is_refused)
    test_token = staticmethod(contract.test_a_token_makes_a_server_trust_our_key_pair)
    test_image = staticmethod(contract.test_an_image_is_imported)
    test_no_image = staticmethod(contract.test_what_is_no_image_is_refused)


def test_a_run_by_the_incus_clients_remote_names_incus_and_leaves_nothing(
    lxd_single: LxdLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a remote of the incus client
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LXD_CONF", raising=False)
    shutil.copytree(lxd_single.remote_directory(), tmp_path / ".config" / "incus")
    plan = spawn_plan(tmp_path, stages=only_a_stage(3, "1s"))
    # when a plan for LXD is run on it
    done = run("run", plan, "--remote", "lab", "--out", tmp_path / "runs")
    # then it is met, and says which it was
    assert done.returncode == 0, done.stdout + done.stderr
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.target.version.startswith("incus 6.")
    report = run("report", measured.directory).stdout
    assert measured.manifest.target.version in report
    assert f"lxd {measured.manifest.target.version}" not in report
    assert measured.stages[0].gauges["held"] == 3
    assert lxd_single.lxc("list", "--format=csv", "--all-projects").strip() == ""


def test_the_charms_secret_reaches_an_incus_that_trusts_a_certificate_for_a_project(
    lxd_single: LxdLab, tmp_path: Path
) -> None:
    # given an Incus that trusts a certificate for one project, and the secret that container-spawner is given then
    client = make_client_certificate()
    lxd_single.lxc("project", "create", "filled", "-c", "features.profiles=false")
    trusted = {"type": "client", "name": "charm", "certificate": client.der}
    trusted |= {"restricted": True, "projects": ["filled"]}
    ask(lxd_single.unix_socket(), "POST", "/1.0/certificates", trusted)
    server, _key = lxd_single.server_certificate()
    content = {
        "addresses": lxd_single.address("m1").removeprefix("https://"),
        "certificate": server.read_text(),
        "client-certificate": client.certificate,
        "client-key": client.key,
    }
    assert SECRET.ways[1].fit(content)
    reached = SECRET.reached(content, units=2)
    for name, text in reached.files.items():
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(text)
    fields = {key: str(value).replace(PLACE, str(tmp_path)) for key, value in reached.fields.items()}
    target = {"target": {"kind": "lxd", "projects": ["filled"], **fields}}
    # when a plan is run by it
    plan = spawn_plan(tmp_path, stages=only_a_stage(2, "1s"), **target)
    done = run("run", plan, "--out", tmp_path / "runs")
    # then it is met, in that project, and leaves it as it was
    assert done.returncode == 0, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    assert measured.stages[0].gauges["held"] == 2
    assert lxd_single.lxc("list", "--format=csv", "--project=filled").strip() == ""
    lxd_single.lxc("project", "delete", "filled")
    # and the figures of the pack are Incus' own
    text = str(lxd_single.lxc("query", "/1.0/metrics"))
    assert {"incus_operations_total", "incus_go_goroutines"} <= {
        line.split(" ")[0] for line in text.splitlines()
    }


def test_a_killed_server_comes_back(lxd_single: LxdLab) -> None:
    lxd_single.kill("m1")
    assert lxd_single.pids == {}
    lxd_single.start("m1")
    assert lxd_single.lxc("list", "--format=csv").strip() == ""
