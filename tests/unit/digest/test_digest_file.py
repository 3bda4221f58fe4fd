"""A digest file opens like the run that it was made from, and has nothing of the machine that made it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.unit.test_kept_runs import KEPT
from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.compare.named import compare_named, load_named
from tippingpoint.digest.digest_file import LARGEST, load_digest_file, write_digest_file
from tippingpoint.errors import UserError
from tippingpoint.report.document import build_document
from tippingpoint.rundir.results import RunData, load_run


@pytest.fixture(scope="module", params=["etcd", "juju-growth", "lxd"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunData, Path]:
    """A run, and its digest file."""
    file = tmp_path_factory.mktemp("digest") / f"{request.param}.digest"
    write_digest_file(KEPT / request.param, file)
    return load_run(KEPT / request.param), file


def faults_of(analysis: Analysis) -> str:
    """The faults that a report tells of; how many count as one depends on how fine the times are."""
    return re.sub(r" [0-9.]+s later", "", ", ".join(after.what for after in analysis.aftermaths))


def test_it_says_what_the_run_says(both: tuple[RunData, Path]) -> None:
    run, file = both
    was, found = analyse(run), analyse(load_digest_file(file))
    assert found.verdict.outcome == was.verdict.outcome
    assert found.tipping.sentence == was.tipping.sentence
    assert [stage.size for stage in found.run.stages] == [stage.size for stage in run.stages]
    for mine, theirs in zip(found.run.stages, run.stages, strict=True):
        for operation in run.operations:
            assert mine.attempts(operation) == theirs.attempts(operation)
    assert faults_of(found) == faults_of(was)
    assert found.run.manifest.host == run.manifest.host
    assert found.run.units == []


def test_it_is_small_and_names_no_path_and_no_unit(both: tuple[RunData, Path]) -> None:
    _, file = both
    assert file.stat().st_size <= LARGEST
    assert "/tmp" not in file.read_text()
    document = build_document(analyse(load_digest_file(file)))
    assert document["repeat"]["command"].startswith("tippingpoint run ")
    assert not [note for note in document["notes"] if "generator/0" in note]


def test_it_keeps_what_members_used(tmp_path: Path) -> None:
    write_digest_file(KEPT / "etcd", tmp_path / "x.digest")
    found = load_digest_file(tmp_path / "x.digest").resources
    assert found is not None
    assert found.figures
    assert all(figure.cost for figure in found.figures)


def test_it_is_compared_like_a_run(tmp_path: Path) -> None:
    write_digest_file(KEPT / "etcd-v2", tmp_path / "x.digest")
    comparison = compare_named([str(tmp_path / "x.digest"), str(KEPT / "etcd")], 0.1)
    assert comparison.sentence
    assert load_named(str(tmp_path / "x.digest")) is not None


def test_it_is_read_from_a_pipe(tmp_path: Path) -> None:
    """As `tippingpoint report <(zstd -dc run.digest.zst)` is."""
    write_digest_file(KEPT / "etcd", tmp_path / "x.digest")
    reading, writing = os.pipe()
    with open(writing, "wb") as file:
        file.write((tmp_path / "x.digest").read_bytes())
    by_pipe, by_file = load_named(f"/dev/fd/{reading}"), load_named(str(tmp_path / "x.digest"))
    os.close(reading)
    assert by_pipe is not None
    assert by_file is not None
    assert by_pipe.manifest == by_file.manifest


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 2}', "x" * (LARGEST + 1)])
def test_anything_else_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.digest"
    file.write_text(text)
    with pytest.raises(UserError, match=r"expected a (readable )?digest file") as refused:
        load_digest_file(file)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("field", "told"), [("digest", "expected a whole digest"), ("resources", "resources: not readable")]
)
def test_a_damaged_one_is_refused_in_one_line(tmp_path: Path, field: str, told: str) -> None:
    file = tmp_path / "x.digest"
    write_digest_file(KEPT / "etcd", file)
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: "AAAA"}))
    with pytest.raises(UserError, match=told) as refused:
        load_digest_file(file)
    assert "\n" not in str(refused.value)


def test_a_run_that_goes_on_or_was_cut_has_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="that has ended by itself"):
        write_digest_file(KEPT / "lxd-cut", tmp_path / "x.digest")
