"""Finds the access to a target: from a relation, from the secret of config `credentials`, or from Juju itself.

The result has the fields of a plan's `target`, and the files that they name. The target itself interprets secrets
(tippingpoint.targets.secret); relation data are converted to the same form. The engine's own readers then check the
result in memory, so that a status can show a problem before a run begins. The content of a secret appears in no
message, log or relation data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import ops
from pydantic import ValidationError

from tippingpoint.errors import UserError
from tippingpoint.plan.kinds import section_of
from tippingpoint.targets.secret import PLACE, Reached, Secret, kinds_by_secret, secret_of
from tippingpoint.util.secret_files import read_yaml
from tippingpoint.util.text import listed
from tippingpoint_charm.relations import controller, etcd, keystone, lxd
from tippingpoint_charm.relations.databag import NotThere, shown
from tippingpoint_charm.secrets import NotGranted, how_to_add, read_any_secret, read_secret

_SECRET = "credentials"
"""The option that names a secret, and the source of the access in it."""
_A_SECRET = {"a YAML file with": "a secret with"}
"""Replaces the engine's name for a secret's file in messages."""
_ETCD_NAMES = {"etcd-ca.pem": "client_ca", "etcd-cert.pem": "client_cert", "etcd-key.pem": "client_key"}
"""The names of these files' contents in the relation `etcd`."""
_EXPECTED = "credentials: {}: expected the controller's in the secret, as {}"


