"""Journals: whole lines whatever happens, and read back as they were written."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.errors import UserError
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import AppendFile, Journal, read_events, read_interval_log


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """No file of this process may grow beyond a size: what a full disk does, for this process alone."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_intervals_are_read_back_as_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "0", 1_700_000_000.0)
    journal.interval(0.5, 1.5, {"claim.ok": Histogram.of([100, 200]), "extend.ok": Histogram.of([7])})
    journal.interval(1.5, 2.5, {"extend.ok": Histogram.of([9])})
    journal.events.write(2.5, "lost", lease=4)
    assert journal.close(tmp_path / "rescue") == 0
    log = read_interval_log(tmp_path / "worker-0.hlog")
    assert log.tags == ["claim.ok", "extend.ok", "extend.ok"]
    assert log.begins == [0.5, 0.5, 1.5]
    assert log.lengths == [1.0, 1.0, 1.0]
    assert [Histogram.decode(encoded).total for encoded in log.encoded] == [2, 1, 1]
    assert log.damaged == 0
    assert read_events(tmp_path / "worker-0.jsonl").events == [{"t": 2.5, "event": "lost", "lease": 4}]


@given(st.integers(0, 2000))
def test_a_journal_cut_anywhere_loses_only_its_last_line(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    directory = tmp_path_factory.mktemp("cut")
    journal = Journal(directory, "0", 0.0)
    for second in range(5):
        journal.interval(second, second + 1, {"claim.ok": Histogram.of([100])})
    journal.close(directory)
    path = directory / "worker-0.hlog"
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - cut)])
    log = read_interval_log(path)
    complete = [line for line in path.read_bytes().split(b"\n")[:-1] if line.startswith(b"Tag=")]
    assert len(log.tags) == len(log.begins) == len(log.lengths) == len(log.encoded) == len(complete)
    assert log.damaged <= 1


def test_chunks_without_room_wait_and_follow_in_order(tmp_path: Path) -> None:
    # given a file that may not grow beyond 20 bytes
    path = tmp_path / "file"
    file = AppendFile(path)
    with files_at_most(20):
        assert file.append(b"a" * 15 + b"\n")
        # when chunks find no room
        assert not file.append(b"b" * 15 + b"\n")
        assert not file.append(b"c\n")
        # then no half line is left behind
        assert path.read_bytes() == b"a" * 15 + b"\n"
        assert file.waiting == 2
    # and when there is room again, they follow in order
    assert file.append(b"d\n")
    assert path.read_bytes() == b"a" * 15 + b"\n" + b"b" * 15 + b"\nc\nd\n"
    assert file.close(tmp_path / "rescue") == 0


def test_chunks_that_never_found_room_are_rescued(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = AppendFile(path)
    with files_at_most(8):
        file.append(b"first\n")
        file.append(b"second\n")
        assert file.close(tmp_path / "rescue") == 1
    assert path.read_bytes() + (tmp_path / "rescue" / "file").read_bytes() == b"first\nsecond\n"


def test_any_failure_to_write_means_wait(tmp_path: Path) -> None:
    # given a device that is always full and cannot be cut off
    file = AppendFile(Path("/dev/full"))
    # when lines are appended
    assert not file.append(b"first\n")
    assert not file.append(b"second\n")
    # then they wait, and are rescued
    assert file.waiting == 2
    assert file.close(tmp_path / "rescue") == 2
    assert (tmp_path / "rescue" / "full").read_bytes() == b"first\nsecond\n"


def test_a_half_line_that_cannot_be_cut_off_is_continued(tmp_path: Path) -> None:
    # given a pipe, from which nothing that was written can be taken back
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = AppendFile(path)
    long = b"x" * 300_000 + b"\n"
    # when its reader goes away in the middle of a line
    closing = threading.Timer(0.05, os.close, [reader])
    closing.start()
    assert not file.append(long)
    closing.join()
    # then the next reader gets the rest of that line, and the next line after it
    got: list[bytes] = []
    reading = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reading.start()
    deadline = time.monotonic() + 600
    while not file.append(b"") and time.monotonic() < deadline:
        time.sleep(0.01)  # until the reader has opened it
    assert file.append(b"next\n")
    file.close(tmp_path)
    reading.join(600)
    assert got == [long + b"next\n"]


def test_what_nowhere_has_room_for_is_an_error_that_leaves_no_half_line(tmp_path: Path) -> None:
    # given lines that find no room, neither in their file nor in the rescue directory
    journal = Journal(tmp_path, "0", 0.0)
    size = (tmp_path / "worker-0.hlog").stat().st_size
    before = len(os.listdir("/proc/self/fd"))
    with files_at_most(size):
        journal.interval(0.0, 1.0, {"claim.ok": Histogram.of([1, 20, 300, 4000])})
        for number in range(100):
            journal.events.write(1.0, "lost", lease=number)
        # when the journal is closed
        rescue = tmp_path / "rescue"
        rescue.mkdir()
        (rescue / "worker-0.hlog").write_bytes(b"#" * (size - 10) + b"\n")
        with pytest.raises(OSError, match="File too large"):
            journal.close(rescue)
        alone = AppendFile(Path("/dev/full"))
        alone.append(b"x" * size + b"\n")
        with pytest.raises(OSError, match="File too large"):
            alone.close(rescue)
    # then what is there are whole lines, and both files are closed
    assert (rescue / "worker-0.hlog").read_bytes() == b"#" * (size - 10) + b"\n"
    assert (rescue / "worker-0.jsonl").read_bytes().endswith(b"}\n")
    assert read_events(rescue / "worker-0.jsonl").damaged == 0
    assert not (rescue / "full").exists()
    assert len(os.listdir("/proc/self/fd")) == before - 2


def test_a_directory_that_cannot_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--out.*expected a writable directory"):
        Journal(tmp_path / "missing", "0", 0.0)
