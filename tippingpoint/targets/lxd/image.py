"""A container image made from this machine's static busybox; the same mark gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path

from tippingpoint.errors import UserError

MARK = "/etc/tippingpoint"
"""The file in the image that contains the mark."""

_INITTAB = """\
::sysinit:/bin/hostname -F /etc/hostname
::sysinit:/sbin/ifconfig lo 127.0.0.1 up
::respawn:/etc/init.d/net
::shutdown:/bin/sync
"""
# Without a network there is nothing to do for DHCP, and init would restart a respawned program that ends for ever.
_NET = """\
#!/bin/sh
[ -e /sys/class/net/eth0 ] || exec sleep 2147483647
exec udhcpc -f -i eth0 -s /usr/share/udhcpc/default.script -t 3 -T 2 -A 5 -x hostname:$(hostname)
"""
_LEASE = """\
#!/bin/sh
case "$1" in
deconfig) ip addr flush dev $interface; ip link set $interface up ;;
bound|renew)
  ip addr add $ip/${mask:-24} dev $interface 2>/dev/null
  for r in $router; do ip route add default via $r dev $interface 2>/dev/null; done
  : > /etc/resolv.conf; for d in $dns; do echo nameserver $d >> /etc/resolv.conf; done ;;
esac
exit 0
"""
_METADATA = """\
architecture: {architecture}
creation_date: 1577836800
properties: {{os: busybox, description: a container of Tipping Point}}
templates:
  /etc/hostname:
    when: [create, copy, start]
    create_only: false
    template: hostname.tpl
"""
_FOLDERS = (
    "bin", "dev", "etc", "etc/init.d", "mnt", "proc", "root", "run", "sbin", "sys", "tmp",
    "usr", "usr/bin", "usr/sbin", "usr/share", "usr/share/udhcpc", "var", "var/run",
)  # fmt: skip
_SCRIPTS = {"etc/init.d/net": _NET, "usr/share/udhcpc/default.script": _LEASE}
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/hostname": "",
    "etc/resolv.conf": "",
    "etc/inittab": _INITTAB,
}


def tiny_image(mark: str) -> bytes:
    """Build a unified LXD image (tar.gz, 1 MB) that starts busybox as init and requests an address on eth0.

    The mark is in its /etc/tippingpoint, so that its fingerprint is the run's own. UserError if this machine has no
    static busybox.
    """
    busybox = _busybox()
    made = io.BytesIO()
    # gzip's header has no time or file name, and tar's no time or owner: each build gives the same bytes.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=made, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        _file(archive, "metadata.yaml", _METADATA.format(architecture=platform.machine()).encode())
        _folder(archive, "templates")
        _file(archive, "templates/hostname.tpl", b"{{ container.name }}\n")
        _folder(archive, "rootfs")
        for folder in _FOLDERS:
            _folder(archive, f"rootfs/{folder}")
        _file(archive, "rootfs/bin/busybox", busybox.read_bytes(), 0o755)
        for applet in _applets(busybox):
            _link(archive, f"rootfs/bin/{applet}", "busybox")
        for name in ("sbin/init", "sbin/ifconfig", "usr/bin/env"):
            _link(archive, f"rootfs/{name}", "/bin/busybox")
        for name, text in _SCRIPTS.items():
            _file(archive, f"rootfs/{name}", text.encode(), 0o755)
        for name, text in (_FILES | {MARK[1:]: f"{mark}\n"}).items():
            _file(archive, f"rootfs/{name}", text.encode())
    return made.getvalue()


def fingerprint(image: bytes | Path) -> str:
    """Return the fingerprint by which LXD knows a unified image: the SHA-256 of its file in hexadecimal digits."""
    if isinstance(image, bytes):
        return hashlib.sha256(image).hexdigest()
    with image.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _busybox() -> Path:
    accepted = "a static busybox on this machine (package busybox-static), or another image"
    found = shutil.which("busybox")
    if found is None:
        raise UserError("target.image", "tiny", accepted)
    if not _is_static(Path(found).read_bytes()):
        raise UserError("target.image", "tiny", f"{accepted}: {found} is not a static program")
    return Path(found)


def _is_static(program: bytes) -> bool:
    """Whether this is an ELF program without an interpreter (PT_INTERP), which would load libraries; see elf(5)."""
    if program[:4] != b"\x7fELF" or len(program) < 64:
        return False
    wide, order = program[4] == 2, "little" if program[5] == 1 else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(program[at : at + size], order)

    table = number(32, 8) if wide else number(28, 4)
    size, count = (number(54, 2), number(56, 2)) if wide else (number(42, 2), number(44, 2))
    return all(number(table + size * each, 4) != 3 for each in range(count))


def _applets(busybox: Path) -> list[str]:
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    return sorted({name for name in listed if name != "busybox" and "/" not in name})


def _folder(archive: tarfile.TarFile, name: str) -> None:
    _add(archive, name, tarfile.DIRTYPE, 0o755)


def _link(archive: tarfile.TarFile, name: str, to: str) -> None:
    _add(archive, name, tarfile.SYMTYPE, 0o777, to=to)


def _file(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    _add(archive, name, tarfile.REGTYPE, mode, content)


def _add(
    archive: tarfile.TarFile, name: str, kind: bytes, mode: int, content: bytes = b"", to: str = ""
) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(content), to
    archive.addfile(entry, io.BytesIO(content))
