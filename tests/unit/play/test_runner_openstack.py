"""A run whose beginning goes wrong on an OpenStack leaves nothing there."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from tests.unit.targets.openstack.openstack_cloud import Cloud, cloud_at, failure
from tippingpoint.errors import TargetError
from tippingpoint.plan.read import load_plan
from tippingpoint.play.runner import Runner
from tippingpoint.rundir.journal import RESCUE_PREFIX
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.targets.openstack.target import TARGET

RUN_ID = "the-run"


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[Cloud]:
    async with cloud_at(tmp_path) as (cloud, _):
        cloud.put("images", "tiny", status="active")
        cloud.put("roles", "member")
        cloud.answers["identity projects/shop-id"] = {"project": {"id": "shop-id", "domain_id": "default"}}
        yield cloud


@pytest.fixture
def runner(cloud: Cloud, tmp_path: Path) -> Runner:
    """The runner of a plan that wants all that a run may make, of one server."""
    return runner_of(tmp_path, groups=1, instances=1)


def runner_of(directory: Path, **stage: int) -> Runner:
    plan = {
        "name": "small",
        "target": {
            "kind": "openstack",
            "credentials": str(directory / "clouds.yaml"),
            "cloud": "stub",
            "tenants": True,
            "network": "made",
            "flavor": "made",
        },
        "workload": {"kind": "spawn", "until": "started", "concurrency": 1},
        "stages": [{**stage, "hold": "0s"}],
    }
    path = directory / "plan.yaml"
    path.write_text(yaml.safe_dump(plan), encoding="utf-8")
    return Runner(load_plan(str(path)), directory / "runs", run_id=RUN_ID)


def left(cloud: Cloud) -> list[str]:
    """What is there of the run's."""
    prefix = name_prefix(RUN_ID)
    return [
        f"{kind} {name}" for kind in cloud.things for name in cloud.names(kind) if name.startswith(prefix)
    ]


async def interrupted_while_routers_are_made(cloud: Cloud, runner: Runner) -> Path:
    """The directory of a run that is ended by a Ctrl-C while a router is being made."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response | None:
        if request.method == "POST" and request.path.endswith("/routers"):
            begun.set()
            await end.wait()
        return None

    was, cloud.otherwise = cloud.otherwise, slow
    run = asyncio.create_task(runner.run())
    await begun.wait()
    runner.interrupt()
    await asyncio.sleep(0.1)
    cloud.otherwise = was
    end.set()
    return await run


async def test_what_is_being_made_at_a_ctrl_c_is_removed(cloud: Cloud, runner: Runner) -> None:
    directory = await interrupted_while_routers_are_made(cloud, runner)
    assert Manifest.load(directory).status == "interrupted"
    assert left(cloud) == []


async def test_who_is_in_a_hurry_does_not_wait_for_what_is_being_made(cloud: Cloud, runner: Runner) -> None:
    """Given a call that is never answered, then a second Ctrl-C ends the run, and what is left is told."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def silent(request: web.Request) -> web.Response | None:
        if request.method == "POST" and request.path.endswith("/routers"):
            begun.set()
            await end.wait()
        return None

    cloud.otherwise = silent
    run = asyncio.create_task(runner.run())
    await begun.wait()
    runner.interrupt()
    runner.interrupt()
    directory = await asyncio.wait_for(run, 600)
    end.set()
    assert "removal stopped on request" in (directory / "events.jsonl").read_text()


async def test_what_was_made_before_garbage_was_answered_is_removed(cloud: Cloud, runner: Runner) -> None:
    async def garbage(request: web.Request) -> web.Response | None:
        asked = request.method == "POST" and request.path.endswith("/subnets")
        return web.json_response([]) if asked else None

    cloud.otherwise = garbage
    with pytest.raises(TargetError, match=r"an invalid (answer|list)"):
        await runner.run()
    assert Manifest.load(runner.directory).status == "failed"
    assert left(cloud) == []


async def test_what_was_made_before_a_fault_of_ours_is_removed(
    cloud: Cloud, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = TARGET.take

    async def faulty(*args: Any) -> None:
        await taken(*args)
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(TARGET, "take", faulty)

    with pytest.raises(ZeroDivisionError):
        await runner.run()
    manifest = Manifest.load(runner.directory)
    assert (manifest.status, manifest.reason) == ("failed", "ZeroDivisionError: ours")
    assert left(cloud) == []


async def test_a_removal_has_time_for_each_group(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TARGET, "clean_within", lambda things: 600.0 if things >= 150 else 0.0)

    await interrupted_while_routers_are_made(cloud, runner_of(tmp_path, groups=150, instances=0))
    assert left(cloud) == []


async def test_the_password_of_a_made_user_is_not_moved_to_where_there_is_room(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a disk without room, so that the run's files go elsewhere, and a cloud that does not let us clean up, then
    the password is nowhere."""
    room = tmp_path / "room"
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    monkeypatch.setattr("tippingpoint.play.record.token_hex", lambda size: "known")
    (room / f"{RESCUE_PREFIX}{RUN_ID}-known").mkdir(
        mode=0o700, parents=True
    )  # as if a tail had been put there

    async def fails(request: web.Request) -> web.Response | None:
        return failure(500, "down") if request.method == "DELETE" else None

    cloud.otherwise = fails
    directory = await interrupted_while_routers_are_made(cloud, runner_of(tmp_path, groups=1, instances=1))
    assert directory.parent == room
    assert "left-behind" in (directory / "events.jsonl").read_text()
    assert not [*tmp_path.rglob("openstack-user")]
