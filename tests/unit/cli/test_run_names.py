"""The runs that arguments name."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tippingpoint.cli import run_names
from tippingpoint.cli.run_names import named_run, named_source
from tippingpoint.rundir.manifest import FILE

IDS = ("20261120-080000-etcd-ramp-3dc5", "20261122-211931-etcd-ramp-5c51", "20261122-220000-etcd-find-a55b")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with runs, and beside them a directory that is none."""
    for name in IDS:
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / FILE).touch()
    (tmp_path / "runs" / "20261230-000000-kept").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("last", IDS[2]),
        (IDS[0], IDS[0]),
        ("20261120", IDS[0]),
        ("5c51", IDS[1]),
        ("etcd-find", IDS[2]),
        ("find", IDS[2]),
    ],
)
def test_a_part_of_an_id_names_the_one_run_that_has_it(text: str, named: str) -> None:
    assert named_run(text) == Path("runs") / named


def test_a_part_that_several_runs_have_is_refused_with_them() -> None:
    with pytest.raises(
        argparse.ArgumentTypeError,
        match=f"^etcd-ramp: expected a longer part of an id, as 2 runs match: {IDS[0]}, {IDS[1]}$",
    ):
        named_run("etcd-ramp")


def test_of_many_runs_that_match_the_newest_are_shown(here: Path) -> None:
    for number in range(4):
        (here / "runs" / f"2026112{number}-000000-etcd-ramp-aaaa").mkdir()
        (here / "runs" / f"2026112{number}-000000-etcd-ramp-aaaa" / FILE).touch()
    with pytest.raises(argparse.ArgumentTypeError, match="as 6 runs match: 3 older, 20261122-000000"):
        named_run("etcd-ramp")


def test_an_id_that_begins_another_names_its_own_run(here: Path) -> None:
    for name in ("etcd", "etcd-v2"):
        (here / "runs" / name).mkdir()
        (here / "runs" / name / FILE).touch()
    assert named_run("etcd") == Path("runs/etcd")


def test_a_path_that_does_not_exist_is_left_to_whoever_opens_it() -> None:
    assert named_run("elsewhere/etcd-find") == Path("elsewhere/etcd-find")


@pytest.mark.parametrize(("text", "shown"), [("nowhere", "nowhere"), ("", "empty")])
def test_a_name_that_no_run_has_is_refused_with_what_names_one(text: str, shown: str) -> None:
    with pytest.raises(
        argparse.ArgumentTypeError,
        match=rf"^{shown}: expected `last`, a part of the id of one run in \./runs, or a run's directory$",
    ):
        named_run(text)


def test_a_file_or_directory_that_exists_comes_before_a_part_of_an_id(here: Path) -> None:
    (here / "find").mkdir()
    assert named_run("find") == Path("find")


def test_a_published_result_is_no_run() -> None:
    assert named_source("seed:find") == "seed:find"
    assert named_source("a55b") == f"runs/{IDS[2]}"


def test_the_last_run_of_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(
        argparse.ArgumentTypeError, match=r"last: expected a run's directory, as \./runs has no run yet"
    ):
        named_run("last")


def test_a_run_is_a_directory_with_a_manifest() -> None:
    assert run_names._MANIFEST == FILE
