"""What a run has in an OpenStack beside its servers: an image, a flavor, and for each group what it is to have of its
own. All of it has the run's prefix in its name and its mark where it may have one."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlencode

from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.targets.openstack.access import CloudAccess, clouds_file, from_clouds
from tippingpoint.targets.openstack.client import PATIENCE, OpenstackClient, insist, mapping
from tippingpoint.targets.openstack.errors import (
    CONFLICT,
    FORBIDDEN,
    OpenstackError,
    OpenstackExists,
    OpenstackGone,
)
from tippingpoint.targets.openstack.ledger import PASSWORD, OpenstackEntry
from tippingpoint.targets.openstack.plan import OpenstackTarget
from tippingpoint.targets.openstack.servers import MARK, group_name
from tippingpoint.targets.openstack.versions import FLAVORS, SERVERS, Version, choose, offered, show_version
from tippingpoint.targets.openstack.workspace import OpenstackWorkspace
from tippingpoint.util.secret_files import read_text

MADE = "made"
NONE = "none"
MEMBER_ROLES = ("member", "Member", "_member_")
"""What the role is called that lets a user use a project, of old too."""
SUBNET = "10.0.0.0/16"
"""Of each network that is made: 65,533 addresses. Networks of different projects may have the same."""
FLAVOR: dict[str, int] = {"ram": 64, "vcpus": 1, "disk": 1}
"""MiB, and GiB: the published test's 64 MB; without a disk of 1 GB nova lets only an admin boot from an image."""
T = TypeVar("T")


# Who we are there


