"""A run's things in LXD: its access, an image, and projects with their profile. All carry the run's mark."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tippingpoint.errors import TargetError, UserError
from tippingpoint.targets.lxd import trust
from tippingpoint.targets.lxd.access import (
    LxdAccess,
    config_directory,
    der,
    from_file,
    from_remote,
    from_socket,
)
from tippingpoint.targets.lxd.access import fingerprint as certificate_fingerprint
from tippingpoint.targets.lxd.client import LxdClient
from tippingpoint.targets.lxd.errors import LxdError, LxdExists, LxdGone
from tippingpoint.targets.lxd.image import fingerprint, tiny_image
from tippingpoint.targets.lxd.ledger import KEY_PAIR, LxdEntry
from tippingpoint.targets.lxd.plan import LxdTarget
from tippingpoint.targets.lxd.pool_and_network import Site, find_projects, find_site
from tippingpoint.targets.lxd.product import image_headers
from tippingpoint.targets.lxd.retrying import PATIENCE, REFUSED, ask, ask_unless_refused, insist, last, one_of
from tippingpoint.targets.lxd.workspace import LxdPlace, LxdWorkspace
from tippingpoint.util.secret_files import read_text

MARK = "user.tippingpoint"
"""The setting of projects, profiles and instances that names the run that created them."""
TINY = "tiny"

_FEATURES = {"features.images": "false", "features.profiles": "true", "features.storage.volumes": "true"}


# Access


def access_of(target: LxdTarget, store: Path | None, identity: Path | None) -> LxdAccess:
    """Return the access to the LXD of a ledger's entry; UserError if one of its files is unusable."""
    if target.credentials is not None:
        return from_file(target.credentials)
    if target.socket is not None:
        return from_socket(target.socket)
    if identity is not None:
        return trust.from_identity(identity)
    return from_remote(target.remote, store or config_directory(target.remote))


def new_entry(target: LxdTarget, run_id: str, prefix: str, directory: Path) -> LxdEntry:
    """Return the ledger entry of a new run. For a trust token, a key pair is created in a folder of `directory`.

    UserError if the image or a credentials file is unusable. A remote is kept by its name, or as the socket that it
    stands for. So later changes of the client's configuration or of the environment do not affect the removal.
    """
    image, target = _image_to_import(target, run_id)
    store = identity = None
    if target.token is not None:
        trust.read_token(_token(target.token))
        identity = directory / KEY_PAIR
        trust.make_identity(identity, trust_name(run_id))
    elif target.credentials is None and target.socket is None:
        store = config_directory(target.remote)
        access = from_remote(target.remote, store)
        if access.socket is not None:
            store, named = None, {"remote": None, "socket": access.socket.absolute()}
        else:
            named = {"remote": access.name}
        target = target.model_copy(update=named)
    return LxdEntry(run=run_id, prefix=prefix, image=image, target=target, store=store, identity=identity)


async def reach(entry: LxdEntry) -> None:
    """Check that LXD accepts the client and has the plan's projects. A trust token is redeemed.

    TargetError or UserError otherwise. If only a project does not exist, the token's trust is ended again.
    """
    if entry.identity is not None and not await _is_trusted(entry.identity):
        assert entry.target.token is not None
        try:
            await trust.redeem(_token(entry.target.token), entry.identity, trust_name(entry.run))
        except TargetError:
            if not await _is_trusted(entry.identity):  # refused by the server, or never asked for
                discard_identity(entry.identity)
            raise
    access = access_of(entry.target, entry.store, entry.identity)
    client = LxdClient(access)
    try:
        await greet(client, access)
        try:
            await find_projects(client, entry.target.projects)
        except UserError:
            if entry.identity is not None:
                await trust.end(client, access)
                discard_identity(entry.identity)
            raise
    except LxdError as problem:
        raise TargetError(access.name, str(problem), "an LXD that permits the use of projects") from None
    finally:
        await client.close()


async def greet(client: LxdClient, access: LxdAccess) -> dict[str, Any]:
    """Return the server's description; TargetError if it refuses the client or does not answer."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await client.server()
    except TimeoutError:
        raise TargetError(
            access.name, f"no answer within {PATIENCE:.0f} s", "an LXD server that answers"
        ) from None


async def _is_trusted(identity: Path) -> bool:
    """Whether the server of these keys trusts them; TargetError if it does not answer."""
    if not was_redeemed(identity):
        return False
    client = LxdClient(trust.from_identity(identity))
    try:
        return (await client.get("/1.0")).get("auth") == "trusted"
    except LxdError as problem:
        raise TargetError("target.token", str(problem), "a server that answers") from None
    finally:
        await client.close()


def was_redeemed(identity: Path) -> bool:
    """Whether a token was compared with its server for these keys, after which they may be trusted."""
    return (identity / "addresses").exists()


def discard_identity(identity: Path) -> None:
    """Remove a key pair that nobody trusts (any more), and no other files."""
    with suppress(OSError):
        for name in trust.FILES:
            (identity / name).unlink(missing_ok=True)
            (identity / f"{name}.part").unlink(missing_ok=True)
        identity.rmdir()


def _token(path: Path) -> str:
    return read_text("target.token", path, "a trust token (lxc config trust add)", private=True)


def trust_name(run_id: str) -> str:
    """Return the name in the certificate that is made for a run's trust token."""
    return f"tippingpoint-{run_id}"


