"""Which release a name means, and what is said when there is none, or no room for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.control import LabError
from lab.releases import find as finding
from lab.releases import room
from lab.releases.known import origins
from lab.releases.room import check_room, held_directory, hold, in_mb, make_room


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


@pytest.mark.parametrize(
    ("asked_for", "place"), [("22", "bullseye"), ("26", "bookworm"), ("31", "trixie"), ("31.0", "trixie")]
)
def test_an_openstack_is_known_by_the_version_of_its_nova(asked_for: str, place: str) -> None:
    assert [origin.name for origin in origins("openstack", asked_for)] == [place]


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


KB = 1000


def fill(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three releases of 400 kB each, the oldest use first, in a cache of 1,500 kB."""
    monkeypatch.setattr(room, "LIMIT", 1500 * KB)
    for age, name in enumerate(("lxd-5.0.2-bookworm", "etcd-3.4.23-bookworm", "etcd-3.3.25-bullseye")):
        (cache / name).mkdir()
        (cache / name / "file").write_bytes(os.urandom(400 * KB))
        os.utime(cache / name, (1000 - age, 1000 - age))


def names(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()}


def test_what_fits_into_the_cache_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, monkeypatch)
    told: list[str] = []
    make_room("release: etcd 3.6", tmp_path, 250 * KB, told.append)
    assert len(names(tmp_path)) == 3
    assert told == []


def test_what_another_process_renames_meanwhile_is_borne(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a release in which another lab makes what it keeps there, over and over
    fill(tmp_path, monkeypatch)
    kept, over = tmp_path / "etcd-3.4.23-bookworm" / "databases", threading.Event()

    def make() -> None:
        while not over.is_set():
            (kept / "new-1" / "within").mkdir(parents=True)
            (kept / "new-1").rename(kept / "made")
            shutil.rmtree(kept / "made")

    with ThreadPoolExecutor(1) as beside:
        making = beside.submit(make)
        try:
            # when room is looked for, then that finds what there is
            for _ in range(300):
                make_room("release: etcd 3.6", tmp_path, KB, lambda line: None)
        finally:
            over.set()
        making.result()
    assert len(names(tmp_path)) == 3


def test_the_releases_used_least_recently_make_room_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a full cache
    fill(tmp_path, monkeypatch)
    told: list[str] = []
    # when another process used the oldest, and has ended
    asked = (
        "from pathlib import Path; from lab.releases.room import hold; hold(Path(__import__('sys').argv[1]))"
    )
    subprocess.run([sys.executable, "-c", asked, str(tmp_path / "etcd-3.3.25-bullseye")], check=True)
    make_room("release: etcd 3.6", tmp_path, 700 * KB, told.append)
    # then the two others go, and one line says so
    assert names(tmp_path) == {"etcd-3.3.25-bullseye"}
    assert told == [
        "removing etcd-3.4.23-bookworm, lxd-5.0.2-bookworm, used least recently: "
        f"{tmp_path} keeps 1.5 MB of releases"
    ]


def test_a_release_that_a_lab_uses_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given the oldest release in use
    fill(tmp_path, monkeypatch)
    monkeypatch.setattr(finding, "KEPT", tmp_path)
    assert finding.find("etcd", "3.3", lambda line: None).version == "3.3.25"
    os.utime(tmp_path / "etcd-3.3.25-bullseye", (1, 1))
    # when another needs room
    make_room("release: etcd 3.6", tmp_path, 400 * KB, lambda line: None)
    # then the next to the oldest goes
    assert names(tmp_path) == {"etcd-3.3.25-bullseye", "etcd-bullseye.lock", "lxd-5.0.2-bookworm"}


def test_when_labs_use_all_of_the_cache_there_is_one_line_and_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, monkeypatch)
    for release in tmp_path.iterdir():
        if release.name.startswith("etcd"):
            assert hold(release)
    with pytest.raises(LabError) as refusal:
        make_room("release: etcd 3.6", tmp_path, 1000 * KB, lambda line: None)
    line = str(refusal.value)
    assert line.startswith("release: etcd 3.6: 1.0 MB more would be 0.3 MB beyond the limit of ")
    assert line.endswith(": expected 1.5 MB with the releases that labs use now")
    assert "\n" not in line
    assert len(names(tmp_path)) == 3


def test_what_a_killed_fetch_left_is_removed_and_a_fetch_under_way_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, monkeypatch)
    (tmp_path / "etcd.left").mkdir()
    with held_directory(tmp_path, "lxd.") as work:
        make_room("release: etcd 3.6", tmp_path, 0, lambda line: None)
        assert work.is_dir()
        assert not (tmp_path / "etcd.left").exists()
    assert not work.exists()
