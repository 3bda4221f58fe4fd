"""A model's secrets: revisions, owners, consumers, grants and rotation.

The rules are those of Juju 4.0 (domain/secret and domain/unitstate; from source). The owner of a secret is a unit, an
application, whose leader manages it, or the model: a user's. A consumer keeps the revision that it first saw until it
refreshes. A revision below the latest that nobody keeps is obsolete.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from lab.juju.refusals import Refused
from lab.juju.statuses import now
from lab.juju.watchers import Topics

_ALPHABET = "0123456789abcdefghijklmnopqrstuv"  # of xid
ROTATES = {
    "hourly": timedelta(hours=1),
    "daily": timedelta(days=1),
    "weekly": timedelta(days=7),
    "monthly": timedelta(days=30),
    "quarterly": timedelta(days=91),
    "yearly": timedelta(days=365),
}
"""The policies that rotate. Juju counts the last three by the calendar."""


@dataclass(slots=True)
class Revision:
    """One content of a secret, with values in base64 as they came."""

    number: int
    data: dict[str, str]
    expires: str = ""
    """When it expires; empty for never."""
    created: str = field(default_factory=now)


@dataclass(slots=True)
class Consumer:
    """The revision that a unit keeps, and its own name for the secret."""

    revision: int
    label: str = ""


@dataclass(slots=True)
class Secret:
    """A secret. `owner` is a tag; `grants` are scopes by the tags of those who may view it."""

    id: str
    owner: str
    label: str = ""
    description: str = ""
    policy: str = ""
    rotates_at: datetime | None = None
    checksum: str = ""
    latest: int = 0
    auto_prune: bool = False
    revisions: dict[int, Revision] = field(default_factory=dict[int, Revision])
    consumers: dict[str, Consumer] = field(default_factory=dict[str, Consumer])
    grants: dict[str, str] = field(default_factory=dict[str, str])
    obsolete: dict[int, None] = field(default_factory=dict[int, None])
    created: str = field(default_factory=now)
    updated: str = field(default_factory=now)

    @property
    def uri(self) -> str:
        return f"secret:{self.id}"


class SecretStore:
    """The secrets of one model.

    Tells ("consumed-secrets", unit) of new revisions, ("obsolete-secrets", owner) and ("deleted-secrets", owner) of
    revisions as "id/number", ("rotation", owner) of ids with another time of rotation, and ("expiry", owner) of
    revisions with a time of expiry.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._owned: dict[str, dict[str, Secret]] = {}
        self._consumed: dict[str, dict[str, Secret]] = {}
        self.all: dict[str, Secret] = {}

    def find(self, uri: str) -> Secret:
        """Return a secret by "secret:ID", with or without the scheme. Raises Refused without one."""
        number = secret_id(uri)
        secret = self.all.get(number)
        if secret is None:
            raise Refused("secret not found", "secret not found")
        return secret

    def labelled(self, owner: str, label: str) -> Secret | None:
        """Return an owner's secret by its label; None without one."""
        return next((secret for secret in self.owned_by(owner) if label and secret.label == label), None)

    def owned_by(self, owner: str) -> list[Secret]:
        """Return an owner's secrets."""
        return list(self._owned.get(owner, {}).values())

    def create(self, owner: str, fields: dict[str, Any], uri: str = "") -> Secret:
        """Add a secret with its first revision, by the fields of the API (UpsertSecretArg)."""
        if not data_of(fields):
            raise Refused("empty secret value not valid", "not valid")
        if self.labelled(owner, str(fields.get("label") or "")) is not None:
            raise Refused(f'secret with label "{fields["label"]}" already exists')
        number = secret_id(uri) if uri else new_id()
        if number in self.all:
            raise Refused("secret already exists")
        secret = Secret(number, owner)
        self.all[number] = secret
        self._owned.setdefault(owner, {})[number] = secret
        self.update(secret, fields)
        return secret

    def update(self, secret: Secret, fields: dict[str, Any]) -> None:
        """Change what the fields name. Content makes a new revision, which the secret's consumers are told."""
        label = fields.get("label")
        if label is not None:
            there = self.labelled(secret.owner, str(label))
            if there is not None and there is not secret:
                raise Refused(f'secret with label "{label}" already exists')
            secret.label = str(label)
        secret.description = str(fields.get("description") or secret.description)
        secret.updated = now()
        if fields.get("auto-prune") is not None:
            secret.auto_prune = bool(fields["auto-prune"])
        data = data_of(fields)
        if data:
            secret.checksum = str(fields["content"].get("checksum") or "") or checksum(data)
            secret.latest += 1
            secret.revisions[secret.latest] = Revision(secret.latest, data)
            for unit, consumer in secret.consumers.items():
                if consumer.revision < secret.latest:
                    self._topics.tell(("consumed-secrets", unit), [secret.uri])
            self._look_for_obsolete(secret)
        expires = fields.get("expire-time")
        if expires is not None:
            secret.revisions[secret.latest].expires = str(expires)
            self._topics.tell(("expiry", secret.owner), [f"{secret.id}/{secret.latest}"])
        if fields.get("rotate-policy") is not None:
            self._rotate_by(secret, str(fields["rotate-policy"]))

    def rotated(self, secret: Secret, retry: timedelta | None) -> None:
        """Set when a secret rotates next, counted from the last due time: by its policy, or sooner if to `retry`."""
        if secret.rotates_at is not None:
            self._rotate_at(secret, secret.rotates_at + (retry or ROTATES[secret.policy]))

    def consume(self, secret: Secret, unit: str, refresh: bool, peek: bool, label: str = "") -> Revision:
        """Return the revision that a unit gets, and keep it as its own if it is the first, or if it refreshes."""
        consumer = secret.consumers.get(unit)
        if consumer is None or refresh:
            consumer = secret.consumers.setdefault(unit, Consumer(secret.latest))
            consumer.revision = secret.latest
            self._consumed.setdefault(unit, {})[secret.id] = secret
            self._look_for_obsolete(secret)
        if label:
            consumer.label = label
        return secret.revisions[secret.latest if peek else consumer.revision]

    def known_as(self, unit: str, label: str) -> Secret | None:
        """Return a secret by a consumer's own label; None without one."""
        consumed = self._consumed.get(unit, {}).values()
        return next((secret for secret in consumed if secret.consumers[unit].label == label), None)

    def outdated(self, unit: str) -> list[str]:
        """Return the URIs of the secrets with a newer revision than the one that a unit keeps."""
        consumed = self._consumed.get(unit, {}).values()
        return [secret.uri for secret in consumed if secret.consumers[unit].revision < secret.latest]

    def remove(self, secret: Secret, revisions: list[int]) -> None:
        """Remove some revisions, or with none named the secret."""
        gone = [number for number in revisions if secret.revisions.pop(number, None) is not None]
        for number in gone:
            secret.obsolete.pop(number, None)
        if revisions and secret.revisions:
            self._topics.tell(("deleted-secrets", secret.owner), [f"{secret.id}/{number}" for number in gone])
            return
        del self.all[secret.id]
        self._owned[secret.owner].pop(secret.id, None)
        for unit in secret.consumers:
            self._consumed.get(unit, {}).pop(secret.id, None)
        self._topics.tell(("deleted-secrets", secret.owner), [secret.id])

    def forget(self, tag: str, unit: str = "") -> None:
        """Remove what a removed unit or application owned and consumed."""
        for secret in self.owned_by(tag):
            self.remove(secret, [])
        self._owned.pop(tag, None)
        for secret in self._consumed.pop(unit, {}).values():
            secret.consumers.pop(unit, None)
            self._look_for_obsolete(secret)

    def _rotate_by(self, secret: Secret, policy: str) -> None:
        if policy not in ROTATES:
            secret.policy, secret.rotates_at = "" if policy == "never" else policy, None
            return
        sooner = secret.policy not in ROTATES or ROTATES[policy] < ROTATES[secret.policy]
        secret.policy = policy
        if sooner or secret.rotates_at is None:
            self._rotate_at(secret, datetime.now(UTC) + ROTATES[policy])

    def _rotate_at(self, secret: Secret, at: datetime) -> None:
        secret.rotates_at = at
        self._topics.tell(("rotation", secret.owner), [secret.id])

    def _look_for_obsolete(self, secret: Secret) -> None:
        kept = {consumer.revision for consumer in secret.consumers.values()} | {secret.latest}
        found = [
            number for number in secret.revisions if number not in kept and number not in secret.obsolete
        ]
        secret.obsolete.update(dict.fromkeys(found))
        if found:
            self._topics.tell(("obsolete-secrets", secret.owner), [f"{secret.id}/{one}" for one in found])


def new_id() -> str:
    """Return an id for a new secret: 12 random bytes in base 32, so that the last digit has one bit."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(19)) + secrets.choice("0g")


def secret_id(uri: str) -> str:
    """Return the id in a URI. Raises Refused if there is none."""
    number = uri.removeprefix("secret:").rpartition("/")[2]
    if len(number) != 20 or not set(number) <= set(_ALPHABET):
        raise Refused(f'secret URI "{uri}" not valid', "not valid")
    return number


def checksum(data: dict[str, str]) -> str:
    """Return the hash of a content, as the controller computes it for a user's secret."""
    return sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def data_of(fields: dict[str, Any]) -> dict[str, str]:
    """Return the content in the fields of the API; empty without any."""
    content: dict[str, Any] = fields.get("content") or {}
    return content.get("data") or {}
