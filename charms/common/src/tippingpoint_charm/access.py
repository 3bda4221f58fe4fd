"""What access to a target there is: from a relation, from the secret of config `credentials`, or from Juju itself.

The result is what a plan's `target` needs and the files it names. What is found is tried with the engine's own
readers first, in memory, so that a status can say what is wrong before a run begins. What is in a secret is shown
nowhere: not in a message, a log or relation data.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import ops
import yaml
from pydantic import ValidationError

from tippingpoint.agent.client import PLACE
from tippingpoint.errors import UserError
from tippingpoint.util.secret_files import read_yaml
from tippingpoint_charm.relations import controller, etcd, keystone, lxd
from tippingpoint_charm.relations.databag import NotThere, shown
from tippingpoint_charm.secrets import (
    Keys,
    NotGranted,
    how_to_add,
    read_any_secret,
    read_secret,
)

_KEYS = {
    "`ca` or `ca-file`": "`cacert`",
    "client_certificate": "client-certificate",
    "client_key": "client-key",
    "etcd-ca.pem": "cacert",
    "etcd-cert.pem": "cert",
    "etcd-key.pem": "key",
    "a YAML file with": "a secret with",
}
"""What the engine's files call it, and what a secret does."""
_ETCD_CA = {"etcd-ca.pem": "client_ca", "etcd-cert.pem": "client_cert", "etcd-key.pem": "client_key"}
"""The same for the relation `etcd`."""
_CLOUD = "tippingpoint"
"""The one cloud of the clouds.yaml that we write."""
_OPENSTACK_CA = "openstack-ca.pem"


@dataclass(frozen=True)
class TargetAccess:
    """How a target is reached, or what is missing for it."""

    kind: str
    target: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of a plan's `target`; PLACE in a value stands for the directory with the files."""
    files: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Name and content of the files that `target` names, to be kept with mode 0600."""
    missing: str = ""
    """What is missing and what to do about it, in one line; empty when nothing is."""
    awaits: bool = False
    """Whether what is missing may come without an event of Juju's: a grant of the secret."""
    source: str = ""
    """The relation or configuration that it is from."""


_EXPECTED = "credentials: {}: expected the controller's in the secret, as {}"


def find_access(charm: ops.CharmBase, kind: str) -> TargetAccess:
    """The access to a target of this kind (juju, lxd, etcd, openstack) as it is now; it changes nothing.

    Nothing that others wrote into relations, secrets or configuration raises: `missing` says it.
    """
    find = _FINDERS.get(kind)
    if find is None:
        return TargetAccess(kind, missing=f"target: {kind[:40]!r}: expected one of {', '.join(_FINDERS)}")
    try:
        return find(charm)
    except NotGranted as why:
        return TargetAccess(kind, missing=str(why), awaits=True)
    except NotThere as why:
        return TargetAccess(kind, missing=str(why))


def _juju(charm: ops.CharmBase) -> TargetAccess:
    """The related controller, or the one this unit is on; who we are there is always in the secret."""
    secret = read_secret(charm, "credentials", Keys(("user", "password"), ("addresses", "cacert")))
    if secret is None:
        raise NotThere(how_to_add(charm, "credentials", "user=NAME password#file=FILE"))
    own_addresses, own_ca = _own_controller(charm)
    addresses = _listed(secret.get("addresses", "")) or controller.read(charm) or own_addresses
    if not addresses:
        raise NotThere(_EXPECTED.format("addresses", "this unit's agent.conf has none"))
    ours = not {*addresses}.isdisjoint(own_addresses)
    ca = secret.get("cacert") or (own_ca if ours else "")
    if not ca:
        other = f"{addresses[0]} is not known to be the controller that this unit is on"
        raise NotThere(_EXPECTED.format("cacert", "this unit's agent.conf has none" if ours else other))
    content = {"addresses": addresses, "ca": ca, "user": secret["user"], "password": secret["password"]}
    target = {"kind": "juju", "credentials": f"{PLACE}/juju.yaml"}
    access = TargetAccess("juju", target, {"juju.yaml": yaml.safe_dump(content)})

    def read(paths: Mapping[str, Path]) -> None:
        from tippingpoint.targets.juju.api.access import from_file

        from_file(paths["juju.yaml"])

    return _tried(access, "credentials", read)


def _own_controller(charm: ops.CharmBase) -> tuple[list[str], str]:
    """Addresses and CA of the controller that this unit is on; empty where the agent does not tell.

    Of the agent's own file, beside the charm's directory, two entries are used and the rest is dropped: its password
    is the agent's, whose leases would be measured together with ours.
    """
    content: dict[str, Any] = {}
    with suppress(UserError):
        content = read_yaml("agent.conf", charm.charm_dir.parent / "agent.conf", "the agent's configuration")
    ca, listed = content.get("cacert"), content.get("apiaddresses")
    addresses = os.environ.get("JUJU_API_ADDRESSES", "").split()
    if not addresses and isinstance(listed, list):
        addresses = [each for each in cast("list[object]", listed) if isinstance(each, str)]
    return addresses, ca if isinstance(ca, str) else ""


