"""Files in places that others may write to: no link of theirs is followed, whenever it is made."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import pytest

from tippingpoint.errors import UserError
from tippingpoint.rundir.files import create_file, replace_file
from tippingpoint.rundir.held import HeldDirectory, by_name, make_directories
from tippingpoint.rundir.journal import AppendFile, Journal
from tippingpoint.rundir.ledger import FILE, remember
from tippingpoint.targets.etcd.ledger import EtcdEntry
from tippingpoint.targets.etcd.plan import EtcdTarget

SECRET = "root's own"
ENTRY = EtcdEntry(prefix="/tippingpoint/r/", first_lease_id=1 << 40, lease_ids=2, target=EtcdTarget())


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory with a file that nobody but its owner may change or read."""
    place = tmp_path / "victim"
    place.mkdir(mode=0o700)
    (place / "file").write_text(SECRET)
    (place / "file").chmod(0o600)
    return place


@pytest.fixture
def no_umask() -> Generator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def untouched(victim: Path) -> bool:
    found = (victim / "file").stat()
    return (os.listdir(victim), (victim / "file").read_text(), stat.S_IMODE(found.st_mode)) == (
        ["file"],
        SECRET,
        0o600,
    )


WRITERS: dict[str, Callable[[Path], object]] = {
    "create": lambda path: create_file(path, b"x"),
    "replace": lambda path: replace_file(path, "x"),
    "append": lambda path: AppendFile(path).append(b"x"),
    "journal": lambda path: Journal(path.parent, path.stem.removeprefix("worker-"), 0.0),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_link_in_the_place_of_a_file_is_not_followed(
    write: Callable[[Path], object], tmp_path: Path, victim: Path
) -> None:
    for name in ("worker-0.hlog", "worker-0.hlog.new", "worker-0.jsonl"):
        (tmp_path / name).symlink_to(victim / "file")
    with suppress(OSError, UserError):
        write(tmp_path / "worker-0.hlog")
    assert untouched(victim)


def test_a_ledger_follows_no_link(tmp_path: Path, victim: Path) -> None:
    (tmp_path / FILE).symlink_to(victim / "file")
    with pytest.raises(UserError, match=r"^--out: "):
        remember(tmp_path, ENTRY)
    assert untouched(victim)


def test_a_held_directory_stays_the_same_one(tmp_path: Path, victim: Path) -> None:
    # given a directory that is held
    held = HeldDirectory.make(tmp_path / "a" / "run")
    create_file(held.inside / "first")
    assert held.is_there
    # when a link takes its place
    (tmp_path / "a" / "run").rename(tmp_path / "moved")
    (tmp_path / "a" / "run").symlink_to(victim)
    # then that is noticed, and what is written is where it was
    assert not held.is_there
    create_file(held.inside / "second")
    replace_file(held.inside / "first", "x")
    assert sorted(os.listdir(tmp_path / "moved")) == ["first", "second"]
    assert untouched(victim)
    assert by_name(held.inside / "first") == tmp_path / "moved" / "first"
    held.close()
    assert held.inside == tmp_path / "a" / "run"


def test_a_directory_that_exists_is_not_taken(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "link").symlink_to(victim)
    (tmp_path / "there").mkdir()
    for name in ("link", "there"):
        with pytest.raises(FileExistsError):
            HeldDirectory.make(tmp_path / name)
    with pytest.raises(OSError, match=r"Not a directory|Too many"):
        HeldDirectory.open_own(tmp_path / "link", make=True)
    assert untouched(victim)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who can make a directory for another user")
def test_a_directory_of_another_user_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(PermissionError, match=r"other users can write"):
        HeldDirectory.open_own(tmp_path / "theirs", make=True)


def test_tails_are_not_written_where_others_may_write(tmp_path: Path) -> None:
    rescue = tmp_path / "rescue"
    rescue.mkdir()
    rescue.chmod(0o777)
    file = AppendFile(Path("/dev/full"))
    assert not file.append(b"x")
    with pytest.raises(PermissionError, match=r"other users can write"):
        file.close(rescue)
    assert os.listdir(rescue) == []


@pytest.mark.usefixtures("no_umask")
def test_modes_are_ours_whatever_the_umask_is(tmp_path: Path) -> None:
    held = HeldDirectory.make(tmp_path / "above" / "run")
    Journal(held.inside, "0", 0.0)
    replace_file(held.inside / "manifest.json", "x")
    remember(held.inside, ENTRY)
    rescue = AppendFile(Path("/dev/full"))
    rescue.append(b"x")
    HeldDirectory.open_own(tmp_path / "rescue", make=True)
    make_directories(tmp_path / "more" / "below")
    loose = [path for path in tmp_path.rglob("*") if stat.S_IMODE(path.lstat().st_mode) & 0o022]
    assert loose == []
    assert stat.S_IMODE((tmp_path / "rescue").stat().st_mode) == 0o700
