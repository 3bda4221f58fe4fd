"""A run's record: where it is written, and where it goes when there is no room."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tippingpoint.errors import UserError
from tippingpoint.run.record import Record
from tippingpoint.run.watcher import RunnerEvents
from tippingpoint.rundir.manifest import Manifest, TargetEntry

RUN_ID = "the-run"


def opened(out: Path) -> Record:
    record = Record("small", out, RUN_ID, RunnerEvents())
    record.make_directory()
    record.open(Manifest(id=RUN_ID, title="small", target=TargetEntry(kind="etcd"), started=0.0))
    return record


def test_what_has_room_stays_where_it_is(tmp_path: Path) -> None:
    record = opened(tmp_path)
    record.note("all is well")
    record.end("complete", "")
    assert record.close(passwords=[]) == tmp_path / RUN_ID
    assert Manifest.load(tmp_path / RUN_ID).status == "complete"
    assert "all is well" in (tmp_path / RUN_ID / "events.jsonl").read_text()


def test_with_tails_elsewhere_the_whole_run_but_its_passwords_goes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "room"))
    record = opened(tmp_path / "full")
    (record.directory / "worker-0.hlog").write_text("head ")
    (record.directory / "password").write_text("hidden")
    record.rescue.mkdir(parents=True)
    (record.rescue / "worker-0.hlog").write_text("tail")

    record.end("complete", "")
    directory = record.close(passwords=[record.directory / "password"])

    assert directory == record.directory == record.rescue
    assert (directory / "worker-0.hlog").read_text() == "head tail"
    assert Manifest.load(directory).reason.endswith(f"the whole run is in {directory}")
    assert not [*tmp_path.rglob("password")]
    assert not (tmp_path / "full" / RUN_ID).exists()


def test_a_directory_that_is_there_already_is_refused(tmp_path: Path) -> None:
    opened(tmp_path)
    with pytest.raises(UserError, match=r"^--out: .*: expected a writable directory \(File exists\)$"):
        opened(tmp_path)


def test_a_directory_that_goes_while_it_is_written_is_said(tmp_path: Path) -> None:
    record = opened(tmp_path)
    record.discard()
    with pytest.raises(UserError, match=r"\(it is gone\)$"):
        record.end("complete", "")
