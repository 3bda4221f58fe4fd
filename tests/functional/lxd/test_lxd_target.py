"""The LXD target on a real cluster: what the spawn workload is promised, what is refused, and what is cleaned up."""

from __future__ import annotations

import asyncio
import io
import json
import platform
import tarfile
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop
import yaml

from lab.lxd.access import make_client_certificate, write_credentials
from lab.lxd.cluster import LxdLab
from tippingpoint.errors import TargetError, UserError
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.targets.lxd.capacity import check_room
from tippingpoint.targets.lxd.image import fingerprint as image_fingerprint
from tippingpoint.targets.lxd.image import tiny_image
from tippingpoint.targets.lxd.ledger import LxdEntry
from tippingpoint.targets.lxd.plan import OBSERVATIONS, LxdTarget
from tippingpoint.targets.lxd.provision import new_entry, project_name, reach, take
from tippingpoint.targets.lxd.removal import remove
from tippingpoint.targets.lxd.spawn import LxdInstances
from tippingpoint.workloads.spawn.target import Exists, Gone, Item, Seen, SpawnFailed, SpawnTarget

FIRST, SECOND = Item(0, 0), Item(0, 1)
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(work)


def entry_of(lab: LxdLab, directory: Path, **fields: Any) -> LxdEntry:
    """What a run of its own will make in this lab, from an image that is there unless another one is named."""
    run_id = uuid.uuid4().hex
    ways = {"remote", "credentials", "token", "socket"}
    where = {} if ways & fields.keys() else {"credentials": lab.credentials}
    target = LxdTarget.model_validate({"kind": "lxd", "image": lab.image("tiny"), **where, **fields})
    return new_entry(target, run_id, name_prefix(run_id), directory)


@asynccontextmanager
async def taken(entry: LxdEntry, groups: int = 1) -> AsyncIterator[LxdInstances]:
    """A worker's access to what the run has taken, groups prepared; all of it is removed at the end."""
    await reach(entry)
    try:
        instances = LxdInstances(await take(entry), 0)
        try:
            await instances.open()
            await instances.prepare(range(groups), lambda *_: None)
            yield instances
        finally:
            await instances.close()
    finally:
        await remove(entry)


def everything(lab: LxdLab) -> dict[str, Any]:
    """What a person sees of what may be made: instances, projects, images and trust."""
    listed = {
        "instances": "instances?recursion=1&all-projects=true",
        "projects": "projects?recursion=1",
        "images": "images?recursion=1",
        "trust": "certificates?recursion=1",
    }
    there = {what: lab.query(f"/1.0/{path}") for what, path in listed.items()}
    return {
        "instances": sorted((each["project"], each["name"]) for each in there["instances"]),
        "projects": sorted(each["name"] for each in there["projects"]),
        "images": sorted(each["fingerprint"] for each in there["images"]),
        "trust": sorted(each["fingerprint"] for each in there["trust"]),
    }


async def seen(target: SpawnTarget, item: Item, until: Callable[[Seen], bool]) -> Seen:
    """How a list shows a thing once it shows it so."""
    async with asyncio.timeout(600):
        while True:
            there = await target.list_group(item.group, addresses=True)
            if item in there and until(there[item]):
                return there[item]
            await asyncio.sleep(0.3)


# The life of a thing


def test_a_container_is_made_started_reached_probed_and_removed(lxd: LxdLab, tmp_path: Path) -> None:
    async def live() -> None:
        async with taken(entry_of(lxd, tmp_path)) as target:
            await target.create(FIRST, "m2")
            assert await target.list_group(0, addresses=True) == {FIRST: Seen(False, "m2")}
            with pytest.raises(Exists):
                await target.create(FIRST, "m3")
            await target.start(FIRST)
            await target.start(FIRST)  # fine when it runs already
            assert await seen(target, FIRST, lambda it: it.address) == Seen(True, "m2", address=True)
            assert await target.list_group(0, addresses=False) == {FIRST: Seen(True, "m2")}
            await target.probe(FIRST)
            await target.delete(FIRST)
            await target.delete(FIRST)  # fine when it is not there
            assert await target.list_group(0, addresses=False) == {}

    run(live())


def test_what_is_not_there_can_neither_be_started_nor_probed(lxd: LxdLab, tmp_path: Path) -> None:
    async def miss() -> None:
        async with taken(entry_of(lxd, tmp_path)) as target:
            with pytest.raises(Gone):
                await target.start(FIRST)
            with pytest.raises(Gone):
                await target.probe(FIRST)
            await target.create(FIRST, None)
            with pytest.raises(SpawnFailed, match="not running"):
                await target.probe(FIRST)

    run(miss())


