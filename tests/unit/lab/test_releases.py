"""Which release a name means, and what is said when there is none, or no room for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab.control import LabError
from lab.releases import find as finding
from lab.releases.known import origins
from lab.releases.room import check_room, in_mb


@pytest.mark.parametrize(
    ("asked_for", "places"),
    [
        ("bookworm", ["bookworm"]),
        ("3.4", ["bookworm"]),
        ("3.4.23", ["bookworm"]),
        ("3.3", ["bullseye"]),
        ("3.5", ["trixie", "forky", "sid", "go"]),  # what stays as it is comes first
        ("3.5.16", ["trixie", "go"]),
        ("3.5.30", ["forky", "sid", "go"]),
        ("3.6.16", ["go"]),
        ("3.7", ["go"]),
    ],
)
def test_a_name_is_a_suite_or_the_beginning_of_a_version(asked_for: str, places: list[str]) -> None:
    assert [origin.name for origin in origins("etcd", asked_for)] == places


@pytest.mark.parametrize(
    ("asked_for", "places"),
    [("3.8", ["bullseye"]), ("3.10", ["bookworm"]), ("4.0", ["trixie"]), ("4.3", ["forky", "sid"])],
)
def test_a_broker_of_each_line_is_known(asked_for: str, places: list[str]) -> None:
    assert [origin.name for origin in origins("rabbitmq", asked_for)] == places


def test_releases_are_ordered_by_the_numbers_of_their_versions() -> None:
    old, new = (finding.Release("rabbitmq", version, "-", Path()) for version in ("3.8.9", "3.10.8"))
    assert old.numbers < new.numbers


@pytest.mark.parametrize("asked_for", ["buster", "3.2", "2.3", "../trixie", "3.6-rc", "go"])
def test_a_name_that_means_nothing_is_told_what_there_is(asked_for: str) -> None:
    with pytest.raises(LabError) as refusal:
        origins("etcd", asked_for)
    line = str(refusal.value)
    assert line.startswith(f"release: etcd {asked_for}")
    assert "bookworm (3.4.23)" in line
    assert "with `go` a version from 3.5 on" in line


def keep(directory: Path, *names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in names:
        (directory / name).mkdir()
    monkeypatch.setattr(finding, "KEPT", directory)


def test_what_is_kept_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(
        tmp_path,
        "etcd-3.5.30-forky",
        "etcd-3.5.9-forky",
        "etcd-3.6.1-go",
        "etcd-3.6.16-go",
        monkeypatch=monkeypatch,
    )
    told: list[str] = []
    assert finding.find("etcd", "forky", told.append).version == "3.5.30"
    assert finding.find("etcd", "3.6", told.append).label == "etcd 3.6.16 (go)"
    assert finding.find("etcd", "3.6.1", told.append).path == tmp_path / "etcd-3.6.1-go"
    assert told == []


def test_without_go_a_version_of_no_suite_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, monkeypatch=monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError) as refusal:
        finding.find("etcd", "3.6.16", lambda line: None)
    assert str(refusal.value) == (
        "release: etcd 3.6.16: built from Go modules: go: not found: expected `go` on PATH"
    )
    assert list(tmp_path.glob("etcd.*")) == []


def test_without_room_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=30_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(LabError) as refusal:
        check_room("release: bookworm", tmp_path / "work", 220_000_000)
    assert str(refusal.value) == (
        f"release: bookworm: 30 MB of room in {tmp_path}: expected 220 MB while it is fetched"
    )
    assert in_mb(5_600_000) == "5.6 MB"
