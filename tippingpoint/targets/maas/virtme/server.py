"""Checks of the server on which a run makes machines, before the first: is it fit, has it room, does it virtualise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tippingpoint.errors import TargetError, UserError
from tippingpoint.targets.maas.errors import MaasError
from tippingpoint.targets.maas.made import Virtme
from tippingpoint.targets.maas.names import mark_of
from tippingpoint.targets.maas.plan import MaasTarget, Machines
from tippingpoint.targets.maas.virtme.definitions import IMAGES, Domain, pool_xml, uuid_of
from tippingpoint.targets.maas.virtme.keys import check_key, lend_key
from tippingpoint.targets.maas.virtme.link import PLACE, Libvirt
from tippingpoint.targets.maas.virtme.probe import advertised, probe
from tippingpoint.targets.target import Tell
from tippingpoint.util.text import show_count

OVERHEAD = 64 << 20
"""Bytes that QEMU takes beside a machine's own memory. A machine of 96 MiB took 160 MB, in emulation by QEMU 7.2."""
WRITTEN = 2 << 30
"""An estimate of the bytes that a deployment writes to the first disk: a current Linux server unpacked, without
packages of its own. Disks are sparse, so their sizes do not show this."""


async def reach(made: Virtme, target: MaasTarget) -> None:
    """Check that libvirt answers and has what the plan names; nothing is made.

    TargetError if it does not answer. UserError names what the plan cannot have, or what this machine lacks.
    """
    if not made.power_address:
        raise UserError(
            "target.made.power_address", "none", "qemu+ssh://USER@HOST/system or qemu+tls://HOST/system"
        )
    check_key(made)
    libvirt = Libvirt(made.libvirt)
    try:
        advertised(await libvirt.reach())
        names = {network: size for size, each in sizes(target) for network in each.networks}
        found: dict[str, str] = await libvirt.ask("networks", names=list(names))
        for name, link in found.items():
            if not link:
                raise UserError(
                    f"target.machines.{names[name]}.networks",
                    name,
                    "a network of libvirt's or a bridge of the server",
                )
    except MaasError as problem:
        raise TargetError(PLACE, str(problem), "a libvirt that shows its networks") from None
    finally:
        await libvirt.close()


async def take(made: Virtme, run: str, prefix: str, tell: Tell) -> Domain:
    """Make the run's storage pool, let MAAS reach libvirt, and return and report how the server runs machines."""
    mark = mark_of(run)
    libvirt = Libvirt(made.libvirt)
    try:
        facts = await libvirt.reach()
        lend_key(made, mark)
        await libvirt.ask("make_pool", name=prefix, uuid=uuid_of(mark, prefix), xml=pool_xml(prefix, mark))
        domain, why = await probe(libvirt, facts, prefix, mark)
    except MaasError as problem:
        raise TargetError(PLACE, str(problem), "a libvirt that makes a storage pool") from None
    finally:
        await libvirt.close()
    if domain == "kvm":
        tell(f"The machines run on {facts['host']} by KVM.")
    else:
        tell(f"The machines on {facts['host']} are emulated by QEMU, which is slower than KVM ({why}).")
    return domain


async def check_room(made: Virtme, prefix: str, machines: Sequence[Machines], *, written: bool) -> None:
    """Check that the server has memory and disk for more machines that run; UserError says how many of them fit.

    `prefix` is the name of the run's storage pool. `written` says that systems are put on their disks.
    """
    libvirt = Libvirt(made.libvirt)
    try:
        await libvirt.reach()
        room: dict[str, Any] = await libvirt.ask("room", pool=prefix, directory=IMAGES)
    except MaasError as problem:
        raise TargetError(PLACE, str(problem), "a libvirt that reports its memory") from None
    finally:
        await libvirt.close()
    more, short = fitting(machines, room["memory"], room["disk"], written=written)
    if more < len(machines):
        raise UserError(
            "instances",
            show_count(len(machines), "more machine"),
            f"at most {more:,} more, for which the server has enough {short}; --force skips this check",
        )


def fitting(machines: Sequence[Machines], memory: int, disk: int | None, *, written: bool) -> tuple[int, str]:
    """Return how many of these machines fit, in order, and what the next one lacks: `memory` or `disk`.

    `memory` and `disk` are free bytes; None if unknown. `written` says that systems are put on their first disks.
    """
    for number, machine in enumerate(machines):
        memory -= machine.memory + OVERHEAD
        if memory < 0:
            return number, "memory"
        if disk is not None and written and machine.disks:
            disk -= min(machine.disks[0], WRITTEN)
            if disk < 0:
                return number, "disk"
    return len(machines), ""


def sizes(target: MaasTarget) -> Iterable[tuple[str, Machines]]:
    """Return the sizes of a plan's machines by name; a plan without sizes makes machines of a usual size."""
    return target.machines.items() or {"machines": Machines()}.items()