def test_the_same_number_in_two_groups_is_two_containers_on_one_network(lxd: LxdLab, tmp_path: Path) -> None:
    async def both() -> None:
        async with taken(entry_of(lxd, tmp_path), groups=2) as target:
            items = [Item(0, 7), Item(1, 7)]
            for item in items:
                await target.create(item, "m1")
                await target.start(item)
            assert [len(await target.list_group(group, addresses=False)) for group in (0, 1)] == [1, 1]

    run(both())


def test_the_members_and_who_leads_are_told(lxd: LxdLab, tmp_path: Path) -> None:
    async def tell() -> None:
        async with taken(entry_of(lxd, tmp_path)) as target, asyncio.timeout(600):
            while True:
                members = await target.members()
                told = [(member.name, member.online, member.takes) for member in members]
                leading = [member.name for member in members if member.leader]
                # (a member whose heartbeat is late is offline for a moment, and another one may lead by now)
                if told == online and leading == [await asyncio.to_thread(lxd.leader)]:
                    return
                await asyncio.sleep(0.3)

    online = [(name, True, True) for name in ("m1", "m2", "m3")]
    run(tell())


def test_all_that_users_ask_for_is_asked_for(lxd: LxdLab, tmp_path: Path) -> None:
    async def ask() -> dict[str, bool]:
        async with taken(entry_of(lxd, tmp_path)) as target:
            await target.create(FIRST, None)
            assert not await target.observe("exec", 0, None)
            await target.start(FIRST)
            return {what: await target.observe(what, 0, FIRST) for what in OBSERVATIONS}

    assert run(ask()) == dict.fromkeys(OBSERVATIONS, True)


def test_a_single_server_is_one_member_whose_cluster_there_is_none_to_list(
    lxd_single: LxdLab, tmp_path: Path
) -> None:
    entry = entry_of(lxd_single, tmp_path, socket=lxd_single.unix_socket())

    async def live() -> None:
        async with taken(entry) as target:
            (member,) = await target.members()
            assert member.online
            assert not member.leader
            await target.create(FIRST, member.name)
            await target.start(FIRST)
            assert await target.list_group(0, addresses=False) == {FIRST: Seen(True, member.name)}
            assert not await target.observe("cluster-list", 0, None)

    before = everything(lxd_single)
    run(live())
    assert everything(lxd_single) == before


# What the plan says of them


def test_settings_of_the_plan_are_those_of_the_projects_and_their_profiles(
    lxd: LxdLab, tmp_path: Path
) -> None:
    entry = entry_of(lxd, tmp_path, project={"limits.instances": 1}, profile={"limits.memory": "64MiB"})

    async def fill() -> SpawnFailed:
        async with taken(entry) as target:
            project = json.loads(lxd.lxc("query", f"/1.0/projects/{project_name(entry.prefix, 0)}"))
            profile = json.loads(
                lxd.lxc("query", f"/1.0/profiles/default?project={project_name(entry.prefix, 0)}")
            )
            assert project["config"]["user.tippingpoint"] == entry.run
            assert profile["config"]["limits.memory"] == "64MiB"
            # LXD minds the limits of a cluster's projects only where it is told the member (canonical/lxd#17818).
            await target.create(FIRST, "m2")
            with pytest.raises(SpawnFailed) as refused:
                await target.create(SECOND, "m2")
            return refused.value

    assert run(fill()).kind == "quota"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"project": {"limits.foo": "2"}}, "target.project: limits.foo: 2: expected "),
        ({"project": {"limits.instances": "-1"}}, "target.project: limits.instances: -1: expected "),
        (
            {"project": {"features.profiles": "false"}},
            "target.project: features.profiles: false: expected true",
        ),
        ({"profile": {"limits.memory": "64 foo"}}, "target.profile: limits.memory: 64 foo: expected "),
        ({"profile": {"limits.foo": "1"}}, "target.profile: limits.foo: 1: expected "),
        ({"pool": "fast"}, "target.pool: fast: expected one of default"),
        ({"network": "wide"}, "target.network: wide: expected one of lxdbr0"),
        ({"image": "jammy"}, "target.image: jammy: expected an alias or fingerprint on the server"),
        ({"image": "f" * 12}, "target.image: ffffffffffff: expected an alias or fingerprint on the server"),
    ],
)
def test_what_lxd_does_not_have_or_take_is_refused_in_one_line(
    lxd: LxdLab, tmp_path: Path, fields: dict[str, Any], line: str
) -> None:
    before = everything(lxd)
    entry = entry_of(lxd, tmp_path, **fields)

    async def refuse() -> UserError:
        await reach(entry)
        try:
            with pytest.raises(UserError) as refused:
                await take(entry)
        finally:
            await remove(entry)
        return refused.value

    told = str(run(refuse()))
    assert told.startswith(line)
    assert "\n" not in told
    assert everything(lxd) == before


