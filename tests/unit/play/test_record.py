"""A run's record: where it is written, and where it goes when there is no room."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from tippingpoint.errors import UserError
from tippingpoint.play.record import Record
from tippingpoint.play.watcher import RunnerEvents
from tippingpoint.rundir.clock import clock_steps
from tippingpoint.rundir.journal import RESCUE_PREFIX, AppendFile, read_events
from tippingpoint.rundir.ledger import remember
from tippingpoint.rundir.manifest import Manifest, TargetEntry
from tippingpoint.targets.etcd.ledger import EtcdEntry
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.util import timing

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


def test_a_directory_that_others_made_for_the_rescue_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given links that another user made where everybody may write, under names that follow from the run's id."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "room"))
    victim = tmp_path / "victim"
    victim.write_text("root's own")
    victim.chmod(0o600)
    planted = [tmp_path / "room" / f"{RESCUE_PREFIX}{RUN_ID}{end}" for end in ("", ".part")]
    for place in planted:
        place.mkdir(parents=True)
        for name in ("events.jsonl", "worker-0.hlog", "manifest.json"):
            (place / name).symlink_to(victim)
    record = opened(tmp_path / "full")
    (record.directory / "worker-0.hlog").write_text("head ")
    # when a journal does not fit, and the run moves to where there is room
    journal = AppendFile(Path("/dev/full"))
    journal.append(b"tail")
    journal.close(record.rescue)
    record.end("complete", "")
    directory = record.close(passwords=[])
    # then that is a directory that is ours alone, and the links led nowhere
    assert directory not in planted
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (directory / "worker-0.hlog").read_text() == "head "
    assert victim.read_text() == "root's own"
    assert {os.readlink(each) for place in planted for each in place.iterdir()} == {str(victim)}
    assert "root's own" not in "".join(path.read_text() for path in directory.iterdir())


def test_a_link_among_the_files_of_a_run_is_not_read_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "room"))
    (tmp_path / "victim").write_text("root's own")
    record = opened(tmp_path / "full")
    (record.directory / "worker-0.hlog").symlink_to(tmp_path / "victim")
    record.rescue.mkdir(parents=True)
    record.end("complete", "")
    directory = record.close(passwords=[])
    moved = [path for path in (tmp_path / "room").rglob("*") if path.is_file()]
    assert "root's own" not in "".join(path.read_text() for path in moved)
    assert "no disk space left" in Manifest.load(directory).reason


def test_two_runs_of_one_id_have_no_rescue_in_common(tmp_path: Path) -> None:
    first, second = (Record("small", tmp_path, RUN_ID, RunnerEvents()).rescue for _ in range(2))
    assert first != second


def test_nothing_is_written_through_a_link_that_takes_the_place_of_the_directory(tmp_path: Path) -> None:
    # given a run that is under way
    victim = tmp_path / "victim"
    victim.mkdir()
    record = opened(tmp_path)
    # when a link to another directory takes the place of its own
    record.directory.rename(tmp_path / "moved")
    record.directory.symlink_to(victim)
    # then it goes on in the directory that it made
    assert not record.is_there
    record.note("later")
    assert record.save_manifest()
    remember(record.inside, EtcdEntry(prefix="/p/", first_lease_id=1, lease_ids=2, target=EtcdTarget()))
    with pytest.raises(UserError, match=r"\(it is gone\)$"):
        record.end("failed", "replaced")
    record.discard()
    # and nothing is where the link leads, while what the run says of itself is in its own
    assert os.listdir(victim) == []
    assert Manifest.load(tmp_path / "moved").reason == "replaced"
    assert "later" in (tmp_path / "moved" / "events.jsonl").read_text()


def test_a_run_takes_as_long_as_the_monotonic_clock_says_however_the_wall_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a run whose machine's clock is set back by an hour
    record = opened(tmp_path)
    record.look_at_clock()
    set_back = timing.wall
    monkeypatch.setattr(timing, "wall", lambda: set_back() - 3600.0)
    # when it goes on, and ends
    record.look_at_clock()
    record.look_at_clock()
    record.end("complete", "")
    record.close(passwords=[])
    # then the length is that of the run, and the step is on record once
    manifest = Manifest.load(tmp_path / RUN_ID)
    assert manifest.ended is not None
    assert 0.0 <= manifest.ended - record.started_wall <= record.now()
    (step,) = clock_steps(read_events(tmp_path / RUN_ID / "events.jsonl").events)
    assert step.seconds == pytest.approx(-3600.0, abs=1.0)