def new_entry(target: OpenstackTarget, run_id: str, prefix: str, directory: Path) -> OpenstackEntry:
    """What a run will make, for its ledger; for a user that it will make there is a password in a file of `directory`.

    UserError where a file that says who we are is unusable. The cloud is remembered by its name and file, so that
    neither another default nor the environment decides what is cleaned.
    """
    file = target.credentials or clouds_file()
    access = from_clouds(target)
    update: dict[str, Any] = {"cloud": access.name, "credentials": file.absolute()}
    if target.image is not None and _is_file(target.image):
        update["image"] = str(Path(target.image).absolute())
    identity = None
    if target.tenants:
        identity = directory / PASSWORD
        descriptor = os.open(identity, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as opened:
            opened.write(secrets.token_urlsafe(24))
    return OpenstackEntry(
        run=run_id, prefix=prefix, target=target.model_copy(update=update), identity=identity
    )


def access_of_user(access: CloudAccess, user: str, identity: Path) -> CloudAccess:
    """The same cloud as the user that a run has made, whose tokens are for projects; UserError where its password is
    gone."""
    password = read_text("ledger", identity, "the password of the run's user", private=True)
    shown = {"methods": ["password"], "password": {"user": {"id": user, "password": password}}}
    return replace(access, identity=shown, scope=None)


@contextmanager
def as_answered() -> Generator[None]:
    """OpenstackError for what comes in here of an answer that is JSON, but none that OpenStack would send."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as problem:
        raise OpenstackError(f"an answer that OpenStack would not send: {problem!r}") from None


@contextmanager
def told_of(name: str, accepted: str) -> Generator[None]:
    """TargetError for what a cloud of this name fails in here, or answers as OpenStack would not."""
    try:
        with as_answered():
            yield
    except OperationFailed as problem:
        raise TargetError(name, str(problem), accepted) from None


async def reach(entry: OpenstackEntry) -> None:
    """See that the cloud lets us in, and do what the plan takes an admin for, so that who is refused has nothing to
    clean up; TargetError or UserError when it does not."""
    access = from_clouds(entry.target)
    client = OpenstackClient(access)
    try:
        with told_of(access.name, "an OpenStack that answers"):
            await client.log_in()
            if (entry.target.tenants or entry.target.flavor == MADE) and not await is_admin(client):
                _refuse(entry.target)
    finally:
        await client.close()


# What is taken before the workers begin


async def take(entry: OpenstackEntry, tell: Callable[[str], None] = lambda _: None) -> OpenstackWorkspace:
    """Find or make what servers need, and the first group, so that what is refused is known before any load.

    What the credential keeps from us, and is no reason to stop, is told
    in sentences. UserError names what of the plan is not there, or is refused; TargetError says that OpenStack failed.
    """
    access = from_clouds(entry.target)
    client = OpenstackClient(access)
    try:
        with told_of(access.name, "an OpenStack that lets us make servers"):
            token = await client.log_in()
            admin = await is_admin(client)
            target = entry.target
            if not admin:
                tell(
                    "our credential is not an admin's: hosts are known by what nova shows of them to all (hostId), and "
                    "neither their state nor agents were observed"
                )
            version = await _version(client, target)
            workspace = OpenstackWorkspace(
                run=entry.run,
                prefix=entry.prefix,
                image=await _image(client, entry),
                flavor=await _flavor(client, entry),
                network=await _network(client, target.network, "network"),
                external=await _network(client, target.external or NONE, "external"),
                admin=admin,
                version=version,
                user="",
                role="",
                domain="",
                identity=entry.identity,
                target=target,
            )
            if target.tenants:
                workspace = await _with_user(client, entry, workspace, token.project)
            first = Group(client, access, workspace)
            try:
                await first.make(0)
            finally:
                await first.close()
            return workspace
    finally:
        await client.close()


def _refuse(target: OpenstackTarget) -> NoReturn:
    """Refuse what takes an admin."""
    if target.tenants:
        raise UserError("target.tenants", "true", "false, as our credential is not an admin's")
    raise UserError("target.flavor", MADE, "a flavor that is there, as our credential is not an admin's")


async def is_admin(client: OpenstackClient) -> bool:
    """Whether our credential is an admin's, who alone may ask for compute services."""
    try:
        await insist(lambda: client.get("compute", "/os-services?binary=nova-compute"))
    except OpenstackGone:
        return False
    except OpenstackError as problem:
        if problem.code != FORBIDDEN:
            raise
        return False
    return True


async def compute_versions(client: OpenstackClient) -> tuple[Version, Version]:
    """The least and the highest microversion of the compute API: 2.1 alone where it has none."""
    return offered(await insist(lambda: client.root("compute"))) or ((2, 1), (2, 1))


async def _version(client: OpenstackClient, target: OpenstackTarget) -> Version:
    has = await compute_versions(client)
    version = choose(SERVERS, has)
    if target.network == NONE and version < SERVERS:
        needs, up_to = show_version(SERVERS), show_version(has[1])
        accepted = f"a network, as none takes a compute API of {needs}, and this one has up to {up_to}"
        raise UserError("target.network", NONE, accepted)
    return version


async def pages(
    client: OpenstackClient,
    service: str,
    path: str,
    key: str,
    version: Version | None = None,
    within: float = PATIENCE,
    /,
    **query: str | tuple[str, ...],
) -> list[dict[str, Any]]:
    """All of a list, however many pages it has: each says whether there is a next. OpenstackError where it cannot be
    had `within` seconds a page, or is none."""
    found: list[dict[str, Any]] = []
    while True:
        where = f"{path}?{urlencode(query, doseq=True)}" if query else path
        answer = mapping(
            await insist(lambda where=where: client.get(service, where, version=version), within)
        )
        page = _listed(answer, key)
        found += page
        more = any(link.get("rel") == "next" for link in answer.get(f"{key}_links") or ()) or (
            isinstance(answer.get("next"), str)
        )
        if not more or not page:
            return found
        query = {**query, "marker": page[-1]["id"]}


def _listed(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] | None = answer.get(key)
    if not isinstance(listed, list):
        raise OpenstackError(f"an answer without {key}")
    return listed


def _named(field: str, value: str, listed: Iterable[Mapping[str, Any]]) -> str:
    """The id of what has this name or id; UserError, with the names that there are, where that is not one."""
    there = [*listed]
    ids = [str(each["id"]) for each in there if value in (each["id"], each.get("name"))]
    if len(ids) == 1:
        return ids[0]
    names = sorted({str(each.get("name") or each["id"]) for each in there})
    if ids:
        raise UserError(field, value, f"an id, as {len(ids)} have this name")
    raise UserError(field, value, _one_of(names))


def _one_of(names: list[str]) -> str:
    if not names:
        return "one to be made first: there is none"
    return f"one of {', '.join(names[:10])}" + (", ..." if len(names) > 10 else "")


def _is_file(name: str) -> bool:
    try:
        return "/" in name and Path(name).is_file()
    except (OSError, ValueError):
        return False


async def _image(client: OpenstackClient, entry: OpenstackEntry) -> str:
    wanted = entry.target.image
    if wanted is not None and _is_file(wanted):
        return await _upload(client, entry, Path(wanted))
    listed = await pages(client, "image", "/images", "images", limit="1000")
    if wanted is None:
        active = [image for image in listed if image.get("status") == "active"]
        if len(active) == 1:
            return str(active[0]["id"])
        names = sorted(str(image.get("name") or image["id"]) for image in active)
        raise UserError("target.image", "missing", _one_of(names))
    return _named("target.image", wanted, listed)


async def _upload(client: OpenstackClient, entry: OpenstackEntry, file: Path) -> str:
    image = {
        "name": entry.prefix,
        "disk_format": "raw",
        "container_format": "bare",
        "visibility": "public" if entry.target.tenants else "private",
        MARK: entry.run,
    }

    async def made() -> dict[str, Any]:
        for each in await pages(client, "image", "/images", "images", name=entry.prefix):
            if each.get(MARK) == entry.run and each.get("status") in ("active", "queued"):
                return each
        return await _ended(client.send("POST", "image", "/images", image))

    found = await insist(made)
    if found.get("status") != "active":
        try:
            await client.upload("image", f"/images/{found['id']}/file", file)  # as long as it takes
        except OSError as problem:
            accepted = f"a file that can be read ({problem.strerror})"
            raise UserError("target.image", str(file), accepted) from None
    return str(found["id"])


async def _flavor(client: OpenstackClient, entry: OpenstackEntry) -> str:
    wanted = entry.target.flavor
    if wanted == MADE:
        has = await compute_versions(client)
        return await insist(lambda: _made_flavor(client, entry, choose(FLAVORS, has)))
    listed = await pages(client, "compute", "/flavors/detail", "flavors", limit="1000")
    if wanted is None:
        if not listed:
            raise UserError("target.flavor", "missing", "made, or one to be made first: there is none")
        # One without a disk is refused to all but admins.
        smallest = min(
            listed, key=lambda flavor: (flavor["disk"] == 0, flavor["ram"], flavor["vcpus"], flavor["disk"])
        )
        return str(smallest["id"])
    return _named("target.flavor", wanted, listed)


async def _made_flavor(client: OpenstackClient, entry: OpenstackEntry, version: Version) -> str:
    """The id of the run's flavor, made unless it is there."""
    for flavor in await pages(client, "compute", "/flavors/detail", "flavors", limit="1000"):
        if flavor["name"] == entry.prefix:
            return str(flavor["id"])
    flavor = {"name": entry.prefix, **FLAVOR}
    if version >= FLAVORS:
        flavor["description"] = mark_text(entry.run)
    made = await _ended(client.send("POST", "compute", "/flavors", {"flavor": flavor}, version=version))
    return str(made["flavor"]["id"])


async def _network(client: OpenstackClient, wanted: str, field: str) -> str:
    """The id of a network that is there; empty for none, and for one that is made."""
    if wanted in (NONE, MADE):
        return ""
    listed = await pages(client, "network", "/networks", "networks")
    if field == "external":
        listed = [network for network in listed if network.get("router:external")]
    return _named(f"target.{field}", wanted, listed)


async def _with_user(
    client: OpenstackClient, entry: OpenstackEntry, workspace: OpenstackWorkspace, project: str
) -> OpenstackWorkspace:
    """The workspace with the user that the servers of all groups are: one for all projects, as each more would cost
    Keystone a password to hash and Nova nothing."""
    assert entry.identity is not None
    own = mapping(
        mapping(await insist(lambda: client.get("identity", f"/projects/{project}"))).get("project")
    )
    domain = str(own.get("domain_id", "default"))
    roles = {role["name"]: str(role["id"]) for role in await pages(client, "identity", "/roles", "roles")}
    role = next((roles[name] for name in MEMBER_ROLES if name in roles), None)
    if role is None:
        raise UserError("target.tenants", "true", f"a cloud with a role {MEMBER_ROLES[0]}")
    user = {
        "name": entry.prefix,
        "domain_id": domain,
        "description": mark_text(entry.run),
        "password": read_text("ledger", entry.identity, "the password of the run's user", private=True),
    }
    identity = await _made_once(
        client, "identity", "/users", "user", user, f"?name={entry.prefix}&domain_id={domain}"
    )
    return workspace.model_copy(update={"user": identity, "role": role, "domain": domain})


def mark_text(run: str) -> str:
    """The description of what a run made, which marks it."""
    return f"Tipping Point, run {run}"


async def _made_once(
    client: OpenstackClient,
    service: str,
    path: str,
    kind: str,
    wanted: dict[str, Any],
    query: str,
    project: str = "",
) -> str:
    """The id of what is made, unless it is there and marked as ours; OpenstackExists where it is there and is not."""

    async def made() -> str:
        # Looked for each time: it is there where an answer was lost.
        answer = mapping(await client.get(service, path + query, project=project))
        for each in _listed(answer, f"{kind}s"):
            if each["name"] == wanted["name"]:
                if each.get("description") != wanted["description"]:
                    raise OpenstackExists(f"{kind} {wanted['name']}: there already, and not made by this run")
                return str(each["id"])
        answer = await _ended(client.send("POST", service, path, {kind: wanted}, project=project))
        return str(answer[kind]["id"])

    return await insist(made)


async def _ended(change: Awaitable[T]) -> T:
    """What a change returns. Who cancels it waits for its end all the same, PATIENCE seconds at most: what it makes has
    to be there when it is looked for, to be removed."""
    doing = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        try:
            await asyncio.wait([doing], timeout=PATIENCE)
        finally:
            doing.cancel()
        raise


class Group:
    """Makes what groups have of their own: a project with the user in it, a network with its subnet and router."""

    def __init__(self, client: OpenstackClient, access: CloudAccess, workspace: OpenstackWorkspace) -> None:
        self._client = client
        self._workspace = workspace
        self._user = client
        if workspace.identity is not None and workspace.user:
            self._user = OpenstackClient(access_of_user(access, workspace.user, workspace.identity))

    @property
    def as_user(self) -> OpenstackClient:
        """The client that a group's servers are made with: the user's, or our own."""
        return self._user

    async def close(self) -> None:
        """Close the user's connections, where they are not our own."""
        if self._user is not self._client:
            await self._user.close()

    async def make(self, group: int) -> tuple[str, str]:
        """The ids of a group's project (empty for the cloud's own) and network (empty for none), made unless they are
        there. OpenstackError where something of these names is there that this run did not make."""
        with as_answered():
            project = await self._project(group) if self._workspace.user else ""
            network = self._workspace.network
            if self._workspace.target.network == MADE:
                network = await self._network(group, project)
        return project, network

    async def _project(self, group: int) -> str:
        workspace = self._workspace
        name = group_name(workspace.prefix, group)
        project = await _made_once(
            self._client,
            "identity",
            "/projects",
            "project",
            {"name": name, "domain_id": workspace.domain, "description": mark_text(workspace.run)},
            f"?name={name}&domain_id={workspace.domain}",
        )
        path = f"/projects/{project}/users/{workspace.user}/roles/{workspace.role}"
        await insist(lambda: self._client.send("PUT", "identity", path))
        # What the plan asks for is what there is to be: a project's quota is of 10 servers otherwise.
        unlimited = {"quota_set": {"instances": -1, "cores": -1, "ram": -1}}
        await insist(lambda: self._client.send("PUT", "compute", f"/os-quota-sets/{project}", unlimited))
        if workspace.target.network != NONE:
            ports = {"quota": {"port": -1}}
            await insist(lambda: self._client.send("PUT", "network", f"/quotas/{project}", ports))
        return project

    async def _network(self, group: int, project: str) -> str:
        workspace = self._workspace
        name, described = group_name(workspace.prefix, group), mark_text(workspace.run)
        find = f"?name={name}" + (f"&project_id={project}" if project else "")

        async def made(kind: str, **more: object) -> str:
            wanted = {"name": name, "description": described, **more}
            return await _made_once(self._user, "network", f"/{kind}s", kind, wanted, find, project)

        network = await made("network")
        subnet = await made("subnet", network_id=network, ip_version=4, cidr=SUBNET)
        outside = {"external_gateway_info": {"network_id": workspace.external}} if workspace.external else {}
        router = await made("router", **outside)
        join = {"subnet_id": subnet}
        path = f"/routers/{router}/add_router_interface"
        try:
            await insist(lambda: self._user.send("PUT", "network", path, join, project=project))
        except OpenstackError as problem:
            # It is on it already, where a run is taken up: 400, "Router already has a port on subnet".
            if problem.code not in (400, CONFLICT) or "already has a port" not in str(problem):
                raise
        return network
