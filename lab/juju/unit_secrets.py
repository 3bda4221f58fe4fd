"""The SecretsManager facade: secrets as units own and consume them. They make and change them by CommitHookChanges.

Recorded, but for revisions of one's own, what is deleted, and what expires: those are from source
(apiserver/facades/agent/secretsmanager and domain/secret of Juju 4.0). Contents are in the controller's own backend, so
that no reply names another. The watchers of rotation and expiry begin with an empty event, as there.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lab.juju.callers import leads, own_unit
from lab.juju.machines import unit_name, unit_tag
from lab.juju.methods import facade, method
from lab.juju.model import Unit
from lab.juju.refusals import Refused, not_found, permission_denied
from lab.juju.rpc import Call, for_each
from lab.juju.secret_store import Secret, data_of, new_id, secret_id
from lab.juju.statuses import moment
from lab.juju.watchers import Watcher, merge_names
from lab.juju.watching import watch

facade("SecretsManager", "unit")

_RETRY_ROTATION = timedelta(minutes=5)  # RotateRetryDelay of core/secrets


@method("SecretsManager", "CreateSecretURIs")
def _create_uris(call: Call) -> dict[str, Any]:
    count = int(call.params["count"])
    if count <= 0:
        raise Refused(f"secret URI count {count} not valid", "not valid")
    return {"results": [{"result": f"secret://{call.model.uuid}/{new_id()}"} for _ in range(count)]}


@method("SecretsManager", "GetSecretBackendConfigs")
def _backends(call: Call) -> dict[str, Any]:
    controller = call.session.controller
    config = {
        "model-controller": controller.uuid,
        "model-uuid": call.model.uuid,
        "model-name": call.model.name,
        "draining": False,
        "config": {"type": "controller"},
    }
    return {"active-id": controller.uuid, "results": {controller.uuid: config}}


@method("SecretsManager", "GetSecretContentInfo")
def _content(call: Call) -> dict[str, Any]:
    def read(args: dict[str, Any]) -> dict[str, Any]:
        unit = _caller(call)
        label = str(args.get("label") or "")
        secret = _wanted(call, unit, str(args.get("uri") or ""), label)
        if not _reads(unit, secret):
            raise Refused(f'"{unit.name}" is not allowed to read this secret', "unauthorized access")
        owns = secret.owner in _tags(unit)
        store = call.model.secrets
        used = store.known_as(unit.name, label) if label and not owns else None
        if used not in (None, secret):
            raise Refused(
                "getting latest secret revision: "
                "UNIQUE constraint failed: secret_unit_consumer.label, secret_unit_consumer.unit_uuid"
            )
        refresh, peek = bool(args.get("refresh")), bool(args.get("peek"))
        revision = store.consume(secret, unit.name, refresh, peek, "" if owns else label)
        return {"content": {"data": revision.data}}

    return {"results": for_each(call.params["args"], read, {"content": {}})}


def _wanted(call: Call, unit: Unit, uri: str, label: str) -> Secret:
    store = call.model.secrets
    if uri:
        secret_id(uri)
        try:
            return store.find(uri)
        except Refused as refusal:
            raise Refused(f"getting latest secret revision: {refusal.message}", refusal.code) from None
    if not label:
        raise Refused("both uri and label are empty", "not valid")
    owned = next((there for tag in _tags(unit) if (there := store.labelled(tag, label))), None)
    found = owned or store.known_as(unit.name, label)
    if found is None:
        raise not_found(f'secret URI for consumer label "{label}"')
    return found


@method("SecretsManager", "GetSecretRevisionContentInfo")
def _revisions(call: Call) -> dict[str, Any]:
    unit, secret = _caller(call), call.model.secrets.find(str(call.params["uri"]))

    def read(number: int) -> dict[str, Any]:
        if not _reads(unit, secret):
            raise Refused(f'"{unit.name}" is not allowed to read this secret', "unauthorized access")
        if number not in secret.revisions:
            raise Refused(f"secret {secret.id} revision {number} not found", "secret revision not found")
        return {"content": {"data": secret.revisions[number].data}}

    return {"results": for_each(call.params["revisions"], read, {"content": {}})}


@method("SecretsManager", "GetConsumerSecretsRevisionInfo")
def _consumed(call: Call) -> dict[str, Any]:
    consumer = unit_name(str(call.params["consumer-tag"]))
    if consumer is None:
        raise Refused(f'"{call.params["consumer-tag"]}" is not a valid unit tag')

    def read(uri: str) -> dict[str, Any]:
        secret = call.model.secrets.find(uri)
        there = secret.consumers.get(consumer)
        if there is None:
            raise Refused(
                f'secret consumer for "{secret.id}" and unit "{consumer}" not found',
                "secret consumer not found",
            )
        owned = secret.owner == f"application-{consumer.partition('/')[0]}"
        return {"revision": secret.latest, "label": there.label or (secret.label if owned else "")}

    return {"results": for_each(call.params["uris"], read, {"revision": 0, "label": ""})}


@method("SecretsManager", "GetSecretMetadata")
def _metadata(call: Call) -> dict[str, Any]:
    unit = _caller(call)
    owners = _tags(unit) if leads(call, unit) else _tags(unit)[:1]
    owned = [secret for tag in owners for secret in call.model.secrets.owned_by(tag)]
    return {"results": [described(secret) for secret in owned] or None}


# -- watchers ------------------------------------------------------------------------------------


@method("SecretsManager", "WatchConsumedSecretsChanges")
def _watch_consumed(call: Call) -> dict[str, Any]:
    def begin(entity: dict[str, Any]) -> dict[str, Any]:
        name = unit_name(str(entity["tag"]))
        if name is None or name.partition("/")[0] != call.entity.id.partition("/")[0]:
            raise permission_denied()
        number = watch(call, Watcher(merge_names), ("consumed-secrets", name))
        outdated = call.model.secrets.outdated(name)
        return {"watcher-id": number} | ({"changes": outdated} if outdated else {})

    return {"results": for_each(call.params["entities"], begin, {"watcher-id": ""})}


@method("SecretsManager", "WatchObsolete")
def _watch_obsolete(call: Call) -> dict[str, Any]:
    owners = _owners(call)
    number = watch(call, Watcher(merge_names), *(("obsolete-secrets", owner) for owner in owners))
    owned = [secret for owner in owners for secret in call.model.secrets.owned_by(owner)]
    there = [f"{secret.id}/{revision}" for secret in owned for revision in secret.obsolete]
    return {"watcher-id": number} | ({"changes": there} if there else {})


@method("SecretsManager", "WatchDeleted")
def _watch_deleted(call: Call) -> dict[str, Any]:
    owners = _owners(call)
    return {
        "watcher-id": watch(call, Watcher(merge_names), *(("deleted-secrets", owner) for owner in owners))
    }


@method("SecretsManager", "WatchSecretsRotationChanges")
def _watch_rotation(call: Call) -> dict[str, Any]:
    owners = _owners(call)
    watcher = Watcher(merge_names, lambda ids: _rotations(call, ids))
    number = watch(call, watcher, *(("rotation", owner) for owner in owners))
    for owner in owners:
        for secret in call.model.secrets.owned_by(owner):
            if secret.rotates_at is not None:
                watcher.changed([secret.id])
    return {"watcher-id": number, "changes": []}


def _rotations(call: Call, ids: list[str]) -> list[dict[str, Any]]:
    there = [secret for one in ids if (secret := call.model.secrets.all.get(one)) is not None]
    return [
        {"uri": secret.uri, "revision": secret.latest, "next-trigger-time": moment(secret.rotates_at)}
        for secret in there
        if secret.rotates_at is not None
    ]


@method("SecretsManager", "WatchSecretRevisionsExpiryChanges")
def _watch_expiry(call: Call) -> dict[str, Any]:
    owners = _owners(call)
    watcher = Watcher(merge_names, lambda revisions: _expiries(call, revisions))
    number = watch(call, watcher, *(("expiry", owner) for owner in owners))
    for owner in owners:
        for secret in call.model.secrets.owned_by(owner):
            watcher.changed([f"{secret.id}/{one.number}" for one in secret.revisions.values() if one.expires])
    return {"watcher-id": number, "changes": []}


def _expiries(call: Call, revisions: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in revisions:
        name, _, number = one.partition("/")
        secret = call.model.secrets.all.get(name)
        revision = secret.revisions.get(int(number)) if secret is not None else None
        if secret is not None and revision is not None:
            trigger = {"revision": revision.number, "next-trigger-time": revision.expires}
            found.append({"uri": secret.uri, **trigger})
    return found


@method("SecretsManager", "SecretsRotated")
def _rotated(call: Call) -> dict[str, Any]:
    def note(args: dict[str, Any]) -> dict[str, Any]:
        unit = _caller(call)
        secret = find_managed(call, unit, str(args["uri"]))
        if secret is None:
            raise Refused(f'secret "{args["uri"]}" not found', "secret not found")
        retry = not args.get("skip") and secret.latest == args.get("original-revision")
        call.model.secrets.rotated(secret, _RETRY_ROTATION if retry else None)
        return {}

    return {"results": for_each(call.params["args"], note)}


def _owners(call: Call) -> list[str]:
    """Return the tags of owners whose secrets are watched: the unit's own, and its application's for the leader."""
    tags = [str(entity["tag"]) for entity in call.params["entities"]]
    unit = _caller(call)
    for tag in tags:
        if tag not in _tags(unit):
            raise permission_denied()
        if tag.startswith("application-") and not leads(call, unit):
            raise Refused(f'"{unit.name}" is not leader of "{unit.application}"')
    return tags


# -- whose ---------------------------------------------------------------------------------------


def check_new(call: Call, fields: dict[str, Any]) -> None:
    """Raise Refused if the unit that asks may not create such a secret."""
    if not data_of(fields):
        raise Refused("creating secrets: empty secret value not valid", "not valid")
    if str(fields["owner-tag"]) not in _tags(_caller(call)):
        raise Refused("creating secrets: permission denied")


def find_managed(call: Call, unit: Unit, uri: str) -> Secret | None:
    """Return a secret that a unit may change; None if it is gone. Raises Refused if the unit may not."""
    try:
        secret = call.model.secrets.find(uri)
    except Refused as refusal:
        if refusal.code == "secret not found":
            return None
        raise
    own, of_application = _tags(unit)
    if secret.owner == own or (secret.owner == of_application and leads(call, unit)):
        return secret
    raise Refused(f'"{unit.name}" is not allowed to manage this secret', "unauthorized access")


def described(secret: Secret) -> dict[str, Any]:
    """Return a secret's metadata in the form of the API."""
    shown: dict[str, Any] = {"uri": secret.uri, "version": 1, "owner-tag": secret.owner}
    shown |= {"rotate-policy": secret.policy or "never"}
    if secret.rotates_at is not None:
        shown["next-rotate-time"] = moment(secret.rotates_at)
    shown |= {
        key: text for key, text in (("description", secret.description), ("label", secret.label)) if text
    }
    shown |= {
        "latest-revision": secret.latest,
        "latest-revision-checksum": secret.checksum,
        "create-time": secret.created,
        "update-time": secret.updated,
    }
    if secret.grants:
        shown["access"] = [
            {"target-tag": subject, "scope-tag": scope, "role": "view"}
            for subject, scope in secret.grants.items()
        ]
    return shown


def _caller(call: Call) -> Unit:
    return own_unit(call, unit_tag(call.entity.id))


def _tags(unit: Unit) -> list[str]:
    """Return the tags of a unit and of its application."""
    return [unit_tag(unit.name), f"application-{unit.application}"]


def _reads(unit: Unit, secret: Secret) -> bool:
    return secret.owner in _tags(unit) or any(tag in secret.grants for tag in _tags(unit))
