"""The Secrets facade: secrets that users make in a model, and the list of all. Users see charms' secrets in it too.

Recorded. Contents are in the controller's own backend, "internal".
"""

from __future__ import annotations

from typing import Any

from lab.juju.methods import facade, method
from lab.juju.refusals import Refused
from lab.juju.rpc import Call, for_each
from lab.juju.secret_store import Secret, checksum, data_of, secret_id
from lab.juju.unit_secrets import described

facade("Secrets", "user")


@method("Secrets", "CreateSecrets", "write")
def _create(call: Call) -> dict[str, Any]:
    owner = _owner(call)

    def create(fields: dict[str, Any]) -> dict[str, Any]:
        if fields.get("owner-tag") not in ("", None, call.model.uuid):
            raise Refused(f'owner tag "{fields["owner-tag"]}" not valid', "not valid")
        _check_label(call, fields, None)
        return {"result": call.model.secrets.create(owner, _with_checksum(fields)).uri}

    return {"results": for_each(call.params["args"], create, {"result": ""})}


@method("Secrets", "UpdateSecrets", "write")
def _update(call: Call) -> dict[str, Any]:
    def update(fields: dict[str, Any]) -> dict[str, Any]:
        changes = ("rotate-policy", "expire-time", "description", "label", "params", "auto-prune")
        if all(fields.get(key) is None for key in changes) and not data_of(fields):
            raise Refused("at least one attribute to update must be specified")
        secret = _find(call, str(fields.get("uri") or ""), str(fields.get("existing-label") or ""))
        _check_label(call, fields, secret)
        call.model.secrets.update(secret, _with_checksum(fields))
        return {}

    return {"results": for_each(call.params["args"], update)}


@method("Secrets", "RemoveSecrets", "write")
def _remove(call: Call) -> dict[str, Any]:
    def remove(fields: dict[str, Any]) -> dict[str, Any]:
        secret = _find(call, str(fields.get("uri") or ""), str(fields.get("label") or ""))
        call.model.secrets.remove(secret, fields.get("revisions") or [])
        return {}

    return {"results": for_each(call.params["args"], remove)}


@method("Secrets", "GrantSecret", "write")
def _grant(call: Call) -> dict[str, Any]:
    return _change_access(call, True)


@method("Secrets", "RevokeSecret", "write")
def _revoke(call: Call) -> dict[str, Any]:
    return _change_access(call, False)


def _change_access(call: Call, granted: bool) -> dict[str, Any]:
    uri, label = str(call.params.get("uri") or ""), str(call.params.get("label") or "")
    if not uri and not label:
        raise Refused("must specify either URI or name")
    if uri:
        secret_id(uri)
    secret = _find(call, uri, label)

    def one(name: str) -> dict[str, Any]:
        if name not in call.model.applications:
            raise Refused(
                f'cannot change access to "{secret.uri}" for "{name}": application "{name}" not found'
            )
        if granted:
            secret.grants[f"application-{name}"] = f"model-{call.model.uuid}"
        else:
            secret.grants.pop(f"application-{name}", None)
        return {}

    return {"results": for_each(call.params["applications"], one)}


@method("Secrets", "ListSecrets", "read")
def _list(call: Call) -> dict[str, Any]:
    reveal = bool(call.params.get("show-secrets"))
    if reveal:
        call.require("admin")
    wanted: dict[str, Any] = call.params.get("filter") or {}
    if wanted.get("uri") is not None:
        found = [call.model.secrets.find(str(wanted["uri"]))]
    elif wanted.get("owner-tag") is not None:
        found = call.model.secrets.owned_by(str(wanted["owner-tag"]))
    else:
        found = list(call.model.secrets.all.values())
    if wanted.get("label") is not None:
        found = [secret for secret in found if secret.label == wanted["label"]]
    return {"results": [_shown(secret, wanted.get("revision"), reveal) for secret in found]}


def _shown(secret: Secret, revision: int | None, reveal: bool) -> dict[str, Any]:
    listed = [
        {
            "revision": one.number,
            "backend-name": "internal",
            "create-time": one.created,
            "update-time": one.created,
        }
        for one in secret.revisions.values()
        if revision in (None, one.number)
    ]
    shown = described(secret) | {"revisions": listed}
    if reveal:
        content = secret.revisions.get(secret.latest if revision is None else revision)
        missing = f"secret {secret.id} revision {revision} not found"
        error = {"error": {"message": missing, "code": "secret revision not found"}}
        shown["value"] = {"data": content.data} if content is not None else error
    return shown


def _find(call: Call, uri: str, label: str) -> Secret:
    """Return a secret by its URI, or a user's by its label."""
    if uri and label:
        raise Refused("must specify either URI or label but not both")
    if uri:
        return call.model.secrets.find(uri)
    if not label:
        raise Refused("must specify either URI or label")
    secret = call.model.secrets.labelled(_owner(call), label)
    if secret is None:
        raise Refused(
            f'getting user secret for label "{label}": secret with label "{label}" not found',
            "secret not found",
        )
    return secret


def _check_label(call: Call, fields: dict[str, Any], secret: Secret | None) -> None:
    label = str(fields.get("label") or "")
    there = call.model.secrets.labelled(_owner(call), label)
    if there is not None and there is not secret:
        raise Refused(f'secret with name "{label}" already exists', "already exists")


def _with_checksum(fields: dict[str, Any]) -> dict[str, Any]:
    data = data_of(fields)
    return fields | {"content": {"data": data, "checksum": checksum(data)}} if data else fields


def _owner(call: Call) -> str:
    return f"model-{call.model.uuid}"
