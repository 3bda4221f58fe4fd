"""A report says on which processors target and load ran, if a lab said it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tippingpoint.analysis.analyse import analyse
from tippingpoint.digest.digest_file import load_digest_file, write_digest_file
from tippingpoint.report import write_report
from tippingpoint.rundir.manifest import Manifest, Places
from tippingpoint.rundir.results import load_run

KEPT = Path(__file__).parents[2] / "data" / "kept-runs" / "etcd"
"""A run of before labs said it."""


def placed(directory: Path, places: Places) -> Path:
    run = directory / "run"
    shutil.copytree(KEPT, run)
    manifest = Manifest.load(run)
    manifest.places = places
    manifest.save(run)
    return run


@pytest.mark.parametrize(
    ("target", "workers", "sentence"),
    [
        ([1], [0], "The target ran on processor 1, workers on processor 0. "),
        ([2, 3, 4], [0, 1], "The target ran on processors 2 to 4, workers on processors 0 and 1. "),
        ([0, 1], [0, 1], "Target and generator competed for the same 2 processors. "),
        (
            [0, 1],
            [1, 2],
            "The target ran on processors 0 and 1, workers on processors 1 and 2: they competed for processor 1. ",
        ),
        ([0], [0], "Target and generator competed for one processor. "),
    ],
)
def test_it_is_one_sentence_beside_the_generators_health(
    tmp_path: Path, target: list[int], workers: list[int], sentence: str
) -> None:
    run = placed(tmp_path, Places(target=target, workers=workers))
    document = json.loads(write_report(analyse(load_run(run)), "json"))
    assert document["generator"]["sentence"].startswith(sentence)
    assert document["run"]["places"] == {"target": target, "workers": workers}
    assert sentence.strip() in write_report(analyse(load_run(run)), "md")


def test_a_run_that_no_lab_placed_says_nothing_of_it() -> None:
    document = json.loads(write_report(analyse(load_run(KEPT)), "json"))
    assert "places" not in document["run"]
    assert document["generator"]["sentence"].startswith("The busiest worker")


def test_it_stays_with_a_run_that_becomes_a_digest_file(tmp_path: Path) -> None:
    run = placed(tmp_path, Places(target=[1], workers=[0]))
    write_digest_file(run, tmp_path / "run.digest")
    assert load_digest_file(tmp_path / "run.digest").manifest.places == Places(target=[1], workers=[0])
