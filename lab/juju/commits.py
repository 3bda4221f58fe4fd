"""Uniter.CommitHookChanges: all that a hook has changed, in one request which is done as a whole or not at all.

Recorded, with its refusals. A write of an application's settings or secrets needs its leader. A refresh of the
network's settings is a write into each relation's (domain/unitstate/state of Juju 4.0). Storage is not simulated.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from lab.juju.agents import keep_state
from lab.juju.callers import leads, own_unit, relation_of
from lab.juju.methods import method
from lab.juju.model import Application, Unit
from lab.juju.refusals import Refused, not_leader, permission_denied
from lab.juju.relation import Relation
from lab.juju.rpc import Call, entries, for_each
from lab.juju.secret_store import Secret, new_id, secret_id
from lab.juju.unit_secrets import check_new, find_managed

_NO_ADDRESSES = {"egress-subnets": "", "ingress-address": ""}


@method("Uniter", "CommitHookChanges")
def _commit_hook_changes(call: Call) -> dict[str, Any]:
    def commit(changes: dict[str, Any]) -> dict[str, Any]:
        unit = own_unit(call, str(changes["tag"]))
        if any(part["tag"] != changes["tag"] for part in _with_tags(changes)):
            raise permission_denied()
        settings = _settings(call, unit, changes)
        secrets = _Secrets(call, unit, changes)
        needs_leader = secrets.need_leader or any(application for _, _, application in settings)
        if needs_leader and not leads(call, unit):
            raise not_leader()
        secrets.commit()
        for relation, own, of_application in settings:
            call.model.write_settings(relation, unit.name, own, of_application)
        if changes.get("unit-state"):
            keep_state(unit, changes["unit-state"])
        _move_ports(call.model.applications[unit.application], unit, changes)
        return {}

    return {"results": for_each(call.params["args"], commit)}


def _with_tags(changes: dict[str, Any]) -> list[dict[str, Any]]:
    parts = [*entries(changes, "open-ports"), *entries(changes, "close-ports")]
    return [*parts, changes["unit-state"]] if changes.get("unit-state") else parts


# -- relations -----------------------------------------------------------------------------------


def _settings(
    call: Call, unit: Unit, changes: dict[str, Any]
) -> list[tuple[Relation, dict[str, str], dict[str, str]]]:
    """Return what is written: relations, each with the unit's and the application's settings."""
    written: dict[int, tuple[Relation, dict[str, str], dict[str, str]]] = {}
    for part in entries(changes, "relation-unit-settings"):
        if part["unit"] != changes["tag"]:
            raise permission_denied()
        relation = relation_of(call, unit, part["relation"])
        if unit.name not in relation.in_scope:
            raise Refused(
                f'update relation settings: setting relation settings for relation "{uuid4()}": relation '
                f'unit/application not found for unit "{uuid4()}" and relation "{uuid4()}"',
                "not found",
            )
        written[relation.id] = (relation, part.get("settings") or {}, part.get("application-settings") or {})
    if changes.get("update-network-info"):
        for relation in call.model.relations_of(unit.application):
            if unit.name in relation.in_scope:
                _, own, of_application = written.get(relation.id, (relation, {}, {}))
                written[relation.id] = (relation, own | _NO_ADDRESSES, of_application)
    return list(written.values())


# -- ports ---------------------------------------------------------------------------------------


def _move_ports(application: Application, unit: Unit, changes: dict[str, Any]) -> None:
    for part in entries(changes, "open-ports"):
        endpoint, port = _endpoint(application, unit, part), _port(part)
        if not endpoint:
            for others in unit.ports.values():
                others.discard(port)
        if port not in unit.ports.get("", ()):
            unit.ports.setdefault(endpoint, set()).add(port)
    for part in entries(changes, "close-ports"):
        endpoint, port = _endpoint(application, unit, part), _port(part)
        if endpoint and port in unit.ports.get("", ()):  # it stays open for all the others
            unit.ports[""].discard(port)
            for other in application.charm.endpoints:
                unit.ports.setdefault(other, set()).add(port)
        for name, ports in unit.ports.items():
            if endpoint in ("", name):
                ports.discard(port)


def _endpoint(application: Application, unit: Unit, part: dict[str, Any]) -> str:
    endpoint = str(part.get("endpoint") or "")
    if endpoint and endpoint not in application.charm.endpoints:
        raise Refused(
            f'update ports: looking up relation endpoint uuids for unit "{uuid4()}": invalid endpoint(s); '
            f"[{endpoint}] does exist on unit {uuid4()}"
        )
    return endpoint


def _port(part: dict[str, Any]) -> str:
    """Write a range of ports as status shows it: "80/tcp", "8000-8010/udp", "icmp"."""
    first, last, protocol = part["from-port"], part["to-port"], str(part["protocol"]).lower()
    if protocol == "icmp":
        return protocol
    return f"{first}/{protocol}" if first == last else f"{first}-{last}/{protocol}"


# -- secrets -------------------------------------------------------------------------------------


class _Secrets:
    """A commit's changes of secrets, checked before any is made."""

    def __init__(self, call: Call, unit: Unit, changes: dict[str, Any]) -> None:
        self._store = call.model.secrets
        self._unit = unit
        self._creates = entries(changes, "secret-creates")
        for create in self._creates:
            check_new(call, create)
        new = {secret_id(create["uri"]) for create in self._creates if create.get("uri")}

        def managed(key: str, doing: str) -> list[tuple[dict[str, Any], Secret | None]]:
            try:
                return [
                    (
                        part,
                        None if secret_id(part["uri"]) in new else find_managed(call, unit, str(part["uri"])),
                    )
                    for part in entries(changes, key)
                ]
            except Refused as refusal:
                raise Refused(f"{doing}: {refusal.message}", refusal.code) from None

        self._updates = managed("secret-updates", "updating secrets")
        self._grants = managed("secret-grants", "granting secrets access")
        self._revokes = managed("secret-revokes", "revoking secrets access")
        self._deletes = managed("secret-deletes", "removing secrets")
        self._track: list[str] = changes.get("secret-track-latest") or []
        touched = [*self._updates, *self._grants, *self._revokes, *self._deletes]
        owners = [secret.owner for _, secret in touched if secret is not None]
        owners += [str(create["owner-tag"]) for create in self._creates]
        self.need_leader = any(owner.startswith("application-") for owner in owners)

    def commit(self) -> None:
        store = self._store
        for create in self._creates:
            uri = str(create.get("uri") or f"secret:{new_id()}")
            try:
                store.create(str(create["owner-tag"]), create, uri)
            except Refused as refusal:
                led = "executing leadership func: " if self.need_leader else ""
                message = f'{led}create secrets: creating secret "{secret_id(uri)}": {refusal.message}'
                raise Refused(message, refusal.code) from None
        for part, secret in self._updates:
            store.update(secret or store.find(part["uri"]), part)
        for part, secret in self._grants:
            scope = str(part.get("scope-tag") or "")
            (secret or store.find(part["uri"])).grants |= dict.fromkeys(part["subject-tags"], scope)
        for part, secret in self._revokes:
            for subject in part["subject-tags"]:
                (secret or store.find(part["uri"])).grants.pop(subject, None)
        for uri in self._track:
            store.consume(store.find(uri), self._unit.name, True, False)
        for part, secret in self._deletes:
            if secret is not None:
                store.remove(secret, part.get("revisions") or [])
