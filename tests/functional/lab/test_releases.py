"""Releases of etcd from other suites of Debian, fetched from its mirror."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.etcd.cluster import EtcdLab
from lab.releases import find as finding
from tests.functional.program import WITHIN_S


def test_a_suite_is_fetched_once_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given nothing that was fetched before
    monkeypatch.setattr(finding, "KEPT", tmp_path)
    told: list[str] = []
    # when a suite is asked for, and then its version
    first = finding.find("etcd", "bullseye", told.append)
    again = finding.find("etcd", "3.3", told.append)
    # then it was said what is fetched, and how much, once
    assert first == again
    assert len(told) == 2
    assert "package lists" in told[0]
    assert " MB into " in told[1]
    # and it runs as it is, and lists and packages are gone
    said = subprocess.run(
        [first.program("usr/bin/etcd"), "--version"], capture_output=True, text=True, check=True
    )
    assert f"etcd Version: {first.version}" in said.stdout
    assert {path.name for path in tmp_path.iterdir()} == {first.path.name, "etcd-bullseye.lock"}


@pytest.mark.parametrize(("release", "api"), [("bullseye", "v2"), ("trixie", "v3")])
def test_a_lab_runs_the_release_that_it_is_asked_for(
    new_etcd: Callable[..., EtcdLab], release: str, api: str
) -> None:
    lab = new_etcd(members=1, auth=True, release=release)
    known = finding.find("etcd", release)

    with urllib.request.urlopen(f"{lab.endpoints[0]}/version", timeout=WITHIN_S) as answer:
        version = json.load(answer)["etcdserver"]

    assert version == known.version
    assert lab.apis[0] == api
