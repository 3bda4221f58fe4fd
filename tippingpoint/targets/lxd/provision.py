"""What a run has in an LXD: its way in, an image, and projects with their profile. All of it carries the run's mark."""

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
from tippingpoint.targets.lxd.retrying import PATIENCE, REFUSED, ask, ask_unless_refused, insist, last, one_of
from tippingpoint.targets.lxd.workspace import LxdPlace, LxdWorkspace
from tippingpoint.util.secret_files import read_text

MARK = "user.tippingpoint"
"""The setting of projects, profiles and instances that names the run that made them."""
TINY = "tiny"

_FEATURES = {"features.images": "false", "features.profiles": "true", "features.storage.volumes": "true"}


# Who we are there


def access_of(target: LxdTarget, store: Path | None, identity: Path | None) -> LxdAccess:
    """Where the LXD of a ledger's entry is and who we are there; UserError when a file for it is unusable."""
    if target.credentials is not None:
        return from_file(target.credentials)
    if target.socket is not None:
        return from_socket(target.socket)
    if identity is not None:
        return trust.from_identity(identity)
    return from_remote(target.remote, store or config_directory())


def new_entry(target: LxdTarget, run_id: str, prefix: str, directory: Path) -> LxdEntry:
    """What a run will make, for its ledger; for a trust token a key pair is made in a folder of `directory`.

    UserError where the image, or a file that says who we are, is unusable. A remote is remembered by its name, or
    as the socket it is, so that neither the client's configuration nor the environment decides what is cleaned.
    """
    image, target = _image_to_import(target, run_id)
    store = identity = None
    if target.token is not None:
        trust.read_token(_token(target.token))
        identity = directory / KEY_PAIR
        trust.make_identity(identity, trust_name(run_id))
    elif target.credentials is None and target.socket is None:
        store = config_directory()
        access = from_remote(target.remote, store)
        if access.socket is not None:
            store, named = None, {"remote": None, "socket": access.socket.absolute()}
        else:
            named = {"remote": access.name}
        target = target.model_copy(update=named)
    return LxdEntry(run=run_id, prefix=prefix, image=image, target=target, store=store, identity=identity)


async def reach(entry: LxdEntry) -> None:
    """See that LXD lets us in, with a trust token by redeeming it, and has the projects that the plan names.

    TargetError or UserError when it does not; where only a project is not there, the trust of a token is ended again.
    """
    if entry.identity is not None and not await _is_trusted(entry.identity):
        assert entry.target.token is not None
        try:
            await trust.redeem(_token(entry.target.token), entry.identity, trust_name(entry.run))
        except TargetError:
            if not await _is_trusted(entry.identity):  # the server says so, or it was never asked
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
        raise TargetError(access.name, str(problem), "an LXD that lets us use projects") from None
    finally:
        await client.close()


async def greet(client: LxdClient, access: LxdAccess) -> dict[str, Any]:
    """What the server tells about itself; TargetError when it does not let us in, or does not answer."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await client.server()
    except TimeoutError:
        raise TargetError(
            access.name, f"no answer within {PATIENCE:.0f} s", "an LXD server that answers"
        ) from None


async def _is_trusted(identity: Path) -> bool:
    """Whether the server that these keys are for trusts them; TargetError when it does not answer."""
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
    """Whether a token was held against its server with these keys, after which they may be trusted."""
    return (identity / "addresses").exists()


def discard_identity(identity: Path) -> None:
    """Remove the key pair that nobody trusts (any more), and nothing that is not of it."""
    with suppress(OSError):
        for name in trust.FILES:
            (identity / name).unlink(missing_ok=True)
            (identity / f"{name}.part").unlink(missing_ok=True)
        identity.rmdir()


def _token(path: Path) -> str:
    return read_text("target.token", path, "a trust token (lxc config trust add)", private=True)


def trust_name(run_id: str) -> str:
    """What the certificate that is made for a run's trust token says of whom it is."""
    return f"tippingpoint-{run_id}"


# What is taken before the workers begin


