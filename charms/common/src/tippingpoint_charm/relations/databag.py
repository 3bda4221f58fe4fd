"""Reading what others wrote into a relation: whatever it is, it never raises anything but NotThere."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
from collections.abc import Mapping

import ops

logger = logging.getLogger(__name__)


class NotThere(Exception):
    """What is missing, or cannot be used, and what to do about it: one line, without secrets."""


def shown(text: str) -> str:
    """Text of others as a message may have it: one line, at most 80 characters, of those that can be printed.

    A private key that somebody put where none belongs is not shown.
    """
    if "PRIVATE KEY" in text:
        return "(not shown)"
    line = " ".join("".join(mark if mark.isprintable() else " " for mark in text[:500]).split())
    return line if len(line) <= 80 else line[:77] + "..."


def related(charm: ops.CharmBase, name: str) -> list[ops.Relation]:
    """The relations of this name, the oldest first; none where the charm has no such endpoint."""
    if name not in charm.meta.relations:
        return []
    return sorted(charm.model.relations[name], key=lambda relation: relation.id)


def spoken(charm: ops.CharmBase, name: str) -> list[ops.Relation]:
    """The relations of this name whose bags of ours may be read and written: one for each other application, which is
    the hook's own relation, else the newest.

    Juju 4.0 goes on naming a relation whose other application was removed by force. It finds our bags by the names of
    endpoints, so those of the dead relation are the ones of the relation that came after it. What a hook read or wrote
    is stored when it ends: with one bag under two ids Juju refuses all of it, and the hook has failed.
    """
    own_id = os.environ.get("JUJU_RELATION_ID", "").rpartition(":")[2]
    newest = {
        relation.app.name: relation
        for relation in sorted(related(charm, name), key=lambda each: (str(each.id) == own_id, each.id))
    }
    return sorted(newest.values(), key=lambda relation: relation.id)


def of_app(relation: ops.Relation) -> dict[str, str]:
    """What the other application's leader wrote; empty where that is nothing, or cannot be read."""
    return _read(relation, relation.app)


def of_units(relation: ops.Relation) -> list[tuple[ops.Unit, dict[str, str]]]:
    """What each of the other units wrote, in the order of their numbers."""
    units = sorted(relation.units, key=_by_number)
    return [(unit, _read(relation, unit)) for unit in units]


def of_unit(relation: ops.Relation, unit: ops.Unit) -> dict[str, str]:
    """What one of the other units wrote; empty likewise."""
    return _read(relation, unit)


def first_with(bags: list[dict[str, str]], *keys: str) -> dict[str, str] | None:
    """The first of the bags that has all of these keys, each with some text."""
    return next((bag for bag in bags if all(bag.get(key, "").strip() for key in keys)), None)


def own(relation: ops.Relation, entity: ops.Unit | ops.Application) -> dict[str, str]:
    """What we wrote ourselves; empty where that cannot be read, as other units' leaders only may."""
    return _read(relation, entity)


def write(relation: ops.Relation, entity: ops.Unit | ops.Application, content: Mapping[str, str]) -> None:
    """Write what differs from what is there: an equal write would be a hook of every unit at the other end for
    nothing. An empty text removes a key."""
    bag = relation.data[entity]
    for key, value in content.items():
        if bag.get(key, "") != value:
            bag[key] = value


def send(relation: ops.Relation, entity: ops.Unit | ops.Application, content: Mapping[str, str]) -> None:
    """Write the same; a relation that refuses it keeps neither the hook nor the other relations from theirs."""
    try:
        write(relation, entity, content)
    except ops.ModelError as refused:  # such as a relation that is gone, or leadership lost while we write
        logger.warning("%s:%s: nothing was written: %s", relation.name, relation.id, refused)


def host_and_port(name: str, host: str, port: str) -> str:
    """Both as one text, an IPv6 address in brackets; NotThere, which begins with the relation's name, where they are
    not what they should be."""
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
    """Our address in the network that a relation, or an endpoint, is bound to; empty where Juju knows none (yet)."""
    try:
        network = charm.model.get_binding(relation).network
    except ops.ModelError:
        return ""
    return str(network.ingress_address or network.bind_address or "")


def _read(relation: ops.Relation, entity: ops.Unit | ops.Application | None) -> dict[str, str]:
    try:
        return dict(relation.data[entity]) if entity is not None else {}
    except (KeyError, ops.ModelError):  # gone while we look, or not ours to see
        return {}


def _by_number(unit: ops.Unit) -> tuple[str, int]:
    application, _, number = unit.name.rpartition("/")
    return application, int(number) if number.isdigit() else 0
