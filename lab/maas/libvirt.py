"""A host of virtual machines for the MAAS lab: Debian's libvirtd with a bridge from which machines boot by PXE.

libvirtd runs in namespaces of its own (libvirt_host.py), in the network of the bridge `maas`, where dnsmasq gives
machines addresses and a script for iPXE, which is the network card's own firmware in QEMU. Clients reach it by a unix
socket, or by TLS with a certificate of the lab's authority; it has no open port without that. Whatever runs there ends
with the lab, even by SIGKILL.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lab.certificates import make_certificates
from lab.control import LabError
from lab.maas.libvirt_daemon import TLS_PORT, Libvirtd, awaited, children
from lab.maas.libvirt_image import Image, make_image
from lab.maas.libvirt_probe import QEMU, kvm_works
from lab.network import Switch
from lab.service import Starter

BRIDGE = "maas"
_PROGRAMS = ("libvirtd", "virsh", QEMU, "qemu-img", "dnsmasq", "ip", "nsenter", "setpriv", "unshare")
_LEASES = (10, 240)
"""The numbers of the addresses that machines get by DHCP."""
_PREFIX = "fd00:7470"
"""The subnet of IPv6, which nothing uses."""
_SCRIPT = "boot.ipxe"
_QEMU_CONF = """user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
"""
_MOUNTS = {
    "/etc/libvirt": "etc",
    "/var/lib/libvirt": "lib",
    "/var/cache/libvirt": "cache",
    "/var/log/libvirt": "log",
}
_ACCOUNT = "libvirt-qemu"
"""The user and group without which Debian's libvirt does not start QEMU's driver, although the lab's machines are
root's. Debian's libvirt-daemon-system, which would start services, makes them."""
_ACCOUNTS = {
    "/etc/passwd": f"{_ACCOUNT}:x:64055:64055::/nonexistent:/usr/sbin/nologin",
    "/etc/group": f"{_ACCOUNT}:x:64055:",
}


class LibvirtHost:
    """The host, which serves once it is made and is gone when the context ends.

    `address` is where the region listens for machines. `uri` is libvirt's for clients of this machine, and
    `power_address` the one with which a MAAS switches machines.
    """

    def __init__(
        self,
        cleanup: ExitStack,
        starter: Starter,
        directory: Path,
        phone_port: int,
        groups: Collection[Path],
    ) -> None:
        """Machines fetch what they boot from `phone_port` of `address`. The host joins these control groups: QEMU runs
        where its group may, as libvirt gives it all processors whatever its own are."""
        _check_programs()
        self.directory = directory / "libvirt"
        self.directory.mkdir(mode=0o700)
        self.image: Image = make_image(self.directory)
        self.kvm = kvm_works(self.image)
        switch = Switch(lambda line: starter.start("switch", line), cleanup, BRIDGE)
        self.address = switch.host
        self._own = switch.address(1)
        self._configure(phone_port)
        self._phone_port = phone_port
        spec = {
            "name": "libvirt",
            "bridge": BRIDGE,
            "addresses": [switch.with_prefix(1), f"{_PREFIX}::1/64"],
            "directory": str(self.directory),
            "mounts": _MOUNTS,
            "files": [*_ACCOUNTS],
            "groups": [str(group) for group in groups],
            "dnsmasq": self._dnsmasq(switch),
            "libvirtd": ["libvirtd", "--listen", "--config", str(self.directory / "libvirtd.conf")],
        }
        self._process = starter.start("libvirt", _namespaces(switch.path, spec))
        try:
            self.daemon = Libvirtd(self._first_process(), self.directory)
            self.daemon.await_serving()
        except LabError as problem:
            said = starter.last_words("libvirt")
            raise LabError(f"{problem.problem} {said}", problem.expected) from None
        self.version = self._version()

    @property
    def uri(self) -> str:
        """libvirt's address for clients of this machine."""
        return f"qemu+unix:///system?socket={self.daemon.socket}"

    @property
    def power_address(self) -> str:
        """libvirt's address over TLS, with the key of a client that it knows."""
        return f"qemu+tls://{self._own}:{TLS_PORT}/system?pkipath={self.directory / 'client'}"

    @property
    def virtualization(self) -> str:
        """Whether machines run under KVM or in emulation."""
        return "kvm" if self.kvm else "emulation"

    @property
    def domain_type(self) -> str:
        """What a domain's XML has as its type."""
        return "kvm" if self.kvm else "qemu"

    def describe(self) -> dict[str, Any]:
        """Return where it is, for programs."""
        return {
            "host": self.daemon.host,
            "uri": self.uri,
            "power_address": self.power_address,
            "bridge": BRIDGE,
            "version": self.version,
            "virtualization": self.virtualization,
            "domain_type": self.domain_type,
        }

    def setup(self) -> dict[str, Any]:
        """Return what the region's process needs to know."""
        return self.describe() | {
            "directory": str(self.directory),
            "address": self.address,
            "phone_port": self._phone_port,
            "kernel": str(self.image.kernel),
            "initramfs": str(self.image.initramfs),
        }

    def _configure(self, phone_port: int) -> None:
        made, client = self.directory / "tls", self.directory / "client"
        tftp, configuration = self.directory / "tftp", self.directory / "etc"
        for each in (made, client, tftp, configuration, self.directory / "run"):
            each.mkdir(mode=0o700)
        certificates = make_certificates(made, "maas", [self._own], server_name="libvirt")
        for name, path in (
            ("cacert.pem", certificates.ca),
            ("clientcert.pem", certificates.client_cert),
            ("clientkey.pem", certificates.client_key),
        ):
            (client / name).symlink_to(path)
        (configuration / "qemu.conf").write_text(_QEMU_CONF)
        for path, line in _ACCOUNTS.items():
            known = Path(path).read_text().splitlines()
            missing = not any(each.startswith(f"{_ACCOUNT}:") for each in known)
            (self.directory / Path(path).name).write_text("\n".join([*known, *([line] * missing), ""]))
        settings: dict[str, str | int] = {
            "listen_tls": 1,
            "listen_tcp": 0,
            "listen_addr": self._own,
            "tls_port": str(TLS_PORT),
            "tls_no_verify_certificate": 0,
            "ca_file": str(certificates.ca),
            "cert_file": str(certificates.server_cert),
            "key_file": str(certificates.server_key),
            "auth_tls": "none",
            "auth_unix_ro": "none",
            "auth_unix_rw": "none",
            "unix_sock_dir": str(self.directory / "run"),
            "unix_sock_ro_perms": "0700",
            "unix_sock_rw_perms": "0700",
        }
        lines = (
            f"{name} = {value}" if isinstance(value, int) else f'{name} = "{value}"'
            for name, value in settings.items()
        )
        (self.directory / "libvirtd.conf").write_text("\n".join(lines) + "\n")
        (tftp / _SCRIPT).write_text(
            "#!ipxe\n"
            ":again\n"
            f"chain http://{self.address}:{phone_port}/boot/${{netX/mac}} ||\n"
            "sleep 2\n"
            "goto again\n"
        )

    def _dnsmasq(self, switch: Switch) -> list[str]:
        first, last = (switch.address(number) for number in _LEASES)
        return [
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--user=root",
            "--pid-file=/run/dnsmasq.pid",
            "--log-facility=-",
            "--port=0",
            f"--interface={BRIDGE}",
            "--bind-interfaces",
            f"--dhcp-range={first},{last},12h",
            f"--dhcp-leasefile={self.directory / 'leases'}",
            "--dhcp-authoritative",
            "--dhcp-option=3",  # no router: there is nothing behind the bridge
            "--no-ping",
            "--dhcp-option-force=encap:175,176,1b",  # iPXE need not wait for the offer of a proxy: there is none
            "--enable-ra",  # iPXE waits 13 s for a router of IPv6
            f"--dhcp-range={_PREFIX}::,ra-only",
            f"--ra-param={BRIDGE},0,0",  # and is told that there is none
            f"--dhcp-boot={_SCRIPT}",
            "--enable-tftp",
            f"--tftp-root={self.directory / 'tftp'}",
        ]

    def _first_process(self) -> int:
        """Wait for process 1 of the host, which is the only child of `unshare`."""

        def child() -> int | None:
            if self._process.poll() is not None:
                raise LabError("libvirt's host: did not start", "to be allowed to make namespaces (root)")
            return next(iter(children(self._process.pid)), None)

        return awaited("libvirt's host", child)

    def _version(self) -> str:
        """Return libvirtd's version, by its own answer."""
        asking = ["virsh", "-q", "-c", self.uri, "version", "--daemon"]
        ran = subprocess.run(asking, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise LabError(f"virsh version: {ran.stderr} {self.daemon.last_words()}", "an answer of libvirtd")
        return ran.stdout.strip().rpartition(" ")[2]


def _namespaces(network: str, spec: dict[str, Any]) -> list[str]:
    """Return the command line of the host's first process."""
    program = Path(__file__).with_name("libvirt_host.py")
    return [
        "nsenter",
        f"--net={network}",
        "unshare",
        "--mount",
        "--uts",
        "--ipc",
        "--propagation=private",
        "--pid",
        "--fork",
        "--kill-child=SIGKILL",
        sys.executable,
        "-I",
        "-S",
        str(program),
        json.dumps(spec),
    ]


def _check_programs() -> None:
    if os.geteuid() != 0:
        raise LabError(f"user: uid {os.geteuid()}", "root: libvirt's namespaces need it")
    for program in _PROGRAMS:
        if shutil.which(program) is None:
            raise LabError(
                f"{program}: not found", "the packages that ./scripts/lab up maas --libvirt installs"
            )
