"""The demo on LXD: its report has figures of the members."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.functional.lab.demos import demo

pytestmark = pytest.mark.lxd


def test_a_report_of_lxd_tells_the_leader_from_its_followers(tmp_path: Path) -> None:
    stages = json.dumps([{"groups": 1, "instances": 6, "hold": "5s"}])
    _told, run = demo("lxd", tmp_path, f"stages={stages}")
    resources = run.resources
    assert resources is not None
    figures = {figure.name: figure for figure in resources.figures}
    assert {series.host for series in figures["lxd-memory"].series} == {"m1", "m2", "m3"}
    assert resources.leading(resources.t[-1]) in {"m1", "m2", "m3"}
    # and what the members share is told once
    assert {series.host for series in figures["host-cpu"].series} == {"machine"}
