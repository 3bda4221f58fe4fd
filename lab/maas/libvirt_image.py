"""What the lab's real machines boot: Debian's kernel, and an initramfs of busybox that phones home.

The initramfs has static busybox, the few modules of the kernel that it needs, and /init. That finds the network card
with the MAC address that booted, gets an address by DHCP, counts cores, memory and disks, and sends these to the URL
that the kernel's command line gives as `phone=`, until it is answered. Then it waits to be switched off.
"""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.control import LabError

UNPACKED = Path(__file__).resolve().parents[2] / ".cache" / "packages" / "linux"
"""Where need_libvirt of scripts/_bootstrap.sh unpacks Debian's kernel."""
_MODULES = ("virtio_pci", "virtio_net", "virtio_blk")
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")
_DIRECTORY, _PROGRAM, _FILE, _DEVICE = 0o040755, 0o100755, 0o100644, 0o020600
_CONSOLE = (5, 1)
"""The device numbers of /dev/console, which /init writes to."""

_INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod "/modules/$module"; done
for word in $(cat /proc/cmdline); do
    case $word in phone=*) phone=${word#phone=} ;; esac
done
card=
until [ -n "$card" ]; do
    for each in /sys/class/net/*; do
        [ "$(cat "$each/address")" = "${phone##*/}" ] && card=${each##*/}
    done
    [ -n "$card" ] || sleep 0.1
done
ip link set "$card" up
udhcpc -q -f -t 200 -T 1 -A 1 -i "$card" -s /dhcp
disks=
for each in /sys/block/vd*; do [ -e "$each/size" ] && disks="$disks,$(cat "$each/size")"; done
memory=0
while read -r range colon what; do
    [ "$what" = "System RAM" ] && memory=$((memory + 0x${range#*-} - 0x${range%-*} + 1))
done </proc/iomem
cores=$(grep -c ^processor /proc/cpuinfo)
until wget -q -O /dev/null --post-data "cores=$cores&memory=$memory&disks=${disks#,}" "$phone"; do sleep 1; done
echo "phoned home: $cores cores, $memory bytes, disks of ${disks#,} sectors"
while :; do sleep 3600; done
"""
_DHCP = """#!/bin/sh
case $1 in
bound | renew) ip addr replace "$ip/$mask" dev "$interface" ;;
esac
"""


@dataclass(frozen=True)
class Image:
    """The files that a machine boots."""

    kernel: Path
    initramfs: Path


def make_image(directory: Path) -> Image:
    """Write the initramfs into a directory. Raises LabError without a kernel or static busybox."""
    kernel = next(iter(sorted((UNPACKED / "boot").glob("vmlinuz-*"))), None)
    busybox = shutil.which("busybox")
    if kernel is None or busybox is None:
        raise LabError(
            f"{UNPACKED if kernel is None else 'busybox'}: not found",
            "what ./scripts/lab up maas --libvirt fetches",
        )
    modules = list(_modules())
    archive = _archive(Path(busybox).read_bytes(), modules)
    image = Image(kernel, directory / "initramfs")
    image.initramfs.write_bytes(gzip.compress(archive, 6))
    return image


def _modules() -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of modules, each after those that it depends on.

    A package that is only unpacked has no modules.dep. But every module names those that it depends on itself.
    """
    found = {path.name.partition(".ko")[0].replace("-", "_"): path for path in UNPACKED.rglob("*.ko*")}
    done = set[str]()

    def wanted(name: str) -> Iterator[tuple[str, bytes]]:
        if name in done or name not in found:  # what is not there is a part of the kernel
            return
        done.add(name)
        content = _content(found[name])
        match = _DEPENDS.search(content)
        for other in match[1].decode().split(",") if match else []:
            yield from wanted(other.replace("-", "_"))
        yield name, content

    for name in _MODULES:
        yield from wanted(name)


def _content(path: Path) -> bytes:
    """Return a module; Debian compresses them from 13 on."""
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content


def _archive(busybox: bytes, modules: list[tuple[str, bytes]]) -> bytes:
    entries: list[tuple[str, int, bytes]] = [
        ("dev", _DIRECTORY, b""),
        ("dev/console", _DEVICE, b""),
        ("bin", _DIRECTORY, b""),
        ("bin/busybox", _PROGRAM, busybox),
        ("init", _PROGRAM, _INIT.encode()),
        ("dhcp", _PROGRAM, _DHCP.encode()),
        ("modules", _DIRECTORY, b""),
        ("modules/order", _FILE, "\n".join(name for name, _ in modules).encode()),
        *((f"modules/{name}", _FILE, content) for name, content in modules),
    ]
    return _cpio(entries)


def _cpio(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Return an archive in the format `newc`, which the kernel reads (Documentation/driver-api/early-userspace)."""
    out = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        device = _CONSOLE if mode == _DEVICE else (0, 0)
        path = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(path), 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + path
        out += b"\0" * (-len(out) % 4) + content
        out += b"\0" * (-len(out) % 4)
    return bytes(out)
