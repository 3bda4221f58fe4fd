"""A key of SSH that may reach libvirt for a while."""

from __future__ import annotations

import os
import stat
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
