"""A run's things in OpenStack beside its servers: an image, a flavor, and resources of each group. All have the run's
prefix in their name and, where possible, its mark."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlencode

from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.rundir.files import create_file
from tippingpoint.targets.openstack.access import CloudAccess, from_clouds
from tippingpoint.targets.openstack.client import PATIENCE, OpenstackClient, insist, mapping
from tippingpoint.targets.openstack.clouds import clouds_file
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
"""Names of the role that lets a user use a project, in present and older versions."""
SUBNET = "10.0.0.0/16"
"""Addresses of each network that a run creates: 65,533. Networks of different projects may have the same."""
FLAVOR: dict[str, int] = {"ram": 64, "vcpus": 1, "disk": 1}
"""MiB, and GiB: the published test's 64 MB. Without a disk of 1 GB nova lets only an admin boot from an image."""
T = TypeVar("T")


# Access


def new_entry(target: OpenstackTarget, run_id: str, prefix: str, directory: Path) -> OpenstackEntry:
    """Return the ledger entry of a new run. The password of a user to be created is in a file of `directory`.

    UserError if a credentials file is unusable. The cloud is kept by its name and file, so that later changes of the
    default or the environment do not affect the removal.
    """
    file = target.credentials or clouds_file()
    access = from_clouds(target)
    update: dict[str, Any] = {"cloud": access.name, "credentials": file.absolute()}
    if target.image is not None and _is_file(target.image):
        update["image"] = str(Path(target.image).absolute())
    identity = None
    if target.tenants:
        identity = directory / PASSWORD
        create_file(identity, secrets.token_urlsafe(24).encode(), 0o600)
    return OpenstackEntry(
        run=run_id, prefix=prefix, target=target.model_copy(update=update), identity=identity
    )


def access_of_user(access: CloudAccess, user: str, identity: Path) -> CloudAccess:
    """Return the same cloud for the user that a run has created, whose tokens are for projects; UserError if its
    password is gone."""
    password = read_text("ledger", identity, "the password of the run's user", private=True)
    shown = {"methods": ["password"], "password": {"user": {"id": user, "password": password}}}
    return replace(access, identity=shown, scope=None)


@contextmanager
def as_answered() -> Generator[None]:
    """Raise OpenstackError if the block finds an answer that is JSON, but not in OpenStack's form."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as problem:
        raise OpenstackError(f"an invalid answer: {problem!r}") from None


@contextmanager
def told_of(name: str, accepted: str) -> Generator[None]:
    """Raise TargetError, with the cloud's name, if the block's calls fail or get an invalid answer."""
    try:
        with as_answered():
            yield
    except OperationFailed as problem:
        raise TargetError(name, str(problem), accepted) from None


async def reach(entry: OpenstackEntry) -> None:
    """Check that the cloud accepts the login, and that it is an admin's if the plan needs one.

    Nothing has been created yet. TargetError or UserError if the check fails.
    """
    access = from_clouds(entry.target)
    client = OpenstackClient(access)
    try:
        with told_of(access.name, "an OpenStack that answers"):
            await client.log_in()
            if (entry.target.tenants or entry.target.flavor == MADE) and not await is_admin(client):
                _refuse(entry.target)
    finally:
        await client.close()


# Preparation before the workers start


async def take(entry: OpenstackEntry, tell: Callable[[str], None] = lambda _: None) -> OpenstackWorkspace:
    """Find or create the resources for servers, and the first group, so that refusals are known before any load.

    `tell` is called with a sentence for each restriction of the credential that does not prevent the run. UserError
    names what does not exist or is refused; TargetError says that OpenStack failed.
    """
    access = from_clouds(entry.target)
    client = OpenstackClient(access)
    try:
        with told_of(access.name, "an OpenStack that permits the creation of servers"):
            token = await client.log_in()
            admin = await is_admin(client)
            target = entry.target
            if not admin:
                tell(
                    "the credential is not an admin's: hosts are known only by the id that nova shows to all (hostId), "
                    "and neither their state nor agents were observed"
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
    """Refuse a plan that needs an admin."""
    if target.tenants:
        raise UserError("target.tenants", "true", "false, as the credential is not an admin's")
    raise UserError("target.flavor", MADE, "an existing flavor, as the credential is not an admin's")


async def is_admin(client: OpenstackClient) -> bool:
    """Whether the credential is an admin's: only an admin may list compute services."""
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
    """Return the lowest and the highest microversion of the compute API; 2.1 for both if it has none."""
    return offered(await insist(lambda: client.root("compute"))) or ((2, 1), (2, 1))


async def _version(client: OpenstackClient, target: OpenstackTarget) -> Version:
    has = await compute_versions(client)
    version = choose(SERVERS, has)
    if target.network == NONE and version < SERVERS:
        needs, up_to = show_version(SERVERS), show_version(has[1])
        accepted = f"a network, as `none` needs a compute API of {needs}, and this one has up to {up_to}"
        raise UserError("target.network", NONE, accepted)
    return version