@dataclass(frozen=True)
class TargetAccess:
    """The access to a target, or what is missing for it."""

    kind: str
    target: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of a plan's `target`; PLACE in a value stands for the directory with the files."""
    files: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Name and content of the files that `target` names, to be kept with mode 0600."""
    address: str = ""
    """The target's address, for people; empty if unknown."""
    missing: str = ""
    """What is missing and what to do about it, in one line; empty if nothing is."""
    awaits: bool = False
    """Whether the missing part may arrive without an event of Juju: a grant of the secret."""
    source: str = ""
    """The relation or option that it is from."""
    danger: str = ""
    """What is dangerous about it, for people; empty if nothing is."""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that `files` belong to."""
        return self.target


@dataclass(frozen=True)
class _Given:
    """The access data of one source."""

    content: Mapping[str, str] = field(repr=False)
    """The data, in the form of a secret for that target."""
    source: str = _SECRET
    """The relation or option that it is from."""
    projects: list[str] = field(default_factory=list[str])
    """The projects that runs may use; empty if runs create their own, or the target has none."""
    names: Mapping[str, str] | None = None
    """The source's names for what the engine calls otherwise; None if they are those of a secret."""
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where the source has a key of the content, for keys with another name there."""


def _nothing(_: ops.CharmBase) -> _Given | None:
    return None


def _as_it_is(_: ops.CharmBase, given: _Given) -> _Given:
    return given


@dataclass(frozen=True)
class _Related:
    """How relations, configuration and Juju give access to a kind of target, beside a secret."""

    read: Callable[[ops.CharmBase], _Given | None] = _nothing
    """Reads a relation, which takes precedence over a secret; None without a relation."""
    how: str = ""
    """The endpoints of that relation for `juju integrate`."""
    complete: Callable[[ops.CharmBase, _Given], _Given] = _as_it_is
    """Adds the data that a secret may leave out."""


def find_access(charm: ops.CharmBase, kind: str) -> TargetAccess:
    """Return the present access to a target of this kind, without changing anything.

    Wrong data in relations, secrets or configuration raise nothing: `missing` says what is wrong.
    """
    secret = secret_of(kind)
    if secret is None:
        known = ", ".join(kinds_by_secret())
        return TargetAccess(kind, missing=f"target: {kind[:40]!r}: expected one of {known}")
    related = _RELATED.get(kind, _Related())
    try:
        given = related.read(charm)
        if given is None:
            given = related.complete(charm, _of_secret(charm, secret, related.how))
        return _access(kind, secret, given, charm.app.planned_units())
    except NotGranted as why:
        return TargetAccess(kind, missing=str(why), awaits=True)
    except NotThere as why:
        return TargetAccess(kind, missing=str(why))


def _of_secret(charm: ops.CharmBase, secret: Secret[Any], how: str) -> _Given:
    """Read the secret that the configuration names. Raises NotThere, which says how to add one."""
    content = read_secret(charm, _SECRET, *secret.ways)
    if content is None:
        add = how_to_add(charm, _SECRET, secret.example)
        raise NotThere(f"juju integrate {charm.app.name}:{how}; or {add}" if how else add)
    return _Given(content)


def _access(kind: str, secret: Secret[Any], given: _Given, units: int) -> TargetAccess:
    """Convert access data to fields and files of the target. Raises NotThere if they are wrong."""
    try:
        reached = secret.reached(given.content, units)
    except UserError as wrong:
        place = given.places.get(wrong.field, f"{given.source}: {wrong.field}")
        raise NotThere(f"{place}: expected {wrong.accepted}") from None
    target = {"kind": kind, **reached.fields}
    if given.projects:
        target["projects"] = given.projects
    _check(secret, target, reached, given)
    return TargetAccess(
        kind, target, reached.files, reached.address, source=given.source, danger=reached.danger
    )


# Relations and Juju


def _complete_juju(charm: ops.CharmBase, given: _Given) -> _Given:
    """Add the related controller, or the one this unit is on. The login is always in the secret."""
    own_addresses, own_ca = _own_controller(charm)
    addresses = listed(given.content.get("addresses", "")) or controller.read(charm) or own_addresses
    if not addresses:
        raise NotThere(_EXPECTED.format("addresses", "this unit's agent.conf has none"))
    ours = not {*addresses}.isdisjoint(own_addresses)
    ca = given.content.get("cacert") or (own_ca if ours else "")
    if not ca:
        other = f"{addresses[0]} is not known to be the controller that this unit is on"
        raise NotThere(_EXPECTED.format("cacert", "this unit's agent.conf has none" if ours else other))
    return replace(given, content={**given.content, "addresses": ",".join(addresses), "cacert": ca})


def _own_controller(charm: ops.CharmBase) -> tuple[list[str], str]:
    """Return addresses and CA of the controller that this unit is on; empty if Juju's agent does not have them.

    Only two entries of the file of Juju's agent, beside the charm's directory, are used. Its password is not: the
    leases of that agent would be measured together with the run's.
    """
    content: dict[str, Any] = {}
    with suppress(UserError):
        content = read_yaml("agent.conf", charm.charm_dir.parent / "agent.conf", "the agent's configuration")
    ca, listed = content.get("cacert"), content.get("apiaddresses")
    addresses = os.environ.get("JUJU_API_ADDRESSES", "").split()
    if not addresses and isinstance(listed, list):
        addresses = [each for each in cast("list[object]", listed) if isinstance(each, str)]
    return addresses, ca if isinstance(ca, str) else ""


def _related_lxd(charm: ops.CharmBase) -> _Given | None:
    """Return the related LXD, with the projects that it trusts this application for."""
    found = lxd.read(charm, _lxd_projects(charm))
    if found is None:
        return None
    content = {
        "addresses": found.addresses,
        "certificate": found.certificate,
        "client-certificate": found.client.certificate,
        "client-key": found.client.key,
    }
    return _Given(content, lxd.NAME, found.projects)


def _complete_lxd(charm: ops.CharmBase, given: _Given) -> _Given:
    """Add the configured projects; without any, runs create their own."""
    projects = _lxd_projects(charm)
    return replace(given, projects=lxd.project_names(projects) if projects.strip() else [])


def _lxd_projects(charm: ops.CharmBase) -> str:
    configured = charm.config.get("lxd-projects", "")
    return configured if isinstance(configured, str) else ""


def _related_etcd(charm: ops.CharmBase) -> _Given | None:
    """Return the related etcd, by either relation."""
    found, source, names = etcd.read_db(charm), etcd.DB, _ETCD_NAMES
    if found is None:
        found, source, names = etcd.read_client(charm), etcd.CLIENT, None
    if found is None:
        return None
    # A URL that contains a space must not become two URLs.
    content = {
        "endpoints": ",".join(url.replace(" ", "%20") for url in found.endpoints),
        "cacert": found.ca,
        "cert": found.certificate,
        "key": found.key,
    }
    return _Given(content, source, names=names)


def _related_openstack(charm: ops.CharmBase) -> _Given | None:
    """Return the user of the related Keystone. A secret with only `cacert` adds the CA, which Keystone cannot give."""
    found = keystone.read(charm)
    if found is None:
        return None
    own = read_any_secret(charm, _SECRET) or {}
    by_secret = [*own] == ["cacert"]
    content = {**found.content, "cacert": own["cacert"] if by_secret else found.ca}
    place = "credentials: cacert" if by_secret else f"{keystone.NAME}: ca_cert"
    return _Given(content, keystone.NAME, places={"cacert": place})


_RELATED: dict[str, _Related] = {
    "juju": _Related(complete=_complete_juju),
    "lxd": _Related(_related_lxd, "lxd lxd:https", _complete_lxd),
    "etcd": _Related(_related_etcd, "etcd-client charmed-etcd"),
    "openstack": _Related(_related_openstack, "identity-credentials keystone"),
}
"""The kinds of target with relations or data from Juju. All others are reached by a secret alone."""


# Checks


def _check(secret: Secret[Any], target: Mapping[str, Any], reached: Reached, given: _Given) -> None:
    """Check these files with the engine's reader. Raises NotThere with its message, without their content."""
    with _in_memory(reached.files) as paths:
        fields = {
            name: paths.get(str(value).removeprefix(f"{PLACE}/"), value) for name, value in target.items()
        }
        try:
            secret.read(section_of(str(target["kind"])).model_validate(fields), paths)
        except UserError as problem:
            names = {**_A_SECRET, **secret.names} if given.names is None else given.names
            value, accepted = (
                _as_given(str(said), paths, names) for said in (problem.value, problem.accepted)
            )
            shown_value = f"{shown(value)}: " if value else ""
            raise NotThere(f"{given.source}: {shown_value}expected {accepted}") from None
        except ValidationError as problem:  # in the target's fields, whose values are not shown
            first = problem.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            said = first["msg"].removeprefix("Value error, ")
            raise NotThere(": ".join(part for part in (given.source, where, said) if part)) from None


def _as_given(said: str, paths: Mapping[str, Path], names: Mapping[str, str]) -> str:
    """Translate the engine's message about its files into the names of the secret or relation."""
    for name, path in paths.items():
        said = said.removesuffix(f", in {path}")
        # The file's name is internal; it is shown only if there are several files.
        said = said.replace(str(path), name if len(paths) > 1 else "").strip()
    for ours, theirs in names.items():
        said = said.replace(ours, theirs)
    alone = re.fullmatch(r"\(([a-z-]+)\)", said)
    return alone[1] if alone is not None else said


@contextmanager
def _in_memory(files: Mapping[str, str]) -> Generator[dict[str, Path]]:
    """Yield paths of files with these contents and mode 0600, kept in memory only."""
    descriptors: dict[str, int] = {}
    try:
        for name, content in files.items():
            descriptors[name] = descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
            os.fchmod(descriptor, 0o600)
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content.encode())
        yield {name: Path(f"/proc/self/fd/{descriptor}") for name, descriptor in descriptors.items()}
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)
