"""Small files that a user names are read, whatever kind of file they are, and none is waited for without end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tippingpoint.errors import UserError
from tippingpoint.util import secret_files
from tippingpoint.util.inputs import kept_in_memory
from tippingpoint.util.secret_files import read_text


def test_a_pipe_that_a_shell_gives_is_read() -> None:
    """Given what `--password-file <(pass show x)` is, whose writer takes its time, then all of it is read."""
    reading, writing = os.pipe()

    def write() -> None:
        with open(writing, "wb") as file:
            file.write(b"hu")
            file.flush()
            file.write(b"sh" * 40_000)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        text = read_text("password file", Path(f"/dev/fd/{reading}"), "a password", private=True)
        assert len(text) == 2 + 80_000
    finally:
        writer.join(600)
        os.close(reading)


def test_a_pipe_that_nobody_writes_into_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_files, "WRITTEN_WITHIN", 0.1)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UserError, match="nothing was written to this pipe"):
        read_text("target.key", tmp_path / "pipe", "a PEM file", private=True)


@pytest.mark.parametrize("path", ["/dev/zero", "/etc"])
def test_what_is_no_small_file_is_refused(path: str) -> None:
    with pytest.raises(UserError, match=r"at most 1 MiB|Is a directory"):
        read_text("target.ca", Path(path), "a PEM file")


def test_a_pipe_is_kept_for_all_processes_of_a_run(tmp_path: Path) -> None:
    """As `--set target.credentials=<(pass show etcd)`, which each worker reads."""
    reading, writing = os.pipe()
    os.write(writing, b"user: root")
    os.close(writing)
    kept = kept_in_memory(Path(f"/dev/fd/{reading}"))
    os.close(reading)

    read = [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read(), end='')", str(kept)]
    assert [subprocess.check_output(read, text=True) for _ in range(2)] == ["user: root"] * 2
    assert read_text("target.credentials", kept, "a file", private=True) == "user: root"
    (tmp_path / "file").touch()
    assert kept_in_memory(tmp_path / "file") == tmp_path / "file"
    assert kept_in_memory(tmp_path / "nowhere") == tmp_path / "nowhere"