async def take(
    entry: LxdEntry,
    *,
    groups: int = 1,
    reachable: bool = False,
    evicts: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> LxdWorkspace:
    """Find or import the image, and make the first project, so that refused settings are known before any load.

    Where the plan names projects, it is the image of each of the first `groups` of them. `reachable` says that
    containers are to have an address, for which they need a network, and `evicts` that members are to be removed. What
    a certificate that is restricted to projects keeps from us, and is no reason to stop, is told in sentences.
    UserError names what of the plan is not there, or is refused, and what would be accepted; TargetError says that
    LXD failed.
    """
    access = access_of(entry.target, entry.store, entry.identity)
    client = LxdClient(access)
    try:
        restricted = await trust.is_restricted(client, access)
        if evicts and restricted:
            accepted = "false, or a certificate that is not restricted to projects, to remove members with"
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
        raise TargetError(access.name, str(problem), f"an LXD that lets us {do} projects") from None
    finally:
        await client.close()


async def _take_projects(client: LxdClient, entry: LxdEntry, reachable: bool) -> LxdWorkspace:
    """The workspace of a run that makes its projects, the first of which is made."""
    site = await find_site(client, entry.target)
    _check_network(site, reachable, "")
    workspace = _workspace(entry, site.network, image=await _image(client, entry))
    await make_group(client, workspace, site, 0)
    return workspace


async def _take_places(client: LxdClient, entry: LxdEntry, groups: int, reachable: bool) -> LxdWorkspace:
    """The workspace of a run whose plan names its projects, with an image in each; nothing else of them is changed."""
    target = entry.target
    places: list[LxdPlace] = []
    networks: list[str] = []
    for name, settings in (await find_projects(client, target.projects[:groups])).items():
        if target.placement == "round-robin" and _keeps_members(settings):
            accepted = f"lxd, as project {name} lets nobody choose a member (restricted.cluster.target)"
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
    """Whether a project with these settings is one whose containers only LXD puts on members."""
    return settings.get("restricted") == "true" and settings.get("restricted.cluster.target") != "allow"


async def _refused_observations(client: LxdClient, project: str, network: str) -> list[str]:
    """Which of the observations our certificate may not make."""
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
            except LxdError as problem:  # of what fails in another way the run will tell
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
    """Tell what a certificate that is restricted to projects keeps from us."""
    if workspace.refused:
        tell(f"our certificate is refused {', '.join(workspace.refused)}: this is not timed")
    if "cluster-list" in workspace.refused:
        tell("our certificate may not list members: they are known by the containers on them alone")
    if await ask_unless_refused(client, "/1.0/resources") is None:
        tell("our certificate may not see what members have: whether there is room was not checked")
    else:
        tell(
            "our certificate is restricted to projects: the containers of other projects were not counted when it "
            "was checked whether there is room"
        )
    if entry.identity is not None:
        tell(
            "our certificate is restricted to projects and cannot end its own trust: `lxc config trust remove "
            f"{certificate_fingerprint(der(access.certificate))[:12]}` does; its key goes with the run"
        )


async def make_group(client: LxdClient, workspace: LxdWorkspace, site: Site, group: int) -> None:
    """Make a group's project and its profile, unless they are there; UserError where LXD refuses a setting.

    LxdError where a project of that name is there that this run did not make.
    """
    name, target = project_name(workspace.prefix, group), workspace.target
    for setting, value in target.project.items():
        if _FEATURES.get(setting, value) != value:
            accepted = f"{_FEATURES[setting]}, which is what the workload needs"
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
            raise LxdError(f"project {name}: there already, and not made by this run") from None
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
            # LXD has one code, 500, for its own failures and for settings it refuses.
            if target.profile and problem.kind in ("setting", "other"):
                raise _refused("target.profile", target.profile, problem) from None
            raise


async def delete_instance(client: LxdClient, project: str, name: str) -> None:
    """Stop and remove an instance; fine when it is not there, or went meanwhile."""
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
    """The name of a group's project."""
    return f"{prefix}-{group:03d}"


def instance_name(prefix: str, group: int, number: int) -> str:
    """The name of an instance, which no other project of the run has: networks know instances by it."""
    return f"{prefix}-{group:03d}-{number:04d}"


def is_marked(run_id: str, instance: Mapping[str, Any]) -> bool:
    """Whether an instance of a list, whose name is one of the run's, is the run's indeed.

    Of what is on a member that does not answer LXD knows the name alone.
    """
    config: dict[str, str] | None = instance["config"]
    return config is None or config.get(MARK) == run_id


def group_of(prefix: str, name: str) -> int | None:
    """Which group's project has this name; None where it is none of the run's."""
    found = re.fullmatch(rf"{re.escape(prefix)}-([0-9]{{3,}})", name)
    return int(found[1]) if found and project_name(prefix, int(found[1])) == name else None


def number_of(prefix: str, group: int, name: str) -> int | None:
    """Which of a group's instances has this name; None where it is none of them."""
    head, dash, tail = name.rpartition("-")
    if not dash or head != project_name(prefix, group) or not (tail.isascii() and tail.isdigit()):
        return None
    return int(tail) if instance_name(prefix, group, int(tail)) == name else None


def parts_of(name: str) -> tuple[str, int, int] | None:
    """The prefix, group and number that make this instance's name; None where it is none of any run."""
    head, _, number = name.rpartition("-")
    prefix, _, group = head.rpartition("-")
    if not prefix or not all(part.isascii() and part.isdigit() for part in (group, number)):
        return None
    found = prefix, int(group), int(number)
    return found if instance_name(*found) == name else None


def image_mark(run_id: str) -> str:
    """The file name of an image that a run imported, which marks it.

    Not one of its properties: LXD 5.0.2 ends when it is to add properties to an image that has none itself.
    """
    return f"tippingpoint-{run_id}"


# The image


def _image_to_import(target: LxdTarget, run_id: str) -> tuple[str, LxdTarget]:
    """The fingerprint of what has to be imported, empty for an image on the server; and the target, with its path."""
    if target.image == TINY:
        return fingerprint(tiny_image(run_id)), target
    file = Path(target.image)
    try:
        if not file.is_file():
            return "", target
        return fingerprint(file), target.model_copy(update={"image": str(file.absolute())})
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "no path"
        raise UserError("target.image", target.image, f"a file that can be read ({why})") from None


async def _image(client: LxdClient, entry: LxdEntry, project: str = "") -> str:
    """The fingerprint to make instances from, in a project; UserError when there is no such image, or it is for
    virtual machines, or our certificate may not import it.

    The images of a project without images of its own are those of the default project.
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
        raise UserError("target.image", named, "the file that was there when the run began")
    headers = {"X-LXD-fingerprint": entry.image, "X-LXD-filename": image_mark(entry.run)}
    try:
        path = f"/1.0/images?{urlencode(query)}" if query else "/1.0/images"
        await client.upload(path, data, headers)  # as long as it takes
    except LxdExists:
        pass
    except LxdError as problem:
        if problem.code == REFUSED:
            accepted = (
                f"an alias or a fingerprint that is in project {project}, as we may not import one there"
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
        if problem.code not in (400, 404):  # not there, or a prefix that several have
            raise
        image = None
    if image is None:
        aliases = [last(url) for url in await ask(client, "/1.0/images/aliases", **query)]
        there = one_of(aliases) if aliases else "(none is there)"
        accepted = f"an alias or fingerprint on the server {there}, a file, or tiny"
        raise UserError("target.image", named, accepted.replace("server one of", "server, one of"))
    if image.get("type", "container") != "container":
        raise UserError("target.image", named, f"an image of a container, not a {image['type']}")
    return image["fingerprint"]


def _refused(field: str, settings: Mapping[str, str], problem: LxdError) -> UserError:
    """The error for settings that LXD refused: the one it names, or whose value it names, or else all of them."""
    told = str(problem)
    named = [key for key in settings if key in told] or [
        key for key, value in settings.items() if value in told
    ]
    shown = ", ".join(f"{key}: {settings[key]}" for key in named or settings)
    return UserError(field, shown or "(none)", f"settings that this LXD takes, but it says: {told}")
