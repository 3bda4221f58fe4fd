"""The image that is made of this machine's own busybox."""

from __future__ import annotations

import hashlib
import io
import platform
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tippingpoint.errors import UserError
from tippingpoint.targets.lxd.image import MARK, fingerprint, tiny_image

pytestmark = pytest.mark.skipif(shutil.which("busybox") is None, reason="busybox-static is not there")


@pytest.fixture(scope="module")
def image() -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(tiny_image("run-1")))


def content(image: tarfile.TarFile, name: str) -> str:
    file = image.extractfile(name)
    assert file is not None
    return file.read().decode()


def test_the_same_mark_makes_the_same_bytes_and_another_mark_others() -> None:
    first = tiny_image("run-1")
    assert tiny_image("run-1") == first
    assert fingerprint(tiny_image("run-2")) != fingerprint(first)


def test_a_fingerprint_is_the_sha256_of_the_file(tmp_path: Path) -> None:
    made = tiny_image("run-1")
    (tmp_path / "image.tar.gz").write_bytes(made)
    assert fingerprint(made) == fingerprint(tmp_path / "image.tar.gz") == hashlib.sha256(made).hexdigest()


def test_the_mark_is_in_the_image(image: tarfile.TarFile) -> None:
    assert content(image, f"rootfs{MARK}") == "run-1\n"


def test_lxd_is_told_the_architecture_and_how_to_name_the_host(image: tarfile.TarFile) -> None:
    metadata = yaml.safe_load(content(image, "metadata.yaml"))
    assert metadata["architecture"] == platform.machine()
    template = metadata["templates"]["/etc/hostname"]["template"]
    assert "container.name" in content(image, f"templates/{template}")


def test_there_is_an_init_and_everything_it_starts(image: tarfile.TarFile) -> None:
    names = set(image.getnames())
    assert image.getmember("rootfs/sbin/init").linkname == "/bin/busybox"
    assert image.getmember("rootfs/bin/busybox").mode == 0o755
    started = [
        line.rpartition(":")[2].split()[0] for line in content(image, "rootfs/etc/inittab").splitlines()
    ]
    assert started
    assert all(f"rootfs{program}" in names for program in started)
    assert "rootfs/usr/share/udhcpc/default.script" in names


def test_nothing_in_it_tells_when_or_by_whom_it_was_made(image: tarfile.TarFile) -> None:
    entries = image.getmembers()
    assert {(entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries} == {
        (0, 0, 0, "", "")
    }
    assert all(not entry.name.startswith("/") for entry in entries)


@pytest.mark.parametrize("made_of", ["nothing", "a program with libraries", "a script", "an empty file"])
def test_without_a_static_busybox_one_line_says_which_package_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_of: str
) -> None:
    found = tmp_path / "busybox"
    if made_of == "a program with libraries":
        shutil.copy(sys.executable, found)
    elif made_of == "a script":
        found.write_text("#!/bin/sh\nexit 0\n" + "#" * 100)
    elif made_of == "an empty file":
        found.touch()
    if made_of != "nothing":
        found.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError) as error:
        tiny_image("run-1")
    assert str(error.value).startswith("target.image: tiny: expected a static busybox")
    assert "busybox-static" in str(error.value)
