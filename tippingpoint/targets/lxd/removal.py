"""The removal of what a run made in an LXD: instances, projects with their profile, the image, and our trust."""

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
"""Instances removed at a time: 30 on a cluster of 3 on 2 cores took 14 s one by one, 4 to 6 s with 4, 8 or 16."""
STUCK_AFTER = 120.0
"""Seconds after which a removal ends that nothing more is removed by; LXD says within 41 s that a member is offline."""

_PAUSE = 1.0


async def remove(entry: LxdEntry, progress: OnProgress = untold) -> int:
    """Remove what a run made and is still there; how many instances, projects, images and trust entries that was.

    Ours is what has both the run's prefix in its name and the run's mark. What LXD was still making when the run
    ended is waited for. Projects that the plan named stay, with what others have in them. TargetError names what could
    not go: instances on a member that is offline, or a project that somebody put something else into; all the rest is
    gone then, but we are still trusted. A certificate that is restricted to projects stays trusted, without its key.
    """
    if entry.identity is not None and not was_redeemed(entry.identity):
        discard_identity(entry.identity)
        return 0
    access = access_of(entry.target, entry.store, entry.identity)
    if entry.identity is not None and not trust.is_named(access, trust_name(entry.run)):
        raise UserError("ledger", str(entry.identity), f"the key pair made for run {entry.run}")
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
                except LxdError as problem:  # that a member is down, on which it may be, too
                    kept.append(f"image {entry.image[:12]}: {problem}")
            if not kept and entry.identity is not None:
                removed += await trust.end(client, access)
        except LxdError as problem:
            raise TargetError(access.name, str(problem), "an LXD that lets us clean up") from None
    finally:
        await client.close()
    if kept:
        raise TargetError(access.name, "; ".join(kept), "these to be seen to by you, and another clean")
    if entry.identity is not None:
        discard_identity(entry.identity)
    return removed


@dataclass(frozen=True)
class _Project:
    """A project, its instances of ours with the member each is on, and what of others is in the way of its removal."""

    name: str
    instances: dict[str, str]
    foreign: list[str]


class _Removal:
    """The removal of one run's projects and what is in them, or of what is in those that the plan named; `removed`
    counts both."""

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
        """Remove what can be; why the rest was kept. LxdError when LXD fails, or nothing more goes."""
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
                return (
                    [
                        f"{member} is offline with {count} of this run's containers"
                        for member, count in sorted(away.items())
                    ]
                    + [
                        f"project {project.name} has {project.foreign[0]} in it"
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
        """Whether the projects were there before the run."""
        return bool(self._entry.target.projects)

    async def _projects(self) -> list[str]:
        """Our projects, by prefix and mark; or those that the plan named and that may have something of ours."""
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
        """What is in one of our projects."""
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
        """Those of a project's instances that are the run's, with the member each is on."""
        prefix = self._entry.prefix
        return {
            instance["name"]: instance["location"] if self._clustered else ""
            for instance in listed
            if group is not None
            and number_of(prefix, group, instance["name"]) is not None
            and is_marked(self._entry.run, instance)
        }

    async def _ours_beside_others(self, project: str) -> dict[str, str]:
        """The same of a project that the plan named; it is done with where it is gone, or kept from us."""
        try:
            listed: list[dict[str, Any]] = await ask(
                self._client, "/1.0/instances", project=project, recursion=1
            )
        except LxdError as problem:
            if problem.code not in (REFUSED, 404):
                raise
            self._done.add(project)
            if problem.code == REFUSED:
                self._refused.append(f"project {project}: our certificate may not use it any more")
            return {}
        return self._ours(self._entry.target.projects.index(project), listed)

    async def _is_left(self, project: str) -> bool:
        """Whether nothing of ours is in a project that the plan named, and was not a moment ago either, nor was being
        made: a call that the run sent last may still be on its way."""
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
        """Whether LXD is at something with an instance of ours, as far as it tells us."""
        group = self._entry.target.projects.index(project)
        try:
            async with asyncio.timeout(STUCK_AFTER / 4):
                listed = await self._client.get("/1.0/operations", recursion=1, project=project)
        except (LxdError, TimeoutError):  # of a member that is gone there is no word
            return False
        by_status: dict[str, list[dict[str, Any]]] = listed or {}
        going_on = [each for several in by_status.values() for each in several if each["status_code"] < 200]
        resources: list[dict[str, list[str]]] = [each["resources"] or {} for each in going_on]
        names = [last(url) for those in resources for urls in those.values() for url in urls]
        return any(number_of(self._entry.prefix, group, name) is not None for name in names)

    async def _offline(self) -> set[str]:
        """The members that LXD says are offline."""
        listed: list[dict[str, Any]] | None = None
        if self._clustered:
            listed = await ask_unless_refused(self._client, "/1.0/cluster/members", recursion=1)
        if listed is None:
            return set()
        self._client.add_addresses(member["url"] for member in listed)
        return {member["server_name"] for member in listed if member["status"].lower() == "offline"}

    async def _remove_instances(self, projects: list[_Project], offline: set[str]) -> None:
        """Try each instance once that is on no offline member; those that are busy are there again next time."""
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
        """Whether a project is gone; not while something is in it, such as what LXD is still making."""
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
    """Remove the image that the run imported, in a project where the plan names some; how many that was."""
    path, query = f"/1.0/images/{entry.image}", {"project": project} if project else {}
    if not entry.image:
        return 0
    try:
        if (await ask(client, path, **query)).get("filename") != image_mark(entry.run):
            return 0  # it was there before the run
        await insist(lambda: client.operate("DELETE", path, **query))
    except LxdError as problem:
        # In a project that is kept from us nothing is known of, which is told of its instances.
        if problem.code != 404 and not (project and problem.code == REFUSED):
            raise
        return 0
    return 1
