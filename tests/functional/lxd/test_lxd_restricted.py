"""An LXD that trusts us with projects of its own, and no more: what a run does there, and what it leaves alone."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
import yaml

from lab.lxd.access import REMOTE
from lab.lxd.cluster import LxdLab
from lab.lxd.proxy import Fail, Hold, LxdProxy
from tests.functional.lxd.lxd_runs import (
    EACH,
    everything,
    only_a_stage,
    report_of,
    spawn_plan,
)
from tests.functional.program import only_run, run, start, until
from tests.functional.spawn_runs import crash, going, named, one_line
from tippingpoint.errors import TargetError, UserError
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.targets.lxd.capacity import check_room
from tippingpoint.targets.lxd.image import tiny_image
from tippingpoint.targets.lxd.ledger import LxdEntry
from tippingpoint.targets.lxd.plan import OBSERVATIONS, LxdTarget
from tippingpoint.targets.lxd.probe import probe
from tippingpoint.targets.lxd.provision import instance_name, new_entry, reach, take
from tippingpoint.targets.lxd.removal import remove
from tippingpoint.targets.lxd.spawn import LxdInstances
from tippingpoint.workloads.spawn.target import Item, MemberSeen

FIRST = Item(0, 0)
REFUSED = Fail("not authorized", 403)


@pytest.fixture
def projects(lxd: LxdLab) -> Iterator[list[str]]:
    """Three projects as an administrator may have made them: with images and profiles of their own, which has no
    devices in it; with the images of the project default; and with its profiles, too. Somebody's container is in the
    first."""
    mark = uuid.uuid4().hex[:6]
    names = [f"{kind}-{mark}" for kind in ("own", "images", "profiles")]
    shared = ["-c", "features.images=false"]
    lxd.lxc("project", "create", names[0])
    lxd.lxc("project", "create", names[1], *shared)
    lxd.lxc("project", "create", names[2], *shared, "-c", "features.profiles=false")
    lxd.lxc("init", "--empty", "web", "--storage=default", f"--project={names[0]}")
    yield names
    for name in names:
        for instance in there(lxd, name)["instances"]:
            lxd.lxc("delete", "--force", instance, f"--project={name}")
        for image in there(lxd, name)["images"] if name == names[0] else ():
            lxd.lxc("image", "delete", image, f"--project={name}")
        lxd.lxc("project", "delete", name)


@pytest.fixture
def proxy(lxd: LxdLab) -> Iterator[LxdProxy]:
    with LxdProxy(lxd) as made:
        yield made


def there(lab: LxdLab, project: str) -> dict[str, list[str]]:
    """The instances and images that are in a project, and how its profile is."""
    listed = {
        what: lab.query(f"/1.0/{what}?recursion=1&project={project}")
        for what in ("instances", "images", "profiles")
    }
    return {
        "instances": sorted(each["name"] for each in listed["instances"]),
        "images": sorted(each["fingerprint"] for each in listed["images"]),
        "profiles": [json.dumps([each["config"], each["devices"]]) for each in listed["profiles"]],
    }


def all_of(lab: LxdLab, projects: list[str]) -> Any:
    """What there is in a lab, and in projects of it."""
    return everything(lab), [there(lab, project) for project in projects]


def as_the_relation_has_it(credentials: Path, directory: Path) -> Path:
    """The same credentials with their addresses in one text, as the relation lxd-https gives them."""
    access = yaml.safe_load(credentials.read_text())
    addresses = ",".join(address.removeprefix("https://") for address in access["addresses"])
    file = directory / "lxd.yaml"
    file.touch(0o600)
    file.write_text(yaml.safe_dump(access | {"addresses": addresses}))
    return file


def settings(credentials: Path, projects: list[str], *more: str) -> list[str]:
    """The options of a run that fills projects."""
    given = [f"target.credentials={credentials}", f"target.projects=[{', '.join(projects)}]", *more]
    return [part for setting in given for part in ("--set", setting)]


def entry_of(credentials: Path, directory: Path, projects: list[str], **fields: Any) -> LxdEntry:
    """What a run of its own will make in these projects."""
    run_id = uuid.uuid4().hex
    target = {"kind": "lxd", "credentials": credentials, "projects": projects, **fields}
    return new_entry(LxdTarget.model_validate(target), run_id, name_prefix(run_id), directory)


@asynccontextmanager
async def taken(
    entry: LxdEntry, groups: int = 1, told: list[str] | None = None
) -> AsyncIterator[LxdInstances]:
    """A worker's access to what the run has taken; all that is the run's is removed at the end."""
    await reach(entry)
    try:
        workspace = await take(entry, groups=groups, reachable=True, tell=(told or []).append)
        instances = LxdInstances(workspace, 0)
        try:
            await instances.open()
            await instances.prepare(range(groups), lambda *_: None)
            yield instances
        finally:
            await instances.close()
    finally:
        await remove(entry)


# Runs


def test_a_run_fills_projects_that_are_there_and_leaves_them_as_they_were(
    lxd: LxdLab, projects: list[str], tmp_path: Path
) -> None:
    # given a certificate that is restricted to three projects, in the shape of the relation lxd-https
    credentials = as_the_relation_has_it(lxd.restricted(*projects), tmp_path)
    before = all_of(lxd, projects)
    made = len(projects) * EACH
    plan = spawn_plan(
        tmp_path,
        workload={"until": "probed", "observe_every": "1s"},
        stages=[*only_a_stage(EACH, "3s", len(projects)), *only_a_stage(1, "500ms", len(projects))],
        thresholds=[{"operation": "launch", "p99": "10m", "error_rate": 0}],
        target={"profile": {"limits.memory": "64MiB"}},
        workers=1,
    )
    # when a plan is run in them
    done = run("run", plan, *settings(credentials, projects), "--out", tmp_path / "runs", "--json")
    # then each has its group, all of it was made, and what users ask for was timed, all of it
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    fill, less = report["stages"]
    assert report["verdict"]["outcome"] == "met"
    assert (fill["held"], fill["operations"]["probe"]["ok"], less["operations"]["delete"]["ok"]) == (
        made,
        made,
        made - len(projects),
    )
    assert {row["operation"] for row in report["timings"]["rows"]} == set(OBSERVATIONS)
    assert sum(member["at_end"][0] for member in report["members"]) == made
    # and the report says once what such a certificate does not let us see
    assert ["did not count containers of other projects" in note for note in report["notes"]] == [True]
    # and nothing is left but what was there, as it was
    (cleaned,) = named(only_run(tmp_path / "runs").directory, "cleaned")
    images = 2  # one in the first project, and one that the others share
    assert cleaned["removed"] == len(projects) + images
    assert all_of(lxd, projects) == before


def test_a_run_killed_in_mid_spawn_is_cleaned_up_beside_what_others_have(
    lxd: LxdLab, projects: list[str], proxy: LxdProxy, tmp_path: Path
) -> None:
    # given a run that was killed with some containers made and some being made
    before = all_of(lxd, projects)
    hold = Hold()
    proxy.add("GET", r"^/1\.0/operations/.*/wait", hold, skip=4)
    plan = spawn_plan(tmp_path, stages=only_a_stage(EACH, "4s", len(projects)))
    process = start("run", plan, *settings(proxy.credentials, projects), "--out", tmp_path / "runs")
    with going(process):
        until(hold.met.is_set, "containers were made")
        crash(process)
    proxy.clear()
    hold.released.set()
    (directory,) = (tmp_path / "runs").iterdir()
    # when it is cleaned
    done = run("clean", directory)
    # then nothing of it is left, nor comes to be
    assert done.returncode == 0, done.stderr
    assert all_of(lxd, projects) == before
    assert run("clean", directory).stdout == "removed 0\n"


def test_a_killed_run_is_taken_up_again_where_it_was(
    lxd: LxdLab, projects: list[str], proxy: LxdProxy, tmp_path: Path
) -> None:
    before = all_of(lxd, projects)
    hold = Hold()
    proxy.add("GET", r"^/1\.0/operations/.*/wait", hold, skip=4)
    plan = spawn_plan(tmp_path, stages=only_a_stage(EACH, "500ms", len(projects)))
    out = tmp_path / "runs"
    process = start("run", plan, *settings(proxy.credentials, projects), "--out", out)
    with going(process):
        until(hold.met.is_set, "containers were made")
        crash(process)
    proxy.clear()
    hold.released.set()
    (killed,) = out.iterdir()
    done = run("resume", killed, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    (resumed,) = {*out.iterdir()} - {killed}
    report = report_of(resumed)
    assert report["stages"][0]["held"] == EACH * len(projects)
    assert report["stages"][0]["operations"]["create"]["ok"] < EACH * len(projects)
    assert all_of(lxd, projects) == before


def test_a_token_of_a_restricted_certificate(lxd: LxdLab, projects: list[str], tmp_path: Path) -> None:
    # given a token that `lxc config trust add --restricted` has made
    before = all_of(lxd, projects)
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(lxd.token("ours", projects))
    plan = spawn_plan(tmp_path, stages=only_a_stage(1, "500ms", len(projects)))
    named_projects = f"target.projects=[{', '.join(projects)}]"
    out = tmp_path / "runs"
    # when a plan is run with it
    done = run("run", plan, "--set", f"target.token={token}", "--set", named_projects, "--out", out)
    # then all that was made is gone, but not the trust, which such a certificate cannot end; its key is gone
    assert done.returncode == 0, done.stdout + done.stderr
    there_now = all_of(lxd, projects)
    (ours,) = {*there_now[0]["trust"]} - {*before[0]["trust"]}
    lxd.lxc("config", "trust", "remove", ours)
    assert all_of(lxd, projects) == before
    (directory,) = out.iterdir()
    assert not any(b"-----BEGIN" in path.read_bytes() for path in directory.rglob("*") if path.is_file())
    assert run("clean", directory).stdout == "removed 0\n"


def test_a_token_is_trusted_no_more_where_a_project_is_not_there(lxd: LxdLab, tmp_path: Path) -> None:
    before = everything(lxd)
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(lxd.token())
    target = LxdTarget(kind="lxd", token=token, projects=["gone"])
    with pytest.raises(UserError, match=r"^target\.projects: gone: expected one of "):
        uvloop.run(reach(new_entry(target, "a-run", name_prefix("a-run"), tmp_path)))
    assert everything(lxd) == before
    assert not (tmp_path / "trust").exists()


def test_a_run_goes_on_without_what_it_is_refused(
    lxd: LxdLab, projects: list[str], proxy: LxdProxy, tmp_path: Path
) -> None:
    """LXD 5.0.2 shows members to a certificate that is restricted to projects; others may not."""
    # given an LXD that refuses us all that is not of a project
    before = all_of(lxd, projects)
    for path in (r"cluster/members", r"resources", r"networks", r"operations\?", r".*all-projects"):
        proxy.add("GET", rf"^/1\.0/{path}", REFUSED)
    plan = spawn_plan(
        tmp_path,
        workload={"until": "reachable", "observe_every": "500ms"},
        stages=only_a_stage(EACH, "3s", 2),
        target={"network": "lxdbr0"},
        workers=1,
    )
    # when a plan is run there
    done = run("run", plan, *settings(proxy.credentials, projects), "--out", tmp_path / "runs", "--json")
    # then it is, and what may be asked for is timed; a container's member is what its list says
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["stages"][0]["held"] == 2 * EACH
    assert {row["operation"] for row in report["timings"]["rows"]} == {"list-fast", "list", "exec"}
    assert all(each["error"] == 0 for each in report["stages"][0]["operations"].values())
    assert sum(member["at_end"][0] for member in report["members"]) == 2 * EACH
    assert {member["name"] for member in report["members"]} <= {"m1", "m2", "m3"}
    assert all_of(lxd, projects) == before


# What is ours


def test_two_runs_in_one_project_do_not_see_each_other(
    lxd: LxdLab, projects: list[str], tmp_path: Path
) -> None:
    credentials = lxd.restricted(*projects)
    before = all_of(lxd, projects)

    async def both() -> None:
        ours, theirs = (entry_of(credentials, tmp_path, projects) for _ in range(2))
        async with taken(theirs) as other:
            async with taken(ours) as one:
                await asyncio.gather(one.create(FIRST, None), other.create(FIRST, None))
                await asyncio.gather(one.start(FIRST), other.start(FIRST))
                assert [*await one.list_group(0, addresses=False)] == [FIRST]
                assert [*await other.list_group(0, addresses=False)] == [FIRST]
                await one.delete(FIRST)
                assert not await one.list_group(0, addresses=False)
            # what one had is removed, its image too, and the other goes on
            await other.probe(FIRST)
            await other.create(Item(0, 1), None)
            assert len(await other.list_group(0, addresses=False)) == 2

    uvloop.run(both())
    assert all_of(lxd, projects) == before


def test_a_container_with_a_name_of_ours_and_no_mark_is_somebody_elses(
    lxd: LxdLab, projects: list[str], tmp_path: Path
) -> None:
    entry = entry_of(lxd.restricted(*projects), tmp_path, projects)
    name = instance_name(entry.prefix, 0, 0)
    lxd.lxc("init", "--empty", name, "--storage=default", f"--project={projects[0]}")

    async def meet() -> None:
        async with taken(entry) as target:
            assert await target.list_group(0, addresses=False) == {}

    uvloop.run(meet())
    assert there(lxd, projects[0])["instances"] == sorted(["web", name])


def test_a_project_that_our_certificate_may_not_use_any_more_is_told(
    lxd: LxdLab, projects: list[str], proxy: LxdProxy, tmp_path: Path
) -> None:
    # given a run that has a container in each of two projects
    entry = entry_of(proxy.credentials, tmp_path, projects[:2])

    async def fill() -> None:
        instances = LxdInstances(await take(entry, groups=2), 0)
        await instances.open()
        for group in (0, 1):
            await instances.create(Item(group, 0), None)
        await instances.close()

    uvloop.run(fill())
    # when it is cleaned with one of them out of reach
    proxy.add("GET", rf"project={projects[0]}", REFUSED)
    with pytest.raises(
        TargetError, match=f"project {projects[0]}: the client certificate may no longer use it"
    ):
        uvloop.run(remove(entry))
    # then the other is cleaned, and the first is once it is back
    assert there(lxd, projects[1])["instances"] == []
    proxy.clear()
    assert uvloop.run(remove(entry)) == 2
    assert there(lxd, projects[0])["instances"] == ["web"]


def test_a_project_that_is_gone_has_nothing_of_ours(lxd: LxdLab, projects: list[str], tmp_path: Path) -> None:
    entry = entry_of(lxd.credentials, tmp_path, [projects[1], "gone"])
    assert uvloop.run(remove(entry)) == 0


# What is told and refused


def test_what_a_restricted_certificate_keeps_from_us_is_told(
    lxd: LxdLab, projects: list[str], proxy: LxdProxy, tmp_path: Path
) -> None:
    async def told(credentials: Path) -> list[str]:
        sentences: list[str] = []
        entry = entry_of(credentials, tmp_path, projects)
        try:
            await take(entry, tell=sentences.append)
        finally:
            await remove(entry)
        return sentences

    (sentence,) = uvloop.run(told(lxd.restricted(*projects)))
    assert "did not count containers of other projects" in sentence
    assert uvloop.run(told(lxd.credentials)) == []
    for path in ("certificates/", "cluster/members", "resources"):
        proxy.add("GET", f"^/1.0/{path}", REFUSED)
    not_timed, members, room = uvloop.run(told(proxy.credentials))
    assert not_timed == "LXD refuses cluster-list to the client certificate: not timed"
    assert "members" in members
    assert "the check for enough room was left out" in room


def test_where_members_may_not_be_listed_those_are_known_that_have_our_containers(
    lxd: LxdLab, projects: list[str], proxy: LxdProxy, tmp_path: Path
) -> None:
    proxy.add("GET", "^/1.0/cluster/members", REFUSED)

    async def see() -> list[list[MemberSeen]]:
        async with taken(entry_of(proxy.credentials, tmp_path, projects)) as target:
            before = await target.members()
            await target.create(FIRST, "m2")
            await target.list_group(0, addresses=False)
            return [before, await target.members()]

    assert uvloop.run(see()) == [
        [MemberSeen("m1", online=True)],
        [MemberSeen("m1", online=True), MemberSeen("m2", online=True)],
    ]


@pytest.mark.usefixtures("patient_room")
def test_the_room_check_knows_what_it_may_see(
    lxd: LxdLab, projects: list[str], proxy: LxdProxy, tmp_path: Path
) -> None:
    entry = entry_of(lxd.restricted(*projects), tmp_path, projects)
    with pytest.raises(
        UserError, match=r"^instances: 5,000 more containers: expected at most 3.* bridge ports"
    ):
        uvloop.run(check_room(entry, 5000, 1, 3))
    with pytest.raises(UserError, match=r"^members: 4: expected at most 3"):
        uvloop.run(check_room(entry, 1, 1, 4))
    uvloop.run(check_room(entry, 60, 1, 3))
    unseen = entry_of(proxy.credentials, tmp_path, projects)
    for path in ("resources", "cluster/members"):
        proxy.add("GET", f"^/1.0/{path}", REFUSED)
        uvloop.run(check_room(unseen, 5000, 1, 4 if path == "cluster/members" else None))


def test_what_a_restricted_certificate_cannot_do_is_refused_in_one_line(
    lxd: LxdLab, projects: list[str], tmp_path: Path
) -> None:
    credentials = lxd.restricted(*projects[:2])
    before = all_of(lxd, projects)
    known = f"one of {', '.join(sorted(projects[:2]))}"
    lines = {
        "workload.evict=true": "workload.evict: true: expected false, or a certificate that is not restricted",
        "target.projects=[]": f"target.projects: missing: expected {known}, or several, as the client certificate",
        f"target.projects=[{projects[2]}, {projects[0]}, x]": (
            f"target.projects: {projects[2]}: expected {known}, which the client certificate may use"
        ),
        "target.projects=[a]": "stages.0.groups: 2: expected at most 1, as target.projects has that many (a)",
        "target.project={limits.instances: 2}": "target.project.limits.instances: 2: expected no settings",
        "target.image=jammy": "target.image: jammy: expected an alias or fingerprint on the server",
        "target.pool=fast": "target.pool: fast: expected one of default",
        "target.network=wide": "target.network: wide: expected one of lxdbr0",
    }
    for setting, line in lines.items():
        plan = spawn_plan(tmp_path, stages=only_a_stage(1, "500ms", 2))
        given = settings(credentials, projects[:2], setting)
        done = run("run", plan, *given, "--out", tmp_path / "runs")
        assert done.returncode == 2, done.stdout + done.stderr
        assert one_line(done).startswith(f"tippingpoint: {line}")
    assert all_of(lxd, projects) == before


def test_a_project_that_lets_nobody_choose_a_member(lxd: LxdLab, projects: list[str], tmp_path: Path) -> None:
    lxd.lxc("project", "set", projects[0], "restricted=true")
    credentials = lxd.restricted(*projects)
    in_turn = entry_of(credentials, tmp_path, projects, placement="round-robin")
    with pytest.raises(UserError, match=rf"^target\.placement: round-robin: .*project {projects[0]}"):
        uvloop.run(take(in_turn))

    async def live() -> None:  # LXD is left to choose
        async with taken(entry_of(credentials, tmp_path, projects)) as target:
            await target.create(FIRST, None)
            await target.start(FIRST)
            await target.probe(FIRST)

    uvloop.run(live())


def test_an_image_may_be_one_of_each_project(lxd: LxdLab, projects: list[str], tmp_path: Path) -> None:
    file = tmp_path / "image.tar.gz"
    file.write_bytes(tiny_image(uuid.uuid4().hex))
    lxd.lxc("image", "import", str(file), "--alias", "theirs", f"--project={projects[0]}")
    own = there(lxd, projects[0])["images"]
    shared = lxd.image("tiny")
    lxd.lxc("image", "alias", "create", "theirs", shared)
    try:
        entry = entry_of(lxd.restricted(*projects), tmp_path, projects, image="theirs")
        places = uvloop.run(take(entry, groups=3)).places
        assert [place.image for place in places] == [*own, shared, shared]
        assert uvloop.run(remove(entry)) == 0
        assert there(lxd, projects[0])["images"] == own
    finally:
        lxd.lxc("image", "alias", "delete", "theirs")


def test_an_image_that_may_not_be_imported(projects: list[str], proxy: LxdProxy, tmp_path: Path) -> None:
    proxy.add("POST", "^/1.0/images", REFUSED)
    entry = entry_of(proxy.credentials, tmp_path, projects)
    with pytest.raises(
        UserError, match=rf"^target\.image: tiny: expected an alias .* in project {projects[0]}"
    ):
        uvloop.run(take(entry))


# Outside of a run


def test_what_users_ask_for_is_timed_once(
    lxd: LxdLab, projects: list[str], proxy: LxdProxy, tmp_path: Path
) -> None:
    credentials = lxd.restricted(*projects)
    ours = LxdTarget(kind="lxd", credentials=credentials, projects=projects)

    async def ask() -> None:
        entry = entry_of(credentials, tmp_path, projects)
        async with taken(entry, groups=2) as instances:
            before = {each.name: each for each in await probe(ours)}
            assert (before["exec"].ms, before["exec"].why) == (None, "no container of a run is running")
            await instances.create(Item(1, 0), None)
            await instances.start(Item(1, 0))
            timed = await probe(ours, prefix=entry.prefix)
            assert [each.name for each in timed] == [*OBSERVATIONS]
            assert all(each.ms is not None and each.ms > 0 and each.why == "" for each in timed), timed
            other = {each.name: each.why for each in await probe(ours, prefix="tpother")}
            assert other["exec"] == "no container of a run is running"

    uvloop.run(ask())
    by_proxy = LxdTarget(kind="lxd", credentials=proxy.credentials, projects=projects)
    proxy.add("GET", "^/1.0/operations", REFUSED)
    refused = {each.name: each.why for each in uvloop.run(probe(by_proxy)) if each.ms is None}
    assert refused == {"operation-list": "not authorized", "exec": "no container of a run is running"}
    proxy.add("GET", "^/1.0/instances.*recursion=2", Hold())
    late = {each.name: each.why for each in uvloop.run(probe(by_proxy, within=1.0))}
    assert late["list"] == "no answer within 1 s"


def test_a_remote_is_asked_without_projects(lxd: LxdLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LXD_CONF", str(lxd.remote_directory()))
    timed = {each.name: each for each in uvloop.run(probe(LxdTarget(kind="lxd", remote=REMOTE)))}
    assert {name for name, each in timed.items() if each.ms is None} == {"exec"}


def test_a_single_server_is_no_cluster(lxd_single: LxdLab) -> None:
    timed = {
        each.name: each
        for each in uvloop.run(probe(LxdTarget(kind="lxd", credentials=lxd_single.credentials)))
    }
    assert timed["cluster-list"].why == "not a cluster"
    assert timed["list"].ms is not None


def test_who_may_not_be_asked_is_told_in_one_line(lxd: LxdLab, projects: list[str], tmp_path: Path) -> None:
    restricted = LxdTarget(kind="lxd", credentials=lxd.restricted(*projects))
    with pytest.raises(UserError, match=r"^target\.projects: missing: expected one of "):
        uvloop.run(probe(restricted))
    with pytest.raises(UserError, match=r"^target\.token: .*only a run redeems a token"):
        uvloop.run(probe(LxdTarget(kind="lxd", token=tmp_path / "token")))
    nowhere = lxd.restricted(*projects)
    nowhere.write_text(yaml.safe_dump(yaml.safe_load(nowhere.read_text()) | {"addresses": "127.0.0.1:9"}))
    with pytest.raises(TargetError, match="Connection refused"):
        uvloop.run(probe(LxdTarget(kind="lxd", credentials=nowhere, projects=projects)))