def _lxd(charm: ops.CharmBase) -> TargetAccess:
    """The related LXD, in the projects it trusts us for; else the secret's, in those configured or of our own."""
    configured = charm.config.get("lxd-projects", "")
    projects = configured if isinstance(configured, str) else ""
    found = lxd.read(charm, projects)
    if found is not None:
        content = {
            "addresses": found.addresses,
            "certificate": found.certificate,
            "client_certificate": found.client.certificate,
            "client_key": found.client.key,
        }
        return _lxd_access(content, found.projects, lxd.NAME)
    keys = ("addresses", "certificate", "client-certificate", "client-key")
    secret = read_secret(charm, "credentials", Keys(("token",)), Keys(keys))
    if secret is None:
        how = how_to_add(charm, "credentials", "token#file=FILE (of lxc config trust add)")
        raise NotThere(f"juju integrate {charm.app.name}:lxd lxd:https; or {how}")
    fill = lxd.project_names(projects) if projects.strip() else []
    if "token" not in secret:
        return _lxd_access({key.replace("-", "_"): secret[key] for key in keys}, fill, "credentials")
    if charm.app.planned_units() > 1:
        raise NotThere(
            "credentials: token: expected a single unit, as a token is good for one: give addresses, certificate, "
            "client-certificate and client-key instead"
        )
    target: dict[str, Any] = {"kind": "lxd", "token": f"{PLACE}/lxd.token"}
    if fill:
        target["projects"] = fill

    def read(paths: Mapping[str, Path]) -> None:
        from tippingpoint.targets.lxd.trust import read_token

        read_token(paths["lxd.token"].read_text())

    return _tried(TargetAccess("lxd", target, {"lxd.token": secret["token"]}), "credentials", read)


def _lxd_access(content: dict[str, str], projects: list[str], source: str) -> TargetAccess:
    target: dict[str, Any] = {"kind": "lxd", "credentials": f"{PLACE}/lxd.yaml"}
    if projects:
        target["projects"] = projects

    def read(paths: Mapping[str, Path]) -> None:
        from tippingpoint.targets.lxd.access import from_file

        from_file(paths["lxd.yaml"])

    return _tried(TargetAccess("lxd", target, {"lxd.yaml": yaml.safe_dump(content)}), source, read)


def _etcd(charm: ops.CharmBase) -> TargetAccess:
    """The related etcd, by either relation; else the secret's."""
    found, source = etcd.read_db(charm), etcd.DB
    if found is None:
        found, source = etcd.read_client(charm), etcd.CLIENT
    user: dict[str, str] = {}
    if found is None:
        source = "credentials"
        secret = read_secret(
            charm, "credentials", Keys(("endpoints",), ("cacert", "cert", "key", "username", "password"))
        )
        if secret is None:
            how = how_to_add(
                charm,
                "credentials",
                "endpoints=https://HOST:2379 cacert#file=FILE cert#file=FILE key#file=FILE",
            )
            raise NotThere(f"juju integrate {charm.app.name}:etcd-client charmed-etcd; or {how}")
        endpoints = _listed(secret["endpoints"])
        found = etcd.Etcd(endpoints, *(secret.get(name, "") for name in ("cacert", "cert", "key")))
        user = {name: secret[name] for name in ("username", "password") if name in secret}
    target: dict[str, Any] = {"kind": "etcd", "endpoints": found.endpoints}
    files: dict[str, str] = {}
    for name, text in (("ca", found.ca), ("cert", found.certificate), ("key", found.key)):
        if text:
            target[name] = f"{PLACE}/etcd-{name}.pem"
            files[f"etcd-{name}.pem"] = text
    if user:
        target["credentials"] = f"{PLACE}/etcd.yaml"
        files["etcd.yaml"] = yaml.safe_dump(user)

    def read(paths: Mapping[str, Path]) -> None:
        from tippingpoint.targets.etcd.access import access
        from tippingpoint.targets.etcd.plan import EtcdTarget

        fields = {
            name: paths.get(str(value).removeprefix(f"{PLACE}/"), value) for name, value in target.items()
        }
        access(EtcdTarget.model_validate(fields))

    return _tried(TargetAccess("etcd", target, files), source, read)


