"""How the machines of a plan are made: the part `made` of its target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.fields import Section, Settings
from tippingpoint.plan.kinds import MachineNeeds
from tippingpoint.util.authorized_keys import key_of

TEMPLATES = ("name", "mac", "number")
"""Placeholders, in braces, for facts of each machine in a power parameter."""
_BRACED = re.compile(r"\{([A-Za-z_]\w*)\}")
_SECRET = re.compile(r"pass|token|secret|key|cert|^k_g$")
"""The parameters of MAAS's power drivers that are secrets: power_pass, password, power_token, certificate, key, k_g."""
_WITH_PASSWORD = re.compile(r"://[^/@:\s]*:[^/@\s]*@")
_SECURED = re.compile(r"qemu([+](ssh|libssh2?|tls|unix))?://")
"""The ways to a libvirt that nobody can intercept. A URI with a host that names no way means TLS."""
_FILE = "`power` of the credentials file"
_OWN = "qemu:///system"
"""The libvirt of the machine that the run is on."""
_BINDING = ("python3-libvirt",)
_SERVER = ("libvirt-daemon-system", "qemu-system-x86", "qemu-utils", "ipxe-qemu")
"""The packages of Debian and Ubuntu for libvirt, KVM, making qcow2 files, and booting from the network."""


class Registered(Section, frozen=True):
    """Machines that exist in MAAS's database only: nothing boots, but what their power controllers are said to."""

    kind: Literal["registered"] = Field(
        description="`registered`: MAAS knows the machines, and they need not exist."
    )
    power_type: Annotated[str, Field(pattern=r"^[a-z0-9_.-]{1,40}$")] = Field(
        default="manual", description="MAAS's name of the machines' power driver, such as `webhook`."
    )
    power_parameters: Settings = Field(
        default={},
        description="The driver's parameters. In a text `{name}`, `{mac}` and `{number}` stand for the machine's own. "
        "Passwords, tokens and keys are refused here: they are `power` in the credentials file.",
    )

    @model_validator(mode="after")
    def _without_secrets(self) -> Registered:
        for name, value in self.power_parameters.items():
            place = f"power_parameters.{name}"
            if _SECRET.search(name):
                raise ValueError(f"{place}: a secret: expected {name} in {_FILE}")
            if _WITH_PASSWORD.search(value):
                raise ValueError(f"{place}: with a password in it: expected the password in {_FILE}")
            for word in _BRACED.findall(value):
                if word not in TEMPLATES:
                    accepted = ", ".join(f"{{{known}}}" for known in TEMPLATES)
                    raise ValueError(f"{place}: {{{word}}}: expected one of {accepted}")
        return self


class Composed(Section, frozen=True):
    """Machines that MAAS composes on its VM hosts, and commissions by itself."""

    kind: Literal["composed"] = Field(description="`composed`: MAAS makes the machines on its VM hosts.")
    hosts: Annotated[list[Annotated[str, Field(min_length=1, max_length=255)]], Field(max_length=1000)] = (
        Field(default=[], description="The names of the VM hosts, in turn; none for all of the MAAS.")
    )


def _absolute(path: str) -> str:
    if "://" not in path:
        raise ValueError("a URI of libvirt, such as `qemu:///system`")
    if _WITH_PASSWORD.search(path):
        raise ValueError("a URI of libvirt without a password")
    return path


def _secured(address: str) -> str:
    """Return an address, or an empty text; ValueError if it could be intercepted."""
    if not address:
        return ""
    if not _SECURED.match(_absolute(address)) or "no_verify=" in address:
        raise ValueError("SSH, or TLS that verifies the server, such as `qemu+ssh://USER@HOST/system`")
    return address


def _public(key: str) -> str:
    """Return the type and body of a public key, or an empty text; ValueError for anything else."""
    try:
        return key_of("", key) if key else ""
    except UserError as problem:
        raise ValueError(problem.accepted) from None


LibvirtUri = Annotated[str, Field(max_length=1000), AfterValidator(_absolute)]


class Virtme(Section, frozen=True):
    """Machines that the run makes with libvirt on a server of its own, and registers in MAAS."""

    kind: Literal["virtme"] = Field(description="`virtme`: the run makes KVM machines with libvirt.")
    libvirt: LibvirtUri = Field(default=_OWN, description="Where the run reaches libvirt.")
    power_address: Annotated[str, Field(max_length=1000), AfterValidator(_secured)] = Field(
        default="",
        description="Where MAAS reaches the same libvirt, by SSH or TLS: `qemu+ssh://USER@HOST/system`. A charm fills "
        "in its unit's own address, as root by SSH.",
    )
    authorized_key: Annotated[str, Field(max_length=2000), AfterValidator(_public)] = Field(
        default="",
        description="MAAS's public key of SSH, which the run has the server accept while it lasts.",
    )

    @property
    def needs(self) -> MachineNeeds:
        """What making machines needs of the server. A libvirt elsewhere, or at a socket of its own, is not ours to set
        up."""
        if self.libvirt != _OWN:
            return MachineNeeds(packages=_BINDING)
        return MachineNeeds((*_BINDING, *_SERVER), ("libvirt",), True, self.authorized_key)

    def on_unit(self, address: str) -> Virtme:
        """The same on a unit of a charm at this address. The charm installs the key: the run's user is not root."""
        host = f"[{address}]" if ":" in address else address
        ours = self.power_address or (f"qemu+ssh://root@{host}/system" if address else "")
        return self.model_copy(update={"power_address": ours, "authorized_key": ""})


Made = Registered | Composed | Virtme
"""The ways in which machines are made. `kind` distinguishes them."""


def filled(template: str, facts: Mapping[str, str]) -> str:
    """Return a power parameter with a machine's own facts, named by TEMPLATES, filled in."""
    return _BRACED.sub(lambda found: facts.get(found[1], found[0]), template)