def test_an_image_file_that_is_none_is_refused_in_one_line(lxd: LxdLab, tmp_path: Path) -> None:
    file = tmp_path / "image"
    file.write_bytes(b"no image at all")
    with pytest.raises(UserError, match=r"^target\.image: .*/image: expected a unified LXD image"):
        run(take(entry_of(lxd, tmp_path, image=str(file))))


def test_an_image_without_properties_is_imported(lxd: LxdLab, tmp_path: Path) -> None:
    """LXD 5.0.2 ends, all of it, when it is asked to add a property to such an image."""
    file = tmp_path / "image.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        metadata = tarfile.TarInfo("metadata.yaml")
        text = f"architecture: {platform.machine()}\ncreation_date: 1577836800\n".encode()
        metadata.size = len(text)
        archive.addfile(metadata, io.BytesIO(text))
        folder = tarfile.TarInfo("rootfs")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(folder)
    entry = entry_of(lxd, tmp_path, image=str(file))
    try:
        assert run(take(entry)).image == image_fingerprint(file)
    finally:
        assert run(remove(entry)) == 2


def test_a_project_of_that_name_that_is_not_ours_is_left_alone(lxd: LxdLab, tmp_path: Path) -> None:
    entry = entry_of(lxd, tmp_path, image="tiny")
    name = project_name(entry.prefix, 0)
    lxd.lxc("project", "create", name)
    try:
        with pytest.raises(TargetError, match="was not created by this run"):
            run(take(entry))
        assert run(remove(entry)) == 1  # the image
        assert name in everything(lxd)["projects"]
    finally:
        lxd.lxc("project", "delete", name)


def test_an_image_that_was_there_is_used_and_stays(lxd: LxdLab, tmp_path: Path) -> None:
    file = tmp_path / "image.tar.gz"
    file.write_bytes(tiny_image("somebody's"))
    lxd.lxc("image", "import", str(file), "--alias", "somebodys")
    before = everything(lxd)
    fingerprint = image_fingerprint(file)

    async def use(image: str) -> str:
        entry = entry_of(lxd, tmp_path, image=image)
        try:
            return (await take(entry)).image
        finally:
            await remove(entry)

    try:
        for image in ("somebodys", fingerprint, fingerprint[:12], str(file)):
            assert run(use(image)) == fingerprint
            assert everything(lxd) == before
    finally:
        lxd.lxc("image", "delete", fingerprint)


# Who we are


def test_a_trust_token_lets_a_run_in_until_it_is_cleaned(lxd: LxdLab, tmp_path: Path) -> None:
    before = everything(lxd)
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(lxd.token())
    entry = entry_of(lxd, tmp_path, token=token)

    async def live() -> list[str]:
        await reach(entry)
        await reach(entry)  # a second run that takes it up
        async with taken(entry) as target:
            await target.create(FIRST, None)
            return everything(lxd)["trust"]

    assert len(run(live())) == len(before["trust"]) + 1
    assert everything(lxd) == before
    assert entry.identity is not None
    assert not entry.identity.exists()
    assert run(remove(entry)) == 0


