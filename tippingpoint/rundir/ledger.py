"""What a run makes in a target is written down before it is made, so that it can be removed after any end."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, Discriminator, Tag, TypeAdapter, ValidationError

from tippingpoint.errors import UserError
from tippingpoint.plan.targets import EtcdTarget, JujuTarget, LxdTarget, OpenstackTarget
from tippingpoint.rundir.files import read_file

FILE = "ledger.jsonl"
KEY_PAIR = "trust"
"""Beside it: the directory of the key pair that a trust token of an LXD was redeemed for."""
PASSWORD = "openstack-user"
"""Beside it: the file with the password of the user that was made in an OpenStack."""
LARGEST_FILE = 1 << 20
"""Bytes; a run has one entry of a few hundred."""


class EtcdEntry(BaseModel):
    """Everything a run makes in an etcd: keys below a prefix, and leases with ids from a range."""

    kind: Literal["etcd"] = "etcd"
    prefix: str
    first_lease_id: int
    lease_ids: int
    target: EtcdTarget


class JujuEntry(BaseModel):
    """Everything a run makes on a Juju controller: hollow machines, applications and units in one model."""

    kind: Literal["juju"] = "juju"
    prefix: str
    """What the names of applications and machines begin with."""
    model: str
    """Name or UUID of the model they are in; empty when the run makes nothing."""
    made_model: bool
    """Whether the model is the run's own, and goes with it."""
    target: JujuTarget
    store: Path | None
    """The juju client's directory that names the controller; None where a credentials file does."""


class LxdEntry(BaseModel):
    """Everything a run makes in an LXD: projects with their profile and containers, an image, our trust.

    Where its target names `projects`, the containers and the image are in these, and it makes no projects.
    """

    kind: Literal["lxd"] = "lxd"
    run: str
    """The run whose names and marks they carry: another one than the ledger's where a run takes that one up."""
    prefix: str
    """What the names of projects and containers begin with."""
    image: str
    """Fingerprint of the image that is imported unless it is there; empty where the plan names one on the server."""
    target: LxdTarget
    """As the ledger has it: with the remote's name, whatever becomes lxc's default one meanwhile."""
    store: Path | None
    """The lxc client's directory that names the remote; None where the plan says otherwise who we are."""
    identity: Path | None
    """Directory of the key pair made for a trust token; None without one."""


class OpenstackEntry(BaseModel):
    """Everything a run makes in an OpenStack: servers; where its target says so also projects with a user in them,
    networks with their subnets and routers, a flavor, and an image."""

    kind: Literal["openstack"] = "openstack"
    run: str
    """The run whose names and marks they carry: another one than the ledger's where a run takes that one up."""
    prefix: str
    """What the names of all of it begin with."""
    target: OpenstackTarget
    """As the ledger has it: with the cloud's name and file, whatever becomes the default meanwhile."""
    identity: Path | None
    """File with the password of the user that is made; None where none is."""


def _kind(value: Any) -> str:
    return str(cast("dict[str, Any]", value).get("kind", "etcd")) if isinstance(value, dict) else ""


Entry = EtcdEntry | JujuEntry | LxdEntry | OpenstackEntry
_ENTRIES: TypeAdapter[Entry] = TypeAdapter(
    Annotated[
        Annotated[EtcdEntry, Tag("etcd")]
        | Annotated[JujuEntry, Tag("juju")]
        | Annotated[LxdEntry, Tag("lxd")]
        | Annotated[OpenstackEntry, Tag("openstack")],
        Discriminator(_kind),
    ]
)


def remember(directory: Path, entry: Entry) -> None:
    """Add an entry to a run's ledger and see it on the disk before anything is made.

    Files that it names are remembered by their absolute paths, so that the target can be cleaned from anywhere.
    UserError when there is no room for the entry.
    """
    target = entry.target.model_copy(update=_anchored(entry.target))
    entry = entry.model_copy(update={**_anchored(entry), "target": target})
    try:
        with open(directory / FILE, "a", encoding="utf-8") as file:
            file.write(entry.model_dump_json() + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise UserError(
            "--out", str(directory), f"a directory with room in it ({problem.strerror})"
        ) from None


def entries(directory: Path) -> list[Entry]:
    """The ledger of a run; empty when it never made anything. UserError when it cannot be read."""
    path = directory / FILE
    try:
        *lines, rest = read_file(path, LARGEST_FILE).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise UserError("ledger", str(path), f"a readable file ({problem.strerror})") from None
    found: list[Entry] = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_ENTRIES.validate_json(line))
        except ValidationError:
            raise UserError("ledger", f"{path}:{number}", "a ledger entry") from None
    # A crash in the middle of the write: nothing was made yet under that entry.
    with contextlib.suppress(ValidationError):
        found.append(_ENTRIES.validate_json(rest))
    return found


def _anchored(part: BaseModel) -> dict[str, Path]:
    """The files that a part of an entry names, by their absolute paths."""
    return {name: value.absolute() for name, value in part if isinstance(value, Path)}
