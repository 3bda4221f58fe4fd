"""Removal of everything that a run created in LXD: instances, projects with their profile, image, and trust."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tippingpoint.errors import TargetError, UserError
from tippingpoint.targets.lxd import trust
from tippingpoint.targets.lxd.client import LxdClient
from tippingpoint.targets.lxd.errors import LxdError
from tippingpoint.targets.lxd.ledger import LxdEntry
from tippingpoint.targets.lxd.provision import (
    MARK,
    access_of,
    delete_instance,
    discard_identity,
    greet,
    group_of,
    image_mark,
    is_marked,
    number_of,
    trust_name,
    was_redeemed,
)
from tippingpoint.targets.lxd.retrying import REFUSED, ask, ask_unless_refused, insist, last
from tippingpoint.workloads.load import OnProgress, untold

AT_ONCE = 8
"""Concurrent removals. On a cluster of 3 on 2 cores, 30 took 14 s one by one, and 4 to 6 s with 4, 8 or 16."""
STUCK_AFTER = 120.0
"""Seconds without progress after which a removal ends. LXD reports an offline member within 41 s."""
OFFLINE_LOOKS = 30
"""Looks, a second apart, at an offline member before its contents are left there: three of LXD's heartbeats. A living
member whose heartbeat is late is offline for a moment. (This counts looks and not seconds, because all heartbeats are
late after a standstill.)"""

_PAUSE = 1.0


async def remove(entry: LxdEntry, progress: OnProgress = untold) -> int:
    """Remove what remains of a run; returns the number of instances, projects, images and trust entries removed.

    The run's things have both its prefix in their name and its mark. Things that LXD was still creating when the run
    ended are awaited. Projects that the plan named stay, with all things of others.

    TargetError names what could not be removed: instances on a member that stays offline, or a project with things
    of others in it. Everything else is gone then, but the client certificate is still trusted. A certificate that is
    restricted to projects stays trusted in any case, and its key is removed.
    """
    if entry.identity is not None and not was_redeemed(entry.identity):
        discard_identity(entry.identity)
        return 0
    access = access_of(entry.target, entry.store, entry.identity)
    if entry.identity is not None and not trust.is_named(access, trust_name(entry.run)):
        raise UserError("ledger", str(entry.identity), f"the key pair of run {entry.run}")
    client = LxdClient(access)
    try:
        server = await greet(client, access)
        removal = _Removal(client, entry, bool(server["environment"].get("server_clustered")), progress)
        try:
            kept = await removal.run()
            removed = removal.removed
            for project in entry.target.projects or [""]:
                try:
                    removed += await _remove_image(client, entry, project)
                except LxdError as problem:  # such as a member that is down and may have the image
                    kept.append(f"image {entry.image[:12]}: {problem}")
            if not kept and entry.identity is not None:
                removed += await trust.end(client, access)
        except LxdError as problem:
            raise TargetError(access.name, str(problem), "an LXD that permits the removal") from None
    finally:
        await client.close()
    if kept:
        raise TargetError(access.name, "; ".join(kept), "this to be resolved by you, then another clean")
    if entry.identity is not None:
        discard_identity(entry.identity)
    return removed


@dataclass(frozen=True)
class _Project:
    """A project, the run's instances with the member of each, and things of others that prevent its removal."""

    name: str
    instances: dict[str, str]
    foreign: list[str]


