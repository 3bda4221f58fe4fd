"""The libvirt of a MAAS lab as its administrator sees it, and machines that are defined by hand."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.maas.simulator import MaasLab

_DOMAIN = """<domain type='{type}'>
  <name>{name}</name>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>{cores}</vcpu>
  <os><type arch='x86_64'>hvm</type><boot dev='network'/></os>
  <features><acpi/></features>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='{disk}'/><target dev='vda' bus='virtio'/>
    </disk>
    <interface type='bridge'>
      <mac address='{mac}'/><source bridge='maas'/><model type='virtio'/>
    </interface>
    <memballoon model='none'/>
  </devices>
</domain>"""


def virsh(lab: MaasLab, *arguments: str, address: str = "") -> str:
    """What virsh prints, which must succeed; `address` is another than that of the lab's socket."""
    ran = try_virsh(lab, *arguments, address=address)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def try_virsh(lab: MaasLab, *arguments: str, address: str = "") -> subprocess.CompletedProcess[str]:
    """How virsh ends."""
    assert lab.libvirt is not None
    command = ["virsh", "-q", "-c", address or lab.libvirt.uri, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def define(lab: MaasLab, directory: Path, name: str, mac: str) -> None:
    """Define a machine of 2 cores, 160 MiB and a disk of 10 GiB, with a network card on the bridge `maas`."""
    assert lab.libvirt is not None
    disk, xml = directory / f"{name}.qcow2", directory / f"{name}.xml"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "10G"], check=True)
    kind = lab.libvirt.domain_type
    xml.write_text(_DOMAIN.format(type=kind, name=name, memory=160, cores=2, disk=disk, mac=mac))
    virsh(lab, "define", str(xml))
