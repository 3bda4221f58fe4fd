"""Reads and writes relation data. Reading raises nothing but NotThere, whatever others wrote."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
from collections.abc import Mapping

import ops

logger = logging.getLogger(__name__)


class NotThere(Exception):
    """Relation data are missing or unusable. The message says what to do in one line, without secrets."""


def shown(text: str) -> str:
    """Make a text of others fit for a message: one line of at most 80 printable characters.

    A misplaced private key is not shown.
    """
    if "PRIVATE KEY" in text:
        return "(not shown)"
    line = " ".join("".join(mark if mark.isprintable() else " " for mark in text[:500]).split())
    return line if len(line) <= 80 else line[:77] + "..."


def related(charm: ops.CharmBase, name: str) -> list[ops.Relation]:
    """Return the relations of this name, the oldest first; empty if the charm has no such endpoint."""
    if name not in charm.meta.relations:
        return []
    return sorted(charm.model.relations[name], key=lambda relation: relation.id)


def spoken(charm: ops.CharmBase, name: str) -> list[ops.Relation]:
    """Return the relations of this name whose own bags may be used: one for each other application.

    It is the hook's own relation, otherwise the newest. Juju 4.0 still names a relation whose other application was
    removed by force. It finds our bags by endpoint names, so a dead relation has the same bags as its successor. Juju
    stores all writes when a hook ends. If one bag has two ids, it refuses them, and the hook fails.
    """
    own_id = os.environ.get("JUJU_RELATION_ID", "").rpartition(":")[2]
    newest = {
        relation.app.name: relation
        for relation in sorted(related(charm, name), key=lambda each: (str(each.id) == own_id, each.id))
    }
    return sorted(newest.values(), key=lambda relation: relation.id)


def of_app(relation: ops.Relation) -> dict[str, str]:
    """Return what the other application's leader wrote; empty if it wrote nothing, or it cannot be read."""
    return _read(relation, relation.app)


def of_units(relation: ops.Relation) -> list[tuple[ops.Unit, dict[str, str]]]:
    """Return what each of the other units wrote, in the order of their numbers."""
    units = sorted(relation.units, key=_by_number)
    return [(unit, _read(relation, unit)) for unit in units]


def of_unit(relation: ops.Relation, unit: ops.Unit) -> dict[str, str]:
    """Return what one of the other units wrote; empty if it wrote nothing, or it cannot be read."""
    return _read(relation, unit)


def first_with(bags: list[dict[str, str]], *keys: str) -> dict[str, str] | None:
    """Return the first of the bags with a text for each of these keys; None without one."""
    return next((bag for bag in bags if all(bag.get(key, "").strip() for key in keys)), None)


def own(relation: ops.Relation, entity: ops.Unit | ops.Application) -> dict[str, str]:
    """Return what this side wrote; empty if it cannot be read: only the leader may read its application's bag."""
    return _read(relation, entity)


def write(relation: ops.Relation, entity: ops.Unit | ops.Application, content: Mapping[str, str]) -> None:
    """Write only what changed, because each write runs a hook on every unit at the other end.

    An empty text removes a key.
    """
    bag = relation.data[entity]
    for key, value in content.items():
        if bag.get(key, "") != value:
            bag[key] = value


def send(relation: ops.Relation, entity: ops.Unit | ops.Application, content: Mapping[str, str]) -> None:
    """Write what changed. If the relation refuses it, only log that, so that the hook goes on."""
    try:
        write(relation, entity, content)
    except ops.ModelError as refused:  # such as a relation that is gone, or leadership lost while we write
        logger.warning("%s:%s: nothing was written: %s", relation.name, relation.id, reason(refused))


def reason(refused: ops.ModelError) -> str:
    """Return why Juju refused something, in one line. Juju 4.0.15 often gives no text."""
    return " ".join(str(refused).split()) or "Juju gave no reason"


def host_and_port(name: str, host: str, port: str) -> str:
    """Join host and port, with an IPv6 address in brackets.

    Raises NotThere, which begins with the relation's `name`, if they are not a host and a port.
    """
    plain = host.strip().removeprefix("[").removesuffix("]")
    if not _is_host(plain) or not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise NotThere(f"{name}: {shown(f'{host} {port}')}: expected a host and a port")
    return f"[{plain}]:{port}" if ":" in plain else f"{plain}:{port}"


def _is_host(text: str) -> bool:
    if ":" not in text:
        return bool(re.fullmatch(r"[A-Za-z0-9._-]+", text))
    address, _, zone = text.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return zone.isalnum() or "%" not in text


def own_address(charm: ops.CharmBase, relation: ops.Relation | str) -> str:
    """Return this unit's address in the network of a relation or endpoint; empty if Juju knows none (yet)."""
    try:
        network = charm.model.get_binding(relation).network
    except ops.ModelError:
        return ""
    return str(network.ingress_address or network.bind_address or "")


def _read(relation: ops.Relation, entity: ops.Unit | ops.Application | None) -> dict[str, str]:
    try:
        return dict(relation.data[entity]) if entity is not None else {}
    except (KeyError, ops.ModelError):  # just removed, or not visible to this unit
        return {}


def _by_number(unit: ops.Unit) -> tuple[str, int]:
    application, _, number = unit.name.rpartition("/")
    return application, int(number) if number.isdigit() else 0
