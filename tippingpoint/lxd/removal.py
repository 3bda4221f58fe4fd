"""The removal of what a run made in an LXD: instances, projects with their profile, the image, and our trust."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tippingpoint.errors import TargetError
from tippingpoint.ledger import LxdEntry
from tippingpoint.load import Progress, untold
from tippingpoint.lxd.access import Access, der, fingerprint
from tippingpoint.lxd.client import LxdClient
from tippingpoint.lxd.errors import LxdError
from tippingpoint.lxd.estate import (
    MARK,
    access_of,
    delete_instance,
    discard_identity,
    greet,
    group_of,
    image_mark,
    insist,
    number_of,
    was_redeemed,
)

AT_ONCE = 8
"""Instances removed at a time: 30 on a cluster of 3 on 2 cores took 14 s one by one, 4 to 6 s with 4, 8 or 16."""
STUCK_AFTER = 120.0
"""Seconds after which a removal ends that nothing more is removed by; LXD says within 41 s that a member is offline."""

_PAUSE = 1.0


async def remove(entry: LxdEntry, progress: Progress = untold) -> int:
    """Remove what a run made and is still there; how many instances, projects, images and trust entries that was.

    Ours is what has both the run's prefix in its name and the run's mark. What LXD was still making when the run
    ended is waited for. TargetError names what could not go: instances on a member that is offline, or a project
    that somebody put something else into; all the rest is gone then, but we are still trusted.
    """
    if entry.identity is not None and not was_redeemed(entry.identity):
        discard_identity(entry.identity)
        return 0
    access = access_of(entry.target, entry.store, entry.identity)
    client = LxdClient(access)
    try:
        server = await greet(client, access)
        removal = _Removal(client, entry, bool(server["environment"].get("server_clustered")), progress)
        try:
            kept = await removal.run()
            removed = removal.removed
            try:
                removed += await _remove_image(client, entry)
            except LxdError as problem:  # that a member is down, on which it may be, too
                kept.append(f"image {entry.image[:12]}: {problem}")
            if not kept and entry.identity is not None:
                removed += await _end_trust(client, access)
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
    """A project of ours, its instances of ours with the member each is on, and what of others is in it."""

    name: str
    instances: dict[str, str]
    foreign: list[str]


class _Removal:
    """The removal of one run's projects and what is in them; `removed` counts both."""

    def __init__(self, client: LxdClient, entry: LxdEntry, clustered: bool, progress: Progress) -> None:
        self._client = client
        self._progress = progress
        self._goal = 0
        self._entry = entry
        self._clustered = clustered
        self._problem = ""
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
            left = sum(1 + len(project.instances) for project in projects)
            self._goal = max(self._goal, before + left)
            await self._remove_instances(projects, offline)
            waited_for = 0
            for project in projects:
                if offline.isdisjoint(project.instances.values()) and not project.foreign:
                    waited_for += not await self._removed_project(project.name)
                else:
                    waited_for += sum(member not in offline for member in project.instances.values())
            if self.removed > before:
                moved = loop.time()
            elif not waited_for:
                return [
                    f"{member} is offline with {count} of this run's containers"
                    for member, count in sorted(away.items())
                ] + [
                    f"project {project.name} has {project.foreign[0]} in it"
                    for project in projects
                    if project.foreign
                ]
            elif loop.time() - moved > STUCK_AFTER:
                raise LxdError(f"{projects[0].name}: still there: {self._problem}")
            else:
                await asyncio.sleep(_PAUSE)
        return []

    async def _projects(self) -> list[str]:
        """Our projects, by prefix and mark."""
        listed = await insist(lambda: self._client.get("/1.0/projects", recursion=1))
        return [
            project["name"]
            for project in listed
            if group_of(self._entry.prefix, project["name"]) is not None
            and project["config"].get(MARK) == self._entry.run
        ]

    async def _look(self, project: str) -> _Project:
        """What is in one of our projects."""
        query = {"project": project, "recursion": 1}
        listed: list[dict[str, Any]] = await insist(lambda: self._client.get("/1.0/instances", **query))
        used: dict[str, Any] = await insist(lambda: self._client.get(f"/1.0/projects/{project}"))
        group = group_of(self._entry.prefix, project)
        assert group is not None
        ours = {
            instance["name"]: instance["location"] if self._clustered else ""
            for instance in listed
            if number_of(self._entry.prefix, group, instance["name"]) is not None
            and self._is_marked(instance["config"])
        }
        paths = [url.partition("?")[0].removeprefix("/1.0/") for url in used.get("used_by") or ()]
        known = {"profiles/default", *(f"instances/{instance['name']}" for instance in listed)}
        others = [path for path in paths if path not in known]
        strange = [f"instance {instance['name']}" for instance in listed if instance["name"] not in ours]
        return _Project(project, ours, strange + others)

    def _is_marked(self, config: dict[str, str] | None) -> bool:
        # Of what is on a member that does not answer LXD knows the name alone; it is in a project of ours.
        return config is None or config.get(MARK) == self._entry.run

    async def _offline(self) -> set[str]:
        """The members that LXD says are offline."""
        if not self._clustered:
            return set()
        listed: list[dict[str, Any]] = await insist(
            lambda: self._client.get("/1.0/cluster/members", recursion=1)
        )
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


async def _remove_image(client: LxdClient, entry: LxdEntry) -> int:
    """Remove the image that the run imported; how many that was."""
    path = f"/1.0/images/{entry.image}"
    if not entry.image:
        return 0
    try:
        if (await insist(lambda: client.get(path))).get("filename") != image_mark(entry.run):
            return 0  # it was there before the run
        await insist(lambda: client.operate("DELETE", path))
    except LxdError as problem:
        if problem.code != 404:
            raise
        return 0
    return 1


async def _end_trust(client: LxdClient, access: Access) -> int:
    """Have the server trust us no more, which is the last thing we ask of it; how many entries that was."""
    ours = fingerprint(der(access.certificate))
    await insist(lambda: client.operate("DELETE", f"/1.0/certificates/{ours}"))
    return 1
