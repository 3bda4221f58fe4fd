"""Whether a server runs machines itself (KVM), or emulates them: one is booted, as libvirt's report is not enough.

Some kernels offer KVM on processors without virtualization, and interpret what a machine executes: a hundred times
slower than QEMU's emulation, so that Debian's kernel never comes up.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from tippingpoint.errors import TargetError, UserError, one_line
from tippingpoint.targets.maas.errors import MaasError
from tippingpoint.targets.maas.virtme.definitions import Domain, pool_path, probe_xml, uuid_of, volume_xml
from tippingpoint.targets.maas.virtme.link import PLACE, Libvirt

TURNS = 200_000_000
"""Turns of the loop that a machine makes: 0.1 s of a processor, 0.5 s of an emulated one, minutes of an interpreted
one."""
WITHIN: dict[Domain, tuple[float, float]] = {"kvm": (60.0, 3.0), "qemu": (300.0, 120.0)}
"""Seconds for the boot, and seconds of processor time. KVM takes 0.5 s of the latter, emulation 1 s: mostly for QEMU's
own start and the firmware."""
_DISK = 1 << 20
"""Bytes of the disk. The firmware does not boot from a disk of one sector."""
_LONGEST = 200
"""The most characters of libvirt's message about a machine that did not start: QEMU's messages may follow."""
_ORDER: tuple[Domain, ...] = ("kvm", "qemu")


def advertised(facts: Mapping[str, Any]) -> list[Domain]:
    """Return the kinds of domain that a server advertises, the better one first; UserError if there are none."""
    if facts["arch"] != "x86_64":
        raise UserError(PLACE, f"a server of architecture {facts['arch']}", "one of x86_64")
    types: Sequence[str] = facts["types"].get("x86_64", ())
    found: list[Domain] = [each for each in _ORDER if each in types]
    if not found:
        raise UserError(PLACE, "a server that can neither virtualise nor emulate", "one with KVM or QEMU")
    return found


async def probe(libvirt: Libvirt, facts: Mapping[str, Any], pool: str, mark: str) -> tuple[Domain, str]:
    """Boot a small machine by KVM, and by emulation if that does not work; returns which works, and why not KVM.

    Raises TargetError if neither does. Meanwhile, the run's pool has the machine's disk.
    """
    name = f"{pool}-probe"
    why: list[str] = []
    for domain in advertised(facts):
        within, cpu = WITHIN[domain]
        try:
            tried = await libvirt.ask(
                "try_out",
                pool=pool,
                uuid=uuid_of(mark, pool),
                volume=volume_xml(f"{name}.raw", _DISK, "raw"),
                content=b64encode(boot_sector()).decode(),
                xml=probe_xml(name, mark, domain, f"{pool_path(pool)}/{name}.raw"),
                within=within,
                cpu=cpu,
            )
        except MaasError as problem:
            raise TargetError(PLACE, str(problem), "a libvirt that boots a machine") from None
        if tried["ended"]:
            return domain, "; ".join(why) or ("" if domain == "kvm" else "libvirt does not offer KVM")
        said = one_line(tried["said"], _LONGEST) or "a machine started, and ran no short loop in time"
        why.append(f"{domain}: {said}")
    raise TargetError(PLACE, "; ".join(why), "a server that can virtualise or emulate")


def boot_sector(turns: int = TURNS) -> bytes:
    """Return the first sector of a disk: it makes turns of a loop in protected mode, and resets the machine.

    Protected mode, because no processor with virtualization interprets that. The firmware loads it at 0x7c00.
    """
    start = bytes.fromhex(
        "fa"  # cli
        "31c0 8ed8"  # xor ax, ax; mov ds, ax
        "0f0116 387c"  # lgdt [0x7c38], the last line below
        "0f20c0 0c01 0f22c0"  # mov eax, cr0; or al, 1; mov cr0, eax
        "ea 177c 0800"  # jmp 0x08:0x7c17, the next line
        "b9"  # mov ecx, turns
    )
    rest = bytes.fromhex(
        "49 75fd"  # dec ecx; jnz to it
        "b0fe e664"  # mov al, 0xfe; out 0x64, al: the keyboard controller resets the machine
        "f4 ebfd"  # hlt; jmp to it
    )
    code = (start + struct.pack("<I", turns) + rest).ljust(0x28, b"\0")
    segments = bytes(8) + bytes.fromhex("ffff0000009acf00")  # none, and all memory as 32-bit code
    table = struct.pack("<HI", len(segments) - 1, 0x7C28)
    return (code + segments + table).ljust(510, b"\0") + b"\x55\xaa"