def _openstack(charm: ops.CharmBase) -> TargetAccess:
    """The related Keystone's user, else the secret's application credential or user, as a clouds.yaml of one cloud.

    A secret that has nothing but `cacert` says what the related Keystone's TLS is verified by, which it cannot say.
    """
    found = keystone.read(charm)
    if found is not None:
        own = read_any_secret(charm, "credentials") or {}
        if [*own] == ["cacert"]:
            ca = _authority(own["cacert"], "credentials: cacert")
        else:
            ca = _authority(found.ca, f"{keystone.NAME}: ca_cert")
        cloud: dict[str, Any] = {"auth": dict(found.auth)}
        if found.region:
            cloud["region_name"] = found.region
        return _openstack_access(cloud, ca, keystone.NAME)
    keys = ("auth-url", "application-credential-id", "application-credential-secret")
    user = ("auth-url", "username", "password", "project")
    optional = ("region", "cacert")
    domains = ("user-domain", "project-domain")
    secret = read_secret(charm, "credentials", Keys(keys, optional), Keys(user, (*domains, *optional)))
    if secret is None:
        how = how_to_add(
            charm,
            "credentials",
            "auth-url=URL application-credential-id=ID application-credential-secret#file=FILE",
        )
        raise NotThere(f"juju integrate {charm.app.name}:identity-credentials keystone; or {how}")
    _check_auth_url(secret["auth-url"])
    if "password" in secret:
        auth = {
            "auth_url": secret["auth-url"],
            "username": secret["username"],
            "password": secret["password"],
        }
        auth["project_name"] = secret["project"]
        for domain in domains:
            auth[f"{domain.replace('-', '_')}_name"] = secret.get(domain, "Default")
        cloud = {"auth": auth}
    else:
        auth = {key.replace("-", "_"): secret[key] for key in keys}
        cloud = {"auth_type": "v3applicationcredential", "auth": auth}
    if "region" in secret:
        cloud["region_name"] = secret["region"]
    ca = _authority(secret.get("cacert", ""), "credentials: cacert")
    return _openstack_access(cloud, ca, "credentials")


def _openstack_access(cloud: dict[str, Any], ca: str, source: str) -> TargetAccess:
    files: dict[str, str] = {}
    if ca:
        files[_OPENSTACK_CA] = ca
        cloud = {**cloud, "cacert": _OPENSTACK_CA}  # beside the file
    files["clouds.yaml"] = _clouds(cloud)
    target = {"kind": "openstack", "credentials": f"{PLACE}/clouds.yaml", "cloud": _CLOUD}

    def read(paths: Mapping[str, Path]) -> None:
        from tippingpoint.targets.openstack.access import from_clouds
        from tippingpoint.targets.openstack.plan import OpenstackTarget

        if ca:  # in memory nothing is beside anything
            paths["clouds.yaml"].write_text(_clouds({**cloud, "cacert": str(paths[_OPENSTACK_CA])}))
        from_clouds(OpenstackTarget(kind="openstack", credentials=paths["clouds.yaml"], cloud=_CLOUD))

    return _tried(TargetAccess("openstack", target, files), source, read)


def _clouds(cloud: dict[str, Any]) -> str:
    return yaml.safe_dump({"clouds": {_CLOUD: cloud}})


def _check_auth_url(url: str) -> None:
    """NotThere where a secret's auth-url is none; one with a login in it would put that where addresses are shown."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or "@" in url or "?" in url or "#" in url or not url.isprintable() or " " in url:
        raise NotThere("credentials: auth-url: expected http(s)://HOST:PORT/v3")


def _authority(text: str, source: str) -> str:
    """Certificates that TLS can be verified by, as they were given; NotThere, which begins with `source`, for none."""
    if text:
        try:
            ssl.create_default_context(cadata=text)
        except (ssl.SSLError, TypeError):  # the latter where it is no ASCII
            raise NotThere(f"{source}: expected certificates of an authority (PEM)") from None
    return text


_FINDERS: dict[str, Callable[[ops.CharmBase], TargetAccess]] = {
    "juju": _juju,
    "lxd": _lxd,
    "etcd": _etcd,
    "openstack": _openstack,
}
KINDS = tuple(_FINDERS)
"""The kinds of target that access is found to."""


def _listed(text: str) -> list[str]:
    return [part for part in text.replace(",", " ").split() if part]


def _tried(access: TargetAccess, source: str, read: Callable[[Mapping[str, Path]], None]) -> TargetAccess:
    """The access, when the engine's reader takes its files; NotThere with what it says, without their content.

    `source` is the relation or configuration that it is from.
    """
    with _in_memory(access.files) as paths:
        try:
            read(paths)
        except UserError as problem:
            keys = _ETCD_CA if source == etcd.DB else _KEYS
            value, accepted = (
                _as_given(str(said), paths, keys) for said in (problem.value, problem.accepted)
            )
            raise NotThere(f"{source}: {f'{shown(value)}: ' if value else ''}expected {accepted}") from None
        except ValidationError as problem:  # of the target's fields, whose values are not shown
            first = problem.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            said = first["msg"].removeprefix("Value error, ")
            raise NotThere(": ".join(part for part in (source, where, said) if part)) from None
    return replace(access, source=source)


def _as_given(said: str, paths: Mapping[str, Path], keys: Mapping[str, str]) -> str:
    """What the engine says of its files, as whoever wrote the secret, or the other side, knows them."""
    for name, path in paths.items():
        said = said.removesuffix(f", in {path}")
        # What the file is called is our own matter, unless there are several.
        said = said.replace(str(path), name if len(paths) > 1 else "").strip()
    for ours, theirs in keys.items():
        said = said.replace(ours, theirs)
    alone = re.fullmatch(r"\(([a-z-]+)\)", said)
    return alone[1] if alone is not None else said


@contextmanager
def _in_memory(files: Mapping[str, str]) -> Generator[dict[str, Path]]:
    """Paths of files with these contents and mode 0600 that are on no disk."""
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
