"""What libvirt is to make, in its XML: machines, their disks, and the pool of these disks."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree.ElementTree import Element, SubElement, tostring

IMAGES = "/var/lib/libvirt/images"
"""Where disks are: AppArmor's profile of libvirt's virtual machines permits this directory."""
Domain = Literal["kvm", "qemu"]
"""Whether the processor runs a machine itself, or is emulated."""
Link = Literal["network", "bridge", "openvswitch"]
_TIMERS = (
    {"name": "rtc", "tickpolicy": "catchup"},
    {"name": "pit", "tickpolicy": "delay"},
    {"name": "hpet", "present": "no"},
)
"""As virt-install sets them: a system that waits for its processor loses neither time nor HPET interrupts."""
_DISK_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Card:
    """A machine's interface, and what it is linked with."""

    mac: str
    link: Link
    name: str
    """Of a libvirt network, or of a bridge on the server."""


def uuid_of(mark: str, name: str) -> str:
    """Return the UUID of something that a run makes, always the same."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{mark} {name}"))


def disk_name(machine: str, number: int) -> str:
    """Return the name of the volume that is a machine's disk, counted from 0."""
    return f"{machine}-{number}.qcow2"


def pool_path(name: str) -> str:
    """Return the directory of a run's storage pool."""
    return f"{IMAGES}/{name}"


def pool_xml(name: str, mark: str) -> str:
    """Return a run's storage pool: a directory of its own."""
    pool = Element("pool", type="dir")
    _text(pool, "name", name)
    _text(pool, "uuid", uuid_of(mark, name))
    _text(SubElement(pool, "target"), "path", pool_path(name))
    return _shown(pool)


def volume_xml(name: str, size: int, form: Literal["qcow2", "raw"] = "qcow2") -> str:
    """Return a disk of this many bytes, of which only what is written takes space."""
    volume = Element("volume")
    _text(volume, "name", name)
    _text(volume, "capacity", str(size), unit="bytes")
    _text(volume, "allocation", "0")
    SubElement(SubElement(volume, "target"), "format", type=form)
    return _shown(volume)


def machine_xml(
    name: str, mark: str, domain: Domain, cpu: int, memory: int, cards: Sequence[Card], disks: Sequence[str]
) -> str:
    """Return a machine of this many cores and bytes, with disks at these paths.

    It boots from the network by its first interface, and then from its first disk, as MAAS wants it.
    """
    machine = _machine(name, mark, domain, cpu, memory)
    _text(machine, "on_reboot", "restart")
    devices = SubElement(machine, "devices")
    SubElement(devices, "controller", type="usb", model="none")
    for number, path in enumerate(disks):
        disk = _disk(devices, path, "qcow2", _letters(number))
        if number == 0:
            SubElement(disk, "boot", order="2")
    for number, card in enumerate(cards):
        kind = "network" if card.link == "network" else "bridge"
        interface = SubElement(devices, "interface", type=kind)
        SubElement(interface, "mac", address=card.mac)
        SubElement(interface, "source", {kind: card.name})
        if card.link == "openvswitch":
            SubElement(interface, "virtualport", type="openvswitch")
        SubElement(interface, "model", type="virtio")
        if number == 0:
            SubElement(interface, "boot", order="1")
    SubElement(devices, "serial", type="pty")
    SubElement(devices, "memballoon", model="none")
    rng = SubElement(devices, "rng", model="virtio")
    _text(rng, "backend", "/dev/urandom", model="random")
    return _shown(machine)


def probe_xml(name: str, mark: str, domain: Domain, disk: str) -> str:
    """Return a small machine that boots from a raw disk. It is gone when it is reset."""
    machine = _machine(name, mark, domain, cpu=1, memory=32 << 20)
    _text(machine, "on_reboot", "destroy")
    devices = SubElement(machine, "devices")
    SubElement(devices, "controller", type="usb", model="none")
    SubElement(_disk(devices, disk, "raw", "a"), "boot", order="1")
    SubElement(devices, "memballoon", model="none")
    return _shown(machine)


def _machine(name: str, mark: str, domain: Domain, cpu: int, memory: int) -> Element:
    machine = Element("domain", type=domain)
    _text(machine, "name", name)
    _text(machine, "uuid", uuid_of(mark, name))
    _text(machine, "description", mark)
    _text(machine, "memory", str(memory), unit="bytes")
    _text(machine, "vcpu", str(cpu))
    _text(SubElement(machine, "os"), "type", "hvm", arch="x86_64")
    features = SubElement(machine, "features")
    SubElement(features, "acpi")
    SubElement(features, "apic")
    clock = SubElement(machine, "clock", offset="utc")
    for timer in _TIMERS:
        SubElement(clock, "timer", timer)
    if domain == "kvm":
        SubElement(machine, "cpu", mode="host-passthrough")
    else:  # current systems need more than the processor that libvirt emulates by default
        processor = SubElement(machine, "cpu", mode="maximum")
        # A fifth level of page tables, for terabytes of memory, makes a boot 15 % longer in emulation.
        SubElement(processor, "feature", policy="disable", name="la57")
    return machine


def _disk(devices: Element, path: str, form: str, letters: str) -> Element:
    disk = SubElement(devices, "disk", type="file", device="disk")
    SubElement(disk, "driver", name="qemu", type=form)
    SubElement(disk, "source", file=path)
    SubElement(disk, "target", dev=f"vd{letters}", bus="virtio")
    return disk


def _letters(number: int) -> str:
    """Return Linux's letters for the disk with this number: a to z, aa to az, ba ..."""
    more, last = divmod(number, len(_DISK_LETTERS))
    return (_letters(more - 1) if more else "") + _DISK_LETTERS[last]


def _text(parent: Element, tag: str, text: str, **attributes: str) -> None:
    SubElement(parent, tag, attributes).text = text


def _shown(element: Element) -> str:
    return tostring(element, encoding="unicode")
