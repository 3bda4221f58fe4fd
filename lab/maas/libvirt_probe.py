"""Tells whether KVM works here, by booting: some machines offer /dev/kvm, and a kernel hangs under it.

The answer holds until this machine boots again, and is kept in .cache/ for so long.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

from lab.maas.libvirt_image import UNPACKED, Image
from lab.tether import tethered

QEMU = "qemu-system-x86_64"
_DEVICE = Path("/dev/kvm")
_KEPT = UNPACKED.parents[1] / "kvm.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_WITHIN_S = 20.0
"""A kernel that boots under KVM comes to its panic within a second. One that is slower than this needs no KVM."""
_SAID = b"Kernel panic"
"""What a kernel says that has booted to its end and finds no /init: there is no initramfs, which takes less time."""


def kvm_works(image: Image) -> bool:
    """Whether a machine boots under KVM here."""
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return False
    here = {"boot": _BOOT.read_text().strip(), "kernel": image.kernel.name}
    for works in (True, False):
        with contextlib.suppress(OSError, ValueError):
            if json.loads(_KEPT.read_text()) == here | {"works": works}:
                return works
    works = _boots(image)
    new = _KEPT.with_name(f"{_KEPT.name}.{os.getpid()}")
    new.write_text(json.dumps(here | {"works": works}))
    new.replace(_KEPT)
    return works


def _boots(image: Image) -> bool:
    machine = ["-accel", "kvm", "-m", "128", "-display", "none", "-nodefaults", "-no-reboot"]
    boot = ["-serial", "stdio", "-kernel", str(image.kernel), "-append", "console=ttyS0 panic=-1"]
    try:
        ran = subprocess.run(
            tethered([QEMU, *machine, *boot]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return _SAID in ran.stdout