# Preparation before the workers start


async def take(
    entry: LxdEntry,
    *,
    groups: int = 1,
    reachable: bool = False,
    evicts: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> LxdWorkspace:
    """Find or import the image, and create the first project, so that refused settings are known before any load.

    If the plan names projects, the image is found or imported in each of the first `groups` of them instead.
    `reachable` says that containers need an address, hence a network, and `evicts` that members will be removed.
    `tell` is called with a sentence for each restriction of the certificate that does not prevent the run.
    UserError names what does not exist or is refused, and what would be accepted. TargetError says that LXD failed.
    """
    access = access_of(entry.target, entry.store, entry.identity)
    client = LxdClient(access)
    try:
        restricted = await trust.is_restricted(client, access)
        if evicts and restricted:
            accepted = "false, or a certificate that is not restricted to projects, which may remove members"
            raise UserError("workload.evict", "true", accepted)
        if entry.target.projects:
            workspace = await _take_places(client, entry, groups, reachable)
        else:
            workspace = await _take_projects(client, entry, reachable)
        if restricted:
            await _tell_limits(client, access, entry, workspace, tell)
        return workspace
    except LxdError as problem:
        do = "use" if entry.target.projects else "make"
        raise TargetError(access.name, str(problem), f"an LXD that lets this client {do} projects") from None
    finally:
        await client.close()


async def _take_projects(client: LxdClient, entry: LxdEntry, reachable: bool) -> LxdWorkspace:
    """Return the workspace of a run that creates its projects, after creating the first."""
    site = await find_site(client, entry.target)
    _check_network(site, reachable, "")
    workspace = _workspace(entry, site.network, image=await _image(client, entry))
    await make_group(client, workspace, site, 0)
    return workspace


async def _take_places(client: LxdClient, entry: LxdEntry, groups: int, reachable: bool) -> LxdWorkspace:
    """Return the workspace of a run whose plan names projects, after importing the image; nothing else is changed."""
    target = entry.target
    places: list[LxdPlace] = []
    networks: list[str] = []
    for name, settings in (await find_projects(client, target.projects[:groups])).items():
        if target.placement == "round-robin" and _keeps_members(settings):
            accepted = (
                f"lxd, as project {name} does not allow the choice of a member (restricted.cluster.target)"
            )
            raise UserError("target.placement", target.placement, accepted)
        site = await find_site(client, target, name)
        _check_network(site, reachable, f" of project {name}")
        image = await _image(client, entry, name)
        places.append(LxdPlace(project=name, image=image, devices=site.added))
        networks.append(site.network)
    refused = await _refused_observations(client, places[0].project, networks[0])
    return _workspace(entry, networks[0], places=places, refused=refused)


def _workspace(
    entry: LxdEntry,
    network: str,
    *,
    image: str = "",
    places: Sequence[LxdPlace] = (),
    refused: Sequence[str] = (),
) -> LxdWorkspace:
    return LxdWorkspace(
        run=entry.run,
        prefix=entry.prefix,
        image=image,
        network=network,
        places=[*places],
        refused=[*refused],
        target=entry.target,
        store=entry.store,
        identity=entry.identity,
    )


def _check_network(site: Site, reachable: bool, where: str) -> None:
    if reachable and not site.has_network:
        accepted = f"one of its networks, as the profile default{where} has none; or workload.until=started"
        raise UserError("target.network", "missing", accepted)


def _keeps_members(settings: Mapping[str, str]) -> bool:
    """Whether only LXD may choose members for containers in a project with these settings."""
    return settings.get("restricted") == "true" and settings.get("restricted.cluster.target") != "allow"


async def _refused_observations(client: LxdClient, project: str, network: str) -> list[str]:
    """Return the observations that LXD refuses to the client certificate."""
    query = {"project": project}
    asked: dict[str, tuple[str, dict[str, str]]] = {
        "cluster-list": ("/1.0/cluster/members", {}),
        "operation-list": ("/1.0/operations", query),
        "network-leases": (f"/1.0/networks/{network}/leases", query),
        "network-list": ("/1.0/networks", query),
    }
    found: list[str] = []
    for what, (path, where) in asked.items():
        if what != "network-leases" or network:
            try:
                await insist(lambda path=path, where=where: client.get(path, **where))
            except LxdError as problem:  # the run will report other failures
                if problem.code == REFUSED:
                    found.append(what)
    return found


async def _tell_limits(
    client: LxdClient,
    access: LxdAccess,
    entry: LxdEntry,
    workspace: LxdWorkspace,
    tell: Callable[[str], None],
) -> None:
    """Report the limits of a certificate that is restricted to projects."""
    if workspace.refused:
        tell(f"LXD refuses {', '.join(workspace.refused)} to the client certificate: not timed")
    if "cluster-list" in workspace.refused:
        tell("the client certificate may not list members: only members with containers of the run are known")
    if await ask_unless_refused(client, "/1.0/resources") is None:
        tell(
            "the client certificate may not see the members' resources: the check for enough room was left out"
        )
    else:
        tell(
            "the client certificate is restricted to projects: the check for enough room did not count containers "
            "of other projects"
        )
    if entry.identity is not None:
        tell(
            "the client certificate is restricted to projects and cannot end its own trust: run `lxc config trust "
            f"remove {certificate_fingerprint(der(access.certificate))[:12]}`; its key is removed with the run"
        )


async def make_group(client: LxdClient, workspace: LxdWorkspace, site: Site, group: int) -> None:
    """Create a group's project and its profile, unless they exist; UserError if LXD refuses a setting.

    LxdError if a project of that name exists that this run did not create.
    """
    name, target = project_name(workspace.prefix, group), workspace.target
    for setting, value in target.project.items():
        if _FEATURES.get(setting, value) != value:
            accepted = f"{_FEATURES[setting]}, which the workload needs"
            raise UserError("target.project", f"{setting}: {value}", accepted)
    description = f"Tipping Point, run {workspace.run}"
    project = {
        "name": name,
        "description": description,
        "config": {**target.project, **_FEATURES, MARK: workspace.run},
    }
    try:
        await insist(lambda: client.operate("POST", "/1.0/projects", project))
    except LxdExists:
        there = await ask(client, f"/1.0/projects/{name}")
        if there["config"].get(MARK) != workspace.run:
            raise LxdError(f"project {name}: exists, and was not created by this run") from None
    except LxdError as problem:
        if problem.code == 400 or problem.kind == "setting":
            raise _refused("target.project", target.project, problem) from None
        raise
    path, query = "/1.0/profiles/default", {"project": name}
    profile: dict[str, Any] = {
        "description": description,
        "config": {**target.profile, MARK: workspace.run},
        "devices": site.devices,
    }
    there = await ask(client, path, **query)
    if any(there.get(field) != value for field, value in profile.items()):
        try:
            await insist(lambda: client.operate("PUT", path, profile, **query))
        except LxdError as problem:
            # LXD has one code, 500, for its own failures and for settings that it refuses.
            if target.profile and problem.kind in ("setting", "other"):
                raise _refused("target.profile", target.profile, problem) from None
            raise


async def delete_instance(client: LxdClient, project: str, name: str) -> None:
    """Stop and remove an instance; no error if it does not exist."""
    path, query = f"/1.0/instances/{name}", {"project": project}
    try:
        try:
            await client.operate("DELETE", path, **query)
        except LxdError as problem:
            if not re.search(r"\bis running\b", str(problem)):
                raise
            stop = {"action": "stop", "timeout": -1, "force": True}
            try:
                await client.operate("PUT", f"{path}/state", stop, **query)
            except LxdError as ended:
                if "already stopped" not in str(ended) and "not running" not in str(ended):
                    raise
            await client.operate("DELETE", path, **query)
    except LxdGone:
        return


# Names


def project_name(prefix: str, group: int) -> str:
    """Return the name of a group's project."""
    return f"{prefix}-{group:03d}"


def instance_name(prefix: str, group: int, number: int) -> str:
    """Return the name of an instance, unique among the run's projects because networks know instances by name."""
    return f"{prefix}-{group:03d}-{number:04d}"


def is_marked(run_id: str, instance: Mapping[str, Any]) -> bool:
    """Whether a listed instance that has one of the run's names carries the run's mark.

    For instances on a member that does not answer, LXD knows only the name.
    """
    config: dict[str, str] | None = instance["config"]
    return config is None or config.get(MARK) == run_id


def group_of(prefix: str, name: str) -> int | None:
    """Return the group whose project has this name; None if it is not one of the run's."""
    found = re.fullmatch(rf"{re.escape(prefix)}-([0-9]{{3,}})", name)
    return int(found[1]) if found and project_name(prefix, int(found[1])) == name else None


def number_of(prefix: str, group: int, name: str) -> int | None:
    """Return the number of the group's instance with this name; None if it is not one of them."""
    head, dash, tail = name.rpartition("-")
    if not dash or head != project_name(prefix, group) or not (tail.isascii() and tail.isdigit()):
        return None
    return int(tail) if instance_name(prefix, group, int(tail)) == name else None


def parts_of(name: str) -> tuple[str, int, int] | None:
    """Split an instance's name into prefix, group and number; None if it is not a name of any run."""
    head, _, number = name.rpartition("-")
    prefix, _, group = head.rpartition("-")
    if not prefix or not all(part.isascii() and part.isdigit() for part in (group, number)):
        return None
    found = prefix, int(group), int(number)
    return found if instance_name(*found) == name else None


def image_mark(run_id: str) -> str:
    """Return the file name of an image that a run imported, which marks it.

    It is not a property, because LXD 5.0.2 crashes when properties are added to an image that has none itself.
    """
    return f"tippingpoint-{run_id}"


# The image


def _image_to_import(target: LxdTarget, run_id: str) -> tuple[str, LxdTarget]:
    """Return the fingerprint of the image to import (empty for one on the server), and the target with its path."""
    if target.image == TINY:
        return fingerprint(tiny_image(run_id)), target
    file = Path(target.image)
    try:
        if not file.is_file():
            return "", target
        return fingerprint(file), target.model_copy(update={"image": str(file.absolute())})
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "not a path"
        raise UserError("target.image", target.image, f"a readable file ({why})") from None


async def _image(client: LxdClient, entry: LxdEntry, project: str = "") -> str:
    """Find or import the image of a project's instances; returns its fingerprint.

    UserError if the image does not exist or is for virtual machines, or the client certificate may not import it.
    A project without images of its own uses those of the default project.
    """
    named = entry.target.image
    query = {"project": project} if project else {}
    if not entry.image:
        return await _image_on_server(client, named, query)
    try:
        await client.get(f"/1.0/images/{entry.image}", **query)
        return entry.image
    except LxdError as problem:
        if problem.code != 404:
            raise
    data = tiny_image(entry.run) if named == TINY else Path(named)
    if isinstance(data, Path) and not data.is_file():
        raise UserError("target.image", named, "the file that existed when the run began")
    headers = image_headers(fingerprint=entry.image, filename=image_mark(entry.run))
    try:
        path = f"/1.0/images?{urlencode(query)}" if query else "/1.0/images"
        await client.upload(path, data, headers)  # as long as it takes
    except LxdExists:
        pass
    except LxdError as problem:
        if problem.code == REFUSED:
            accepted = (
                f"an alias or a fingerprint in project {project}, as this client may not import images there"
            )
            raise UserError("target.image", named, accepted) from None
        if problem.kind not in ("image", "other"):
            raise
        accepted = f"a unified LXD image of a container, but LXD says: {problem}"
        raise UserError("target.image", named, accepted) from None
    return entry.image


async def _image_on_server(client: LxdClient, named: str, query: dict[str, str]) -> str:
    known = quote(named, safe="")
    try:
        found = (await client.get(f"/1.0/images/aliases/{known}", **query))["target"]
    except LxdError as problem:
        if problem.code != 404:
            raise
        found = known if re.fullmatch("[0-9a-f]{4,64}", named) else None
    try:
        image = await client.get(f"/1.0/images/{found}", **query) if found is not None else None
    except LxdError as problem:
        if problem.code not in (400, 404):  # not found, or a prefix that several have
            raise
        image = None
    if image is None:
        aliases = [last(url) for url in await ask(client, "/1.0/images/aliases", **query)]
        there = one_of(aliases) if aliases else "(it has none)"
        accepted = f"an alias or fingerprint on the server {there}, a file, or tiny"
        raise UserError("target.image", named, accepted.replace("server one of", "server, one of"))
    if image.get("type", "container") != "container":
        raise UserError("target.image", named, f"an image of a container, not a {image['type']}")
    return image["fingerprint"]


def _refused(field: str, settings: Mapping[str, str], problem: LxdError) -> UserError:
    """Return the error for settings that LXD refused: those that it names, or whose value it names, or else all."""
    told = str(problem)
    named = [key for key in settings if key in told] or [
        key for key, value in settings.items() if value in told
    ]
    shown = ", ".join(f"{key}: {settings[key]}" for key in named or settings)
    return UserError(field, shown or "(none)", f"settings that this LXD accepts; it says: {told}")
