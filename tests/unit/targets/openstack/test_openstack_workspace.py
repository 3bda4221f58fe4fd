"""What is made in an OpenStack before servers are: once, whatever becomes of answers, and nothing is left under way."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.unit.targets.openstack.openstack_cloud import PREFIX, Cloud, cloud_at, failure
from tippingpoint.errors import TargetError, UserError
from tippingpoint.targets.openstack.provision import reach, take
from tippingpoint.targets.openstack.removal import remove

TENANTS: dict[str, Any] = {"tenants": True, "network": "made", "flavor": "made"}
MADE = ("projects", "networks", "subnets", "routers", "users", "flavors")


def put_basics(cloud: Cloud) -> None:
    """Have what any cloud has."""
    cloud.put("images", "tiny", status="active")
    cloud.put("flavors", "small", disk=1, ram=64, vcpus=1)
    cloud.put("roles", "member")
    cloud.answers["identity projects/shop-id"] = {"project": {"id": "shop-id", "domain_id": "default"}}


def made(cloud: Cloud) -> Counter[str]:
    """How many of the run's own things there are, by kind."""
    return Counter(kind for kind in MADE for name in cloud.names(kind) if name.startswith(PREFIX))


@pytest.mark.parametrize("lost", MADE)
async def test_what_was_made_though_the_answer_was_lost_is_found(tmp_path: Path, lost: str) -> None:
    """Given a connection that breaks when something was made, then it is found and not made, or refused, again."""
    async with cloud_at(tmp_path, **TENANTS) as (cloud, entry):
        put_basics(cloud)
        cloud.loses = [lost]
        workspace = await take(entry)
        assert not cloud.loses
        assert made(cloud) == Counter(MADE)
        assert cloud.things["flavors"][workspace.flavor]["name"] == PREFIX
        assert cloud.things["users"][workspace.user]["name"] == PREFIX


async def test_an_image_whose_answer_was_lost_is_the_one_that_is_uploaded_to(tmp_path: Path) -> None:
    image = tmp_path / "small.img"
    image.write_bytes(b"small")
    async with cloud_at(tmp_path, image=str(image), network="none") as (cloud, entry):
        put_basics(cloud)
        cloud.loses = ["images"]
        workspace = await take(entry)
        assert cloud.names("images") == ["tiny", PREFIX]
        assert cloud.things["images"][workspace.image]["name"] == PREFIX


@pytest.mark.parametrize("kind", MADE)
async def test_what_is_being_made_when_it_is_given_up_is_there_when_that_ends(
    tmp_path: Path, kind: str
) -> None:
    """Given a Ctrl-C while something is being made, then who removes what there is afterwards finds it."""
    async with cloud_at(tmp_path, **TENANTS) as (cloud, entry):
        put_basics(cloud)
        begun, end = asyncio.Event(), asyncio.Event()

        async def slow(request: web.Request) -> web.Response | None:
            if request.method == "POST" and request.path.endswith(f"/{kind}"):
                begun.set()
                await end.wait()
            return None

        cloud.otherwise = slow
        taking = asyncio.create_task(take(entry))
        await begun.wait()
        taking.cancel()
        assert not (await asyncio.wait([taking], timeout=0.1))[0]
        end.set()
        await asyncio.gather(taking, return_exceptions=True)
        assert taking.cancelled()
        assert made(cloud)[kind] == 1
        await remove(entry)
        assert not made(cloud)


@pytest.mark.parametrize("path", ["images", "flavors/detail", "networks", "roles", "projects", "users"])
async def test_garbage_is_one_line_and_a_failure_of_the_target(tmp_path: Path, path: str) -> None:
    """Given a list that is none, then a line says so, and what was made before goes when the cloud is itself again."""
    async with cloud_at(tmp_path, **TENANTS) as (cloud, entry):
        put_basics(cloud)
        key = path.partition("/")[0]
        garbage: list[Any] = [{key: [{}]}, {key: [None]}, {key: 7}, {}, 7, None]

        async def answer(request: web.Request) -> web.Response | None:
            found = request.method == "GET" and request.path.endswith(f"/{path}")
            return web.json_response(garbage[-1]) if found else None

        cloud.otherwise = answer
        while garbage:
            with pytest.raises((TargetError, UserError)) as told:
                await take(entry)
            assert "\n" not in str(told.value)
            garbage.pop()
        cloud.otherwise = as_ever
        await remove(entry)
        assert not made(cloud)


async def as_ever(request: web.Request) -> web.Response | None:
    return None


async def test_garbage_of_who_is_asked_first_is_one_line(tmp_path: Path) -> None:
    async with cloud_at(tmp_path, tenants=True) as (cloud, entry):

        async def answer(request: web.Request) -> web.Response | None:
            return failure(500, "a\nb")

        cloud.otherwise = answer
        with pytest.raises(TargetError, match=r"a b \(HTTP 500\): expected an OpenStack that answers"):
            await reach(entry)