def test_a_token_that_was_used_is_refused_and_leaves_nothing_to_clean(lxd: LxdLab, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(lxd.token())
    first, second = (entry_of(lxd, tmp_path / name, token=token) for name in ("first", "second"))
    run(reach(first))
    try:
        with pytest.raises(TargetError, match=r"^target\.token: "):
            run(reach(second))
        assert run(remove(second)) == 0
    finally:
        assert run(remove(first)) == 1


def test_a_certificate_that_is_not_trusted_is_refused_in_one_line(lxd: LxdLab, tmp_path: Path) -> None:
    known = yaml.safe_load(lxd.credentials.read_text())
    file = tmp_path / "credentials"
    write_credentials(file, known["addresses"], known["certificate"], make_client_certificate())
    with pytest.raises(TargetError, match="it does not trust the client certificate"):
        run(reach(entry_of(lxd, tmp_path, credentials=file)))


def test_a_remote_is_remembered_by_its_name(
    lxd: LxdLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LXD_CONF", str(lxd.remote_directory()))
    entry = entry_of(lxd, tmp_path, remote=None)
    assert (entry.target.remote, entry.store) == ("lab", lxd.remote_directory())
    monkeypatch.setenv("LXD_CONF", str(tmp_path))
    run(reach(entry))


# Clean


def test_clean_leaves_lxd_as_it_was_and_another_run_untouched(lxd: LxdLab, tmp_path: Path) -> None:
    before = everything(lxd)
    other = entry_of(lxd, tmp_path)
    entry = entry_of(lxd, tmp_path, image="tiny")

    async def made(entry: LxdEntry, items: list[Item]) -> None:
        target = LxdInstances(await take(entry), 0)
        await target.open()
        await target.prepare(range(2), lambda *_: None)
        await asyncio.gather(*(target.create(item, None) for item in items))
        await target.start(items[0])
        await target.close()

    run(made(other, [FIRST]))
    others = everything(lxd)
    run(made(entry, [FIRST, SECOND, Item(1, 0)]))
    assert run(remove(entry)) == 6  # three containers, two projects, the image
    assert everything(lxd) == others
    assert run(remove(entry)) == 0
    assert run(remove(other)) == 3  # one container, two projects, not the image, which it has not brought
    assert everything(lxd) == before


def test_clean_takes_what_lxd_was_still_making_when_the_run_was_killed(lxd: LxdLab, tmp_path: Path) -> None:
    before = everything(lxd)
    entry = entry_of(lxd, tmp_path, image="tiny")

    async def interrupted() -> None:
        target = LxdInstances(await take(entry), 0)
        await target.open()
        making = [asyncio.ensure_future(target.create(Item(0, number), None)) for number in range(12)]
        await asyncio.wait(making, return_when=asyncio.FIRST_COMPLETED)
        for task in making:
            task.cancel()
        await asyncio.wait(making)
        await target.close()

    run(interrupted())
    assert run(remove(entry)) >= 3  # the project, the image, and at least the first
    assert everything(lxd) == before


def test_clean_keeps_a_project_that_somebody_else_uses_and_names_it(lxd: LxdLab, tmp_path: Path) -> None:
    entry = entry_of(lxd, tmp_path)
    project = project_name(entry.prefix, 0)

    async def make() -> None:
        target = LxdInstances(await take(entry), 0)
        await target.open()
        await target.create(FIRST, None)
        await target.close()

    run(make())
    lxd.lxc("profile", "create", "somebodys", "--project", project)
    with pytest.raises(TargetError, match=f"project {project} contains profiles/somebodys"):
        run(remove(entry))
    assert [name for name, _ in everything(lxd)["instances"] if name == project] == []
    lxd.lxc("profile", "delete", "somebodys", "--project", project)
    assert run(remove(entry)) == 1


# Room


@pytest.mark.usefixtures("patient_room")
def test_more_than_the_members_have_room_for_is_refused_with_the_number_that_fits(
    lxd: LxdLab, tmp_path: Path
) -> None:
    entry = entry_of(lxd, tmp_path)
    with pytest.raises(UserError, match=r"expected at most 3,069 more, .* bridge ports") as refused:
        run(check_room(entry, 5000, 1, 3))
    assert refused.value.field == "instances"
    with pytest.raises(UserError, match=r"expected at most [0-9,]+ more, .* memory"):
        run(check_room(entry, 5000, 1 << 19, 3))
    with pytest.raises(UserError, match="members: 4: expected at most 3, the number that are online"):
        run(check_room(entry, 1, 16, 4))
    run(check_room(entry, 60, 1, 3))
    run(check_room(entry, 1_000_000, 0, None))  # they do not run


# Members that go


def test_a_member_that_is_gone_is_evicted_with_what_was_on_it(
    new_lxd: Callable[..., LxdLab], tmp_path: Path
) -> None:
    lab = new_lxd(members=3)
    entry = entry_of(lab, tmp_path, image="tiny")

    async def offline(target: LxdInstances, name: str) -> None:
        async with asyncio.timeout(600):
            while True:
                (seen,) = [seen for seen in await target.members() if seen.name == name]
                if not seen.online and not seen.takes:
                    return
                await asyncio.sleep(0.5)

    async def lose() -> None:
        target = LxdInstances(await take(entry), 2)  # talks to m3, which does not lead
        await target.open()
        await target.create(FIRST, "m3")
        await target.create(SECOND, "m2")
        for item in (FIRST, SECOND):
            await target.start(item)
        assert (await target.list_group(0, addresses=False))[FIRST] == Seen(True, "m3")
        await asyncio.to_thread(lab.kill, "m3")
        await offline(target, "m3")
        # LXD shows ERROR, which says nothing of what is on it: only the member's own status does.
        assert (await target.list_group(0, addresses=True))[FIRST] == Seen(False, "m3", unclear=True)
        with pytest.raises(SpawnFailed) as failed:
            await target.start(FIRST)
        assert failed.value.kind == "unreachable"
        with pytest.raises(TargetError, match="m3 is offline with 1 of this run's containers"):
            await remove(entry)
        await target.evict("m3")
        await target.evict("m3")  # fine when it is no member any more
        assert await target.list_group(0, addresses=False) == {}
        assert [member.name for member in await target.members()] == ["m1", "m2"]
        await target.create(FIRST, None)  # the name is free again
        await target.close()
        assert await remove(entry) == 3  # with the project and the image, which m3 had too

    run(lose())
    assert everything(lab)["projects"] == ["default"]
