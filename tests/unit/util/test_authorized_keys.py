"""A key of SSH that may reach libvirt for a while."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.errors import UserError
from tippingpoint.util.authorized_keys import key_of, keys_file, lend, take_back

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIN3SDMM7bNjN1T0lTJlWdyvXVOOIGmDTxsIDIzd0IL9d"
MARK = "tippingpoint 20261123-1"
LINE = f'restrict,command="/usr/bin/virt-ssh-helper qemu:///system" {KEY} {MARK}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".ssh" / "authorized_keys"


def test_a_key_is_lent_and_taken_back(path: Path) -> None:
    # given a user without keys; when a key is lent, twice as after a crash
    lend(path, KEY, MARK)
    lend(path, KEY, MARK)
    # then there is one line, in a file that sshd takes
    assert path.read_text() == LINE
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o700, 0o600]
    # and nothing of it is left when it is taken back
    assert take_back(path, MARK) == 1
    assert list(path.parent.iterdir()) == []
    assert take_back(path, MARK) == 0


@given(before=st.lists(st.binary().map(lambda line: line.replace(b"\n", b"")), max_size=5))
def test_other_lines_stay_as_they_are(tmp_path_factory: pytest.TempPathFactory, before: list[bytes]) -> None:
    # given a file of others' lines, also ones like ours, with a mode of its own
    path = tmp_path_factory.mktemp("home") / "authorized_keys"
    alike = [f"{KEY} {MARK}".encode(), LINE.strip().encode() + b"1"]
    content = b"".join(line + b"\n" for line in [*before, *alike])
    path.write_bytes(content)
    path.chmod(0o640)
    # when a key is lent and taken back
    lend(path, KEY, MARK)
    during = path.read_bytes()
    taken = take_back(path, MARK)
    # then the others are untouched
    assert (during, taken) == (content + LINE.encode(), 1)
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(path.parent) == [path.name]


def test_a_last_line_without_an_end_stays_whole(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(f"{KEY} me")
    lend(path, KEY, MARK)
    assert path.read_text() == f"{KEY} me\n{LINE}"


def test_a_link_stays_one(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    real = tmp_path / "keys"
    real.write_text(f"{KEY} me\n")
    path.symlink_to(real)
    lend(path, KEY, MARK)
    assert take_back(path, MARK) == 1
    assert path.is_symlink()
    assert real.read_text() == f"{KEY} me\n"


def test_runs_take_back_their_own(path: Path) -> None:
    lend(path, KEY, f"{MARK}0")
    lend(path, KEY, MARK)
    assert take_back(path, MARK) == 1
    assert path.read_text() == LINE.replace(MARK, f"{MARK}0")


def test_a_comment_is_no_part_of_a_key() -> None:
    assert key_of("key", f" {KEY} maas@rack\n") == KEY


@pytest.mark.parametrize(
    "text",
    ["", "ssh-ed25519", f"no-pty {KEY}", f"{KEY}\n{KEY}", KEY.replace("ed25519", "rsa"), KEY[:-1]],
)
def test_what_is_no_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(
        UserError, match=r"^target\.made\.authorized_key: unusable: expected one public key"
    ) as refused:
        key_of("target.made.authorized_key", text)
    assert "AAAA" not in str(refused.value).replace("AAAA...", "")


def test_keys_are_in_the_users_home() -> None:
    assert keys_file("root") == Path("/root/.ssh/authorized_keys")
    with pytest.raises(KeyError):
        keys_file("no such user")


ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for whom another user makes links")
NOBODY = 65534
ACTIONS = {"lend": lambda path: lend(path, KEY, MARK), "take back": lambda path: take_back(path, MARK)}


@pytest.fixture
def open_place() -> Generator[Path]:
    """A directory that other users can enter, as pytest's own is not."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(place)


@pytest.fixture
def home(open_place: Path) -> Path:
    """The home of another user, who has made a link of every name that could be written to."""
    home = open_place / "home"
    (home / ".ssh").mkdir(parents=True)
    for path in (home, home / ".ssh"):
        os.chown(path, NOBODY, NOBODY)
    return home


@pytest.fixture
def victim(open_place: Path) -> Path:
    """A file of root's."""
    path = open_place / "victim"
    path.write_text(f"root's own\n{LINE}")
    path.chmod(0o600)
    return path


def state(path: Path) -> tuple[str, int, int]:
    found = path.stat()
    return path.read_text(), found.st_uid, stat.S_IMODE(found.st_mode)


@ROOT
def test_a_user_with_links_for_every_process_redirects_nothing(home: Path, victim: Path) -> None:
    before = state(victim)
    for name in (f".authorized_keys.{os.getpid()}", ".authorized_keys.new", "authorized_keys.new"):
        (home / ".ssh" / name).symlink_to(victim)
    lend(home / ".ssh/authorized_keys", KEY, MARK)
    assert state(victim) == before
    # and the file is the user's
    assert state(home / ".ssh/authorized_keys") == (LINE, NOBODY, 0o600)
    assert take_back(home / ".ssh/authorized_keys", MARK) == 1


@ROOT
@pytest.mark.parametrize("act", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("at", ["authorized_keys", ".ssh", "hard link", "fifo"])
def test_no_link_of_a_user_is_followed(
    at: str, act: Callable[[Path], object], home: Path, victim: Path, tmp_path: Path
) -> None:
    keys = home / ".ssh/authorized_keys"
    match at:
        case "authorized_keys":
            keys.symlink_to(victim)
            os.chown(keys, NOBODY, NOBODY, follow_symlinks=False)
        case ".ssh":
            (home / ".ssh").rmdir()
            (tmp_path / "of-root").mkdir()
            victim = victim.rename(tmp_path / "of-root" / "authorized_keys")
            (home / ".ssh").symlink_to(tmp_path / "of-root")
        case "hard link":
            os.link(victim, keys)
        case _:
            os.mkfifo(keys)
    before = state(victim)
    with pytest.raises(OSError, match=r"."):
        act(keys)
    assert state(victim) == before
    assert not (home / ".ssh").is_dir() or [path.name for path in (home / ".ssh").iterdir()] in (
        ["authorized_keys"],
    )


@ROOT
def test_a_user_who_swaps_files_and_links_all_the_time_gets_nothing_of_roots(
    home: Path, victim: Path
) -> None:
    # given a process of the user's that turns .ssh and its files into links and back, as fast as it can
    before = state(victim)
    child = os.fork()
    if not child:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        keys, aside = home / ".ssh/authorized_keys", home / "aside"
        while True:
            with suppress(OSError):
                keys.symlink_to(victim)
            with suppress(OSError):
                (home / ".ssh").rename(aside)
            with suppress(OSError):
                (home / ".ssh").symlink_to(victim.parent)
            with suppress(OSError):
                (home / ".ssh").unlink()
            with suppress(OSError):
                aside.rename(home / ".ssh")
            with suppress(OSError):
                keys.unlink()
    # when root lends a key and takes it back
    try:
        for _ in range(200):
            for act in ACTIONS.values():
                with suppress(OSError):
                    act(home / ".ssh/authorized_keys")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    # then root's file is as it was, and no file is beside it
    assert state(victim) == before
    assert sorted(path.name for path in victim.parent.iterdir()) == ["home", "victim"]