class _Removal:
    """The removal of one run's projects and their contents, or of its things in projects that the plan named.

    `removed` counts both.
    """

    def __init__(self, client: LxdClient, entry: LxdEntry, clustered: bool, progress: OnProgress) -> None:
        self._client = client
        self._progress = progress
        self._goal = 0
        self._entry = entry
        self._clustered = clustered
        self._problem = ""
        self._empty_since: dict[str, float] = {}
        self._done: set[str] = set()
        self._refused: list[str] = []
        self.removed = 0

    async def run(self) -> list[str]:
        """Remove everything possible; returns the reasons for the rest. LxdError if LXD fails or progress stops."""
        loop = asyncio.get_running_loop()
        moved = loop.time()
        while projects := [await self._look(name) for name in await self._projects()]:
            offline = await self._offline()
            away = Counter(
                member for project in projects for member in project.instances.values() if member in offline
            )
            before = self.removed
            left = sum((not self._stay) + len(project.instances) for project in projects)
            self._goal = max(self._goal, before + left)
            await self._remove_instances(projects, offline)
            waited_for = 0
            for project in projects:
                if offline.isdisjoint(project.instances.values()) and not project.foreign:
                    done = self._is_left if self._stay else self._removed_project
                    waited_for += not await done(project.name)
                else:
                    waited_for += sum(member not in offline for member in project.instances.values())
            if self.removed > before:
                moved = loop.time()
            elif not waited_for:
                if away and loop.time() - moved <= STUCK_AFTER and await self._is_back({*away}):
                    continue
                return (
                    [
                        f"{member} is offline with {count} of this run's containers"
                        for member, count in sorted(away.items())
                    ]
                    + [
                        f"project {project.name} contains {project.foreign[0]}"
                        for project in projects
                        if project.foreign
                    ]
                    + self._refused
                )
            elif loop.time() - moved > STUCK_AFTER:
                raise LxdError(f"{projects[0].name}: still there: {self._problem}")
            else:
                await asyncio.sleep(_PAUSE)
        return self._refused

    @property
    def _stay(self) -> bool:
        """Whether the plan named the projects, so that they are kept."""
        return bool(self._entry.target.projects)

    async def _projects(self) -> list[str]:
        """List the run's projects, by prefix and mark; or the plan's projects that may still have things of the run."""
        if self._stay:
            return [name for name in self._entry.target.projects if name not in self._done]
        listed = await ask(self._client, "/1.0/projects", recursion=1)
        return [
            project["name"]
            for project in listed
            if group_of(self._entry.prefix, project["name"]) is not None
            and project["config"].get(MARK) == self._entry.run
        ]

    async def _look(self, project: str) -> _Project:
        """Return the contents of one project."""
        if self._stay:
            return _Project(project, await self._ours_beside_others(project), [])
        listed: list[dict[str, Any]] = await ask(self._client, "/1.0/instances", project=project, recursion=1)
        used: dict[str, Any] = await ask(self._client, f"/1.0/projects/{project}")
        ours = self._ours(group_of(self._entry.prefix, project), listed)
        paths = [url.partition("?")[0].removeprefix("/1.0/") for url in used.get("used_by") or ()]
        known = {"profiles/default", *(f"instances/{instance['name']}" for instance in listed)}
        others = [path for path in paths if path not in known]
        strange = [f"instance {instance['name']}" for instance in listed if instance["name"] not in ours]
        return _Project(project, ours, strange + others)

    def _ours(self, group: int | None, listed: list[dict[str, Any]]) -> dict[str, str]:
        """Return the run's instances in a project, with the member of each."""
        prefix = self._entry.prefix
        return {
            instance["name"]: instance["location"] if self._clustered else ""
            for instance in listed
            if group is not None
            and number_of(prefix, group, instance["name"]) is not None
            and is_marked(self._entry.run, instance)
        }

    async def _ours_beside_others(self, project: str) -> dict[str, str]:
        """The same for a project that the plan named. Nothing is left if the project is gone, or no longer
        permitted."""
        try:
            listed: list[dict[str, Any]] = await ask(
                self._client, "/1.0/instances", project=project, recursion=1
            )
        except LxdError as problem:
            if problem.code not in (REFUSED, 404):
                raise
            self._done.add(project)
            if problem.code == REFUSED:
                self._refused.append(f"project {project}: the client certificate may no longer use it")
            return {}
        return self._ours(self._entry.target.projects.index(project), listed)

    async def _is_left(self, project: str) -> bool:
        """Whether a project that the plan named has had nothing of the run for a while, not even in creation.

        The wait is for the run's last calls, which may still be on their way.
        """
        if project in self._done:
            return True
        now = asyncio.get_running_loop().time()
        if await self._is_making(project) or await self._ours_beside_others(project):
            self._empty_since.pop(project, None)
            return False
        if now - self._empty_since.setdefault(project, now) < _PAUSE:
            return False
        self._done.add(project)
        return True

    async def _is_making(self, project: str) -> bool:
        """Whether LXD reports an operation on one of the run's instances."""
        group = self._entry.target.projects.index(project)
        try:
            async with asyncio.timeout(STUCK_AFTER / 4):
                listed = await self._client.get("/1.0/operations", recursion=1, project=project)
        except (LxdError, TimeoutError):  # a member that is gone cannot report
            return False
        by_status: dict[str, list[dict[str, Any]]] = listed or {}
        going_on = [each for several in by_status.values() for each in several if each["status_code"] < 200]
        resources: list[dict[str, list[str]]] = [each["resources"] or {} for each in going_on]
        names = [last(url) for those in resources for urls in those.values() for url in urls]
        return any(number_of(self._entry.prefix, group, name) is not None for name in names)

    async def _offline(self) -> set[str]:
        """Return the members that LXD reports as offline."""
        listed: list[dict[str, Any]] | None = None
        if self._clustered:
            listed = await ask_unless_refused(self._client, "/1.0/cluster/members", recursion=1)
        if listed is None:
            return set()
        self._client.add_addresses(member["url"] for member in listed)
        return {member["server_name"] for member in listed if member["status"].lower() == "offline"}

    async def _is_back(self, members: set[str]) -> bool:
        """Wait a while for one of these offline members to be online, or no longer in the cluster."""
        for _ in range(OFFLINE_LOOKS):
            await asyncio.sleep(_PAUSE)
            if not members <= await self._offline():
                return True
        return False

    async def _remove_instances(self, projects: list[_Project], offline: set[str]) -> None:
        """Try once to remove each instance that is not on an offline member; busy ones are tried again next time."""
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(project: str, name: str) -> None:
            async with at_once:
                try:
                    async with asyncio.timeout(STUCK_AFTER):
                        await delete_instance(self._client, project, name)
                    self._gone()
                except LxdError as problem:
                    self._problem = f"{name}: {problem}"
                except TimeoutError:
                    self._problem = f"{name}: no answer within {STUCK_AFTER:.0f} s"

        async with asyncio.TaskGroup() as removing:
            for project in projects:
                for name, member in project.instances.items():
                    if member not in offline:
                        removing.create_task(one(project.name, name))

    async def _removed_project(self, name: str) -> bool:
        """Try to remove a project; returns whether it is gone. It stays while it contains something, even in
        creation."""
        try:
            await insist(lambda: self._client.operate("DELETE", f"/1.0/projects/{name}"))
        except LxdError as problem:
            if problem.code != 404:
                self._problem = str(problem)
                return False
            return True
        self._gone()
        return True

    def _gone(self) -> None:
        self.removed += 1
        self._progress("containers and projects", self.removed, max(self._goal, self.removed))


async def _remove_image(client: LxdClient, entry: LxdEntry, project: str) -> int:
    """Remove the image that the run imported, in this project if one is named; returns how many were removed."""
    path, query = f"/1.0/images/{entry.image}", {"project": project} if project else {}
    if not entry.image:
        return 0
    try:
        if (await ask(client, path, **query)).get("filename") != image_mark(entry.run):
            return 0  # it existed before the run
        await insist(lambda: client.operate("DELETE", path, **query))
    except LxdError as problem:
        # A project that is no longer permitted has been reported with its instances.
        if problem.code != 404 and not (project and problem.code == REFUSED):
            raise
        return 0
    return 1
