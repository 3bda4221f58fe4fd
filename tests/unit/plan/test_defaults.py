"""The target that plans are for when nobody names one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tippingpoint.errors import UserError
from tippingpoint.plan.defaults import FILE, defaults_of, prometheus_url, read_defaults

TEXT = """# the lab of process 7
target.kind=etcd
target.endpoints=[http://127.0.0.1:2379]
lab={lab}
prometheus=http://127.0.0.1:9090
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The socket of a lab that has written its addresses into the directory."""
    socket = tmp_path / "lab.sock"
    socket.touch()
    (tmp_path / FILE).write_text(TEXT.format(lab=socket))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIPPINGPOINT_TARGET", raising=False)
    monkeypatch.delenv("TIPPINGPOINT_PROMETHEUS", raising=False)
    return socket


def set_of(fields: object, *, shipped: bool) -> list[str]:
    defaults = read_defaults()
    assert defaults is not None
    return [*defaults_of(defaults, fields, shipped=shipped)]


def test_a_shipped_plan_is_for_the_lab_of_the_directory(lab: Path) -> None:
    everything = ["target.endpoints=[http://127.0.0.1:2379]", f"lab={lab}"]
    assert set_of({"name": "etcd-ramp"}, shipped=True) == everything
    assert set_of({"target": {"endpoints": ["http://elsewhere:1"]}}, shipped=True) == everything
    assert set_of({"target": {"kind": "lxd"}}, shipped=True) == []
    assert prometheus_url() == "http://127.0.0.1:9090"


def test_a_plan_of_a_file_keeps_what_it_says(lab: Path) -> None:
    assert set_of({"target": {"endpoints": ["http://elsewhere:1"]}}, shipped=False) == [f"lab={lab}"]
    assert set_of({"lab": "own.sock"}, shipped=False) == ["target.endpoints=[http://127.0.0.1:2379]"]


def test_the_file_of_a_lab_that_is_gone_counts_no_longer(lab: Path) -> None:
    lab.unlink()
    assert read_defaults() is None
    assert prometheus_url() == ""


def test_the_environment_comes_first(lab: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # given a variable that names another file, and one that names another Prometheus
    (tmp_path / "own").write_text("target.kind=juju\ntarget.controller=prod\n")
    monkeypatch.setenv("TIPPINGPOINT_TARGET", str(tmp_path / "own"))
    monkeypatch.setenv("TIPPINGPOINT_PROMETHEUS", "https://prometheus")
    # when they are read, then they are what counts
    defaults = read_defaults()
    assert defaults is not None
    assert (defaults.kind, defaults.settings) == ("juju", {"target.controller": "prod"})
    assert prometheus_url() == "https://prometheus"
    # and with nothing in them, nothing does
    monkeypatch.setenv("TIPPINGPOINT_TARGET", "")
    monkeypatch.setenv("TIPPINGPOINT_PROMETHEUS", "")
    assert read_defaults() is None
    assert prometheus_url() == ""


def test_a_variable_that_names_no_file_is_refused(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIPPINGPOINT_TARGET", "nowhere")
    with pytest.raises(UserError, match="TIPPINGPOINT_TARGET: nowhere: expected a readable file"):
        read_defaults()


def test_a_line_that_sets_nothing_is_refused(lab: Path, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("http://127.0.0.1:2379\n")
    with pytest.raises(UserError, match=r"\.tippingpoint: http://127.*expected key=value"):
        read_defaults()


def test_somebody_elses_file_chooses_no_target(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert read_defaults() is None
