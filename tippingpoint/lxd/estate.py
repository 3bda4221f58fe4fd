"""What a run has in an LXD: its way in, an image, and projects with their profile. All of it carries the run's mark."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from tippingpoint.errors import TargetError, UserError
from tippingpoint.ledger import LxdEntry
from tippingpoint.lxd import trust
from tippingpoint.lxd.access import Access, config_directory, from_file, from_remote, from_socket
from tippingpoint.lxd.client import LxdClient
from tippingpoint.lxd.errors import LxdError, LxdExists, LxdGone
from tippingpoint.lxd.grounds import LxdGrounds
from tippingpoint.lxd.image import fingerprint, tiny_image
from tippingpoint.plan_targets import LxdTarget
from tippingpoint.secret_files import read_text

MARK = "user.tippingpoint"
"""The setting of projects, profiles and instances that names the run that made them."""
TINY = "tiny"
PATIENCE = 60.0
"""Seconds that an answer, and what passes by itself, is waited for outside of what is measured."""

_PASSING = ("locked", "quorum", "busy", "unreachable", "timeout")
_FEATURES = {"features.images": "false", "features.profiles": "true", "features.storage.volumes": "true"}
T = TypeVar("T")


# Who we are there


def access_of(target: LxdTarget, store: Path | None, identity: Path | None) -> Access:
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
        identity = directory / "trust"
        trust.make_identity(identity, _trust_name(run_id))
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
    """See that LXD lets us in, with a trust token by redeeming it; TargetError or UserError when it does not."""
    if entry.identity is not None and not await _is_trusted(entry.identity):
        assert entry.target.token is not None
        try:
            await trust.redeem(_token(entry.target.token), entry.identity, _trust_name(entry.run))
        except TargetError:
            if not await _is_trusted(entry.identity):  # the server says so, or it was never asked
                discard_identity(entry.identity)
            raise
    access = access_of(entry.target, entry.store, entry.identity)
    client = LxdClient(access)
    try:
        await greet(client, access)
    finally:
        await client.close()


async def greet(client: LxdClient, access: Access) -> dict[str, Any]:
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
    """Remove the key pair that nobody trusts (any more)."""
    shutil.rmtree(identity, ignore_errors=True)


def _token(path: Path) -> str:
    return read_text("target.token", path, "a trust token (lxc config trust add)", private=True)


def _trust_name(run_id: str) -> str:
    return f"tippingpoint-{run_id}"


# What is taken before the workers begin


async def take(entry: LxdEntry, *, reachable: bool = False) -> LxdGrounds:
    """Find or import the image, and make the first project, so that refused settings are known before any load.

    `reachable` says that containers are to have an address, for which they need a network.
    UserError names what of the plan is not there, or is refused, and what would be accepted; TargetError says that
    LXD failed.
    """
    access = access_of(entry.target, entry.store, entry.identity)
    client = LxdClient(access)
    try:
        site = await find_site(client, entry.target)
        if reachable and not site.has_network:
            accepted = "one of its networks, as the profile default has none; or workload.until=started"
            raise UserError("target.network", "missing", accepted)
        grounds = LxdGrounds(
            run=entry.run,
            prefix=entry.prefix,
            image=await _image(client, entry),
            pool=site.devices["root"]["pool"],
            network=site.network,
            target=entry.target,
            store=entry.store,
            identity=entry.identity,
        )
        await make_group(client, grounds, site, 0)
        return grounds
    except LxdError as problem:
        raise TargetError(access.name, str(problem), "an LXD that lets us make projects") from None
    finally:
        await client.close()


@dataclass(frozen=True)
class Site:
    """What a run's containers are put on: the devices of their profile."""

    devices: dict[str, dict[str, str]]
    """At least `root`, a disk on a pool."""
    network: str
    """The network of their first interface; empty where they have none, or one on a bridge that LXD does not manage."""

    @property
    def has_network(self) -> bool:
        """Whether they have any interface, on whatever network."""
        return any(device["type"] == "nic" for device in self.devices.values())


async def find_site(client: LxdClient, target: LxdTarget) -> Site:
    """The pool and the network that a plan names, or else those of the server's profile `default`.

    UserError where one is not there, with those that are.
    """
    profile = await _get(client, "/1.0/profiles/default")
    known: dict[str, dict[str, str]] = profile.get("devices") or {}
    disks = [device for device in known.values() if device.get("type") == "disk"]
    roots = [disk for disk in disks if disk.get("path") == "/"] or [{"type": "disk", "path": "/"}]
    nics = {name: device for name, device in known.items() if device.get("type") == "nic"}
    pools = [_last(url) for url in await _get(client, "/1.0/storage-pools")]
    pool = target.pool if target.pool is not None else roots[0].get("pool")
    if pool is None:
        raise UserError("target.pool", "missing", f"{_one_of(pools)}: the profile default has no root disk")
    if pool not in pools:
        raise UserError("target.pool", pool, _one_of(pools))
    if target.network is not None:
        networks = [
            network["name"]
            for network in await _get(client, "/1.0/networks", recursion=1)
            if network.get("managed")
        ]
        if target.network not in networks:
            raise UserError("target.network", target.network, _one_of(networks))
        nics = {"eth0": {"type": "nic", "name": "eth0", "network": target.network}}
    first = "eth0" if "eth0" in nics else next(iter(nics), "")
    network = nics[first].get("network", "") if first else ""
    return Site({"root": {**roots[0], "pool": pool}, **nics}, network)


