"""MAAS's access to libvirt by SSH, where a plan has a key of its racks: it works as long as the run lasts."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from tippingpoint.errors import UserError
from tippingpoint.targets.maas.made import Virtme
from tippingpoint.util import authorized_keys

_PLACE = "target.made.authorized_key"


def check_key(made: Virtme) -> None:
    """Raise UserError if a plan has a key that cannot be lent on this machine."""
    if not made.authorized_key:
        return
    _file_of(made)
    if urlsplit(made.libvirt).netloc:
        raise UserError(_PLACE, f"with libvirt at {made.libvirt}", "none, or the libvirt of this machine")
    if not Path(authorized_keys.HELPER).exists():
        raise UserError(_PLACE, f"without {authorized_keys.HELPER}", "the distribution's package that has it")


def lend_key(made: Virtme, mark: str) -> None:
    """Let MAAS reach libvirt with the plan's key, if it has one; UserError if the file of keys cannot be written."""
    if not made.authorized_key:
        return
    path = _file_of(made)
    try:
        authorized_keys.lend(path, made.authorized_key, mark)
    except OSError as problem:
        raise UserError(_PLACE, str(path), f"a file that may be written ({problem.strerror})") from None


def take_back_key(made: Virtme, mark: str) -> int:
    """Remove the plan's key from where it was lent; returns how many there were. UserError as above."""
    if not made.authorized_key:
        return 0
    path = _file_of(made)
    try:
        return authorized_keys.take_back(path, mark)
    except OSError as problem:
        raise UserError(_PLACE, str(path), f"a file that may be written ({problem.strerror})") from None


def _file_of(made: Virtme) -> Path:
    """Return the keys of the user as whom MAAS logs in; UserError if the power address names no user of this
    machine."""
    address = urlsplit(made.power_address)
    try:
        if address.scheme.endswith("ssh"):
            return authorized_keys.keys_file(address.username or "")
    except KeyError:
        pass
    raise UserError(
        "target.made.power_address",
        made.power_address,
        "qemu+ssh://USER@HOST/system with a user of this machine",
    )
