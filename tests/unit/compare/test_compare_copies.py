"""A run is what has its id: a copy of its directory is no further run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.made.synthetic import MadeStage, write_run
from tippingpoint.compare.named import compare_named, compare_repeats
from tippingpoint.errors import UserError


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    return [
        str(write_run(tmp_path / f"run-{n}", [MadeStage(100, hold=2)], seed=n, title="a")) for n in range(4)
    ]


def copied(run: str) -> str:
    return str(shutil.copytree(run, f"{run}-backup"))


def test_a_copy_of_a_repeat_counts_once_and_is_named(runs: list[str]) -> None:
    backup = copied(runs[1])
    comparison = compare_repeats([[*runs[:2], backup], runs[2:]], [], 0.1)
    assert [len(release.runs) for release in comparison.releases] == [2, 2]
    assert f"{backup} is a copy of {runs[1]}: the run counts once." in comparison.sentence


def test_a_copy_of_one_of_several_runs_counts_once(runs: list[str]) -> None:
    backup = copied(runs[1])
    comparison = compare_named([*runs[:2], backup], 0.1)
    assert len(comparison.runs) == 2
    assert f"{backup} is a copy of {runs[1]}: the run counts once." in comparison.sentence


def test_a_copy_stands_for_no_other_release(runs: list[str]) -> None:
    backup = copied(runs[0])
    for refused in (
        lambda: compare_repeats([runs[:2], [backup, runs[2]]], [], 0.1),
        lambda: compare_repeats([runs[:2], runs[2:]], [backup], 0.1),
        lambda: compare_named([runs[0], backup], 0.1),
        lambda: compare_named([runs[0], f"{runs[0]}/"], 0.1),
        lambda: compare_repeats([[runs[0], runs[0]], runs[2:]], [], 0.1),
    ):
        with pytest.raises(UserError, match="expected each run once"):
            refused()


def test_a_run_that_is_named_twice_is_no_copy(runs: list[str]) -> None:
    comparison = compare_named([*runs[:2], f"{runs[1]}/."], 0.1)
    assert len(comparison.runs) == 2
    assert "copy" not in comparison.sentence