async def make_group(client: LxdClient, grounds: LxdGrounds, site: Site, group: int) -> None:
    """Make a group's project and its profile, unless they are there; UserError where LXD refuses a setting.

    LxdError where a project of that name is there that this run did not make.
    """
    name, target = project_name(grounds.prefix, group), grounds.target
    for setting, value in target.project.items():
        if _FEATURES.get(setting, value) != value:
            accepted = f"{_FEATURES[setting]}, which is what the workload needs"
            raise UserError("target.project", f"{setting}: {value}", accepted)
    description = f"Tipping Point, run {grounds.run}"
    project = {
        "name": name,
        "description": description,
        "config": {**target.project, **_FEATURES, MARK: grounds.run},
    }
    try:
        await insist(lambda: client.operate("POST", "/1.0/projects", project))
    except LxdExists:
        there = await _get(client, f"/1.0/projects/{name}")
        if there["config"].get(MARK) != grounds.run:
            raise LxdError(f"project {name}: there already, and not made by this run") from None
    except LxdError as problem:
        if problem.code == 400 or problem.kind == "setting":
            raise _refused("target.project", target.project, problem) from None
        raise
    path, query = "/1.0/profiles/default", {"project": name}
    profile: dict[str, Any] = {
        "description": description,
        "config": {**target.profile, MARK: grounds.run},
        "devices": site.devices,
    }
    there = await _get(client, path, **query)
    if any(there.get(field) != value for field, value in profile.items()):
        try:
            await insist(lambda: client.operate("PUT", path, profile, **query))
        except LxdError as problem:
            # LXD has one code, 500, for its own failures and for settings it refuses.
            if target.profile and problem.kind in ("setting", "other"):
                raise _refused("target.profile", target.profile, problem) from None
            raise


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """What a call returns, made again while it fails of what passes by itself, for PATIENCE seconds in all."""
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + PATIENCE, 0.2
    while True:
        try:
            async with asyncio.timeout_at(until):
                return await call()
        except TimeoutError:
            raise LxdError(f"no answer within {PATIENCE:.0f} s", "timeout") from None
        except LxdError as problem:
            if problem.kind not in _PASSING or loop.time() + pause > until:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, 2.0)


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


async def _image(client: LxdClient, entry: LxdEntry) -> str:
    """The fingerprint to make instances from; UserError when there is no such image, or it is for virtual machines."""
    named = entry.target.image
    if not entry.image:
        return await _image_on_server(client, named)
    try:
        await client.get(f"/1.0/images/{entry.image}")
        return entry.image
    except LxdError as problem:
        if problem.code != 404:
            raise
    data = tiny_image(entry.run) if named == TINY else Path(named)
    if isinstance(data, Path) and not data.is_file():
        raise UserError("target.image", named, "the file that was there when the run began")
    headers = {"X-LXD-fingerprint": entry.image, "X-LXD-filename": image_mark(entry.run)}
    try:
        await client.upload("/1.0/images", data, headers)  # as long as it takes
    except LxdExists:
        pass
    except LxdError as problem:
        if problem.kind not in ("image", "other"):
            raise
        accepted = f"a unified LXD image of a container, but LXD says: {problem}"
        raise UserError("target.image", named, accepted) from None
    return entry.image


async def _image_on_server(client: LxdClient, named: str) -> str:
    known = quote(named, safe="")
    try:
        found = (await client.get(f"/1.0/images/aliases/{known}"))["target"]
    except LxdError as problem:
        if problem.code != 404:
            raise
        found = known if re.fullmatch("[0-9a-f]{4,64}", named) else None
    try:
        image = await client.get(f"/1.0/images/{found}") if found is not None else None
    except LxdError as problem:
        if problem.code not in (400, 404):  # not there, or a prefix that several have
            raise
        image = None
    if image is None:
        aliases = [_last(url) for url in await _get(client, "/1.0/images/aliases")]
        there = _one_of(aliases) if aliases else "(none is there)"
        accepted = f"an alias or fingerprint on the server {there}, a file, or tiny"
        raise UserError("target.image", named, accepted.replace("server one of", "server, one of"))
    if image.get("type", "container") != "container":
        raise UserError("target.image", named, f"an image of a container, not a {image['type']}")
    return image["fingerprint"]


async def _get(client: LxdClient, path: str, **query: object) -> Any:
    return await insist(lambda: client.get(path, **query))


def _last(url: str) -> str:
    """What a URL of the API names."""
    return url.partition("?")[0].rpartition("/")[2]


def _one_of(names: list[str]) -> str:
    if not names:
        return "one to be made first: there is none"
    return f"one of {', '.join(sorted(names)[:10])}" + (", ..." if len(names) > 10 else "")


def _refused(field: str, settings: Mapping[str, str], problem: LxdError) -> UserError:
    """The error for settings that LXD refused: the one it names, or whose value it names, or else all of them."""
    told = str(problem)
    named = [key for key in settings if key in told] or [
        key for key, value in settings.items() if value in told
    ]
    shown = ", ".join(f"{key}: {settings[key]}" for key in named or settings)
    return UserError(field, shown or "(none)", f"settings that this LXD takes, but it says: {told}")