async def pages(
    client: OpenstackClient,
    service: str,
    path: str,
    key: str,
    version: Version | None = None,
    within: float = PATIENCE,
    keep: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = list,
    /,
    **query: str | tuple[str, ...],
) -> list[dict[str, Any]]:
    """Return all of a list, page by page: each page says whether there is a next one. `keep` returns what to keep of a
    page.

    OpenstackError if a page takes more than `within` seconds, or is invalid.
    """
    found: list[dict[str, Any]] = []
    while True:
        where = f"{path}?{urlencode(query, doseq=True)}" if query else path
        answer = mapping(
            await insist(lambda where=where: client.get(service, where, version=version), within)
        )
        page = _listed(answer, key)
        found += keep(page)
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
    """Return the id of the thing with this name or id; UserError with the existing names unless exactly one has it."""
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
        return "one to be created first: none exists"
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
            accepted = f"a readable file ({problem.strerror})"
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
            raise UserError("target.flavor", "missing", "made, or one to be created first: none exists")
        # Only admins may use a flavor without a disk.
        smallest = min(
            listed, key=lambda flavor: (flavor["disk"] == 0, flavor["ram"], flavor["vcpus"], flavor["disk"])
        )
        return str(smallest["id"])
    return _named("target.flavor", wanted, listed)


async def _made_flavor(client: OpenstackClient, entry: OpenstackEntry, version: Version) -> str:
    """Create the run's flavor unless it exists; returns its id."""
    for flavor in await pages(client, "compute", "/flavors/detail", "flavors", limit="1000"):
        if flavor["name"] == entry.prefix:
            return str(flavor["id"])
    flavor = {"name": entry.prefix, **FLAVOR}
    if version >= FLAVORS:
        flavor["description"] = mark_text(entry.run)
    made = await _ended(client.send("POST", "compute", "/flavors", {"flavor": flavor}, version=version))
    return str(made["flavor"]["id"])


async def _network(client: OpenstackClient, wanted: str, field: str) -> str:
    """Return the id of an existing network; empty for none, and for one that the run creates."""
    if wanted in (NONE, MADE):
        return ""
    listed = await pages(client, "network", "/networks", "networks")
    if field == "external":
        listed = [network for network in listed if network.get("router:external")]
    return _named(f"target.{field}", wanted, listed)


async def _with_user(
    client: OpenstackClient, entry: OpenstackEntry, workspace: OpenstackWorkspace, project: str
) -> OpenstackWorkspace:
    """Return the workspace with the user that owns the servers of all groups. All projects share one user, because each
    password costs Keystone a hash, while the number of users makes no difference to Nova."""
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
    """Return the description of things that a run created, which marks them."""
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
    """Create a thing unless it exists with the run's mark; returns its id. OpenstackExists if it exists without."""

    async def made() -> str:
        # Checked each time: if only the answer was lost, it exists.
        answer = mapping(await client.get(service, path + query, project=project))
        for each in _listed(answer, f"{kind}s"):
            if each["name"] == wanted["name"]:
                if each.get("description") != wanted["description"]:
                    raise OpenstackExists(f"{kind} {wanted['name']}: exists, and was not created by this run")
                return str(each["id"])
        answer = await _ended(client.send("POST", service, path, {kind: wanted}, project=project))
        return str(answer[kind]["id"])

    return await insist(made)


async def _ended(change: Awaitable[T]) -> T:
    """Return a change's result. A cancelled caller still waits for its end, PATIENCE seconds at most: a removal must be
    able to find the thing that it creates."""
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
    """Creates the groups' own resources: a project with the user in it, a network with its subnet and router."""

    def __init__(self, client: OpenstackClient, access: CloudAccess, workspace: OpenstackWorkspace) -> None:
        self._client = client
        self._workspace = workspace
        self._user = client
        if workspace.identity is not None and workspace.user:
            self._user = OpenstackClient(access_of_user(access, workspace.user, workspace.identity))

    @property
    def as_user(self) -> OpenstackClient:
        """The client for a group's servers: the user's, or the cloud's own."""
        return self._user

    async def close(self) -> None:
        """Close the user's connections, unless they are the cloud's own."""
        if self._user is not self._client:
            await self._user.close()

    async def make(self, group: int) -> tuple[str, str]:
        """Create a group's project and network unless they exist; returns their ids.

        The project's is empty for the cloud's own, the network's for none. OpenstackError if one exists that this
        run did not create.
        """
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
        # The stages alone limit the number of servers; a project's default quota is 10.
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
            # A resumed run's router is on it already: 400, "Router already has a port on subnet".
            if problem.code not in (400, CONFLICT) or "already has a port" not in str(problem):
                raise
        return network
