"""The proxy in front of a real LXD passes everything on, except what a test's rules say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, TypeVar

import pytest

from lab.lxd.access import make_client_certificate
from lab.lxd.cluster import LxdLab
from lab.lxd.proxy import Cut, Effect, Fail, FailOperation, Garble, Hold, LxdProxy
from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.targets.lxd.access import LxdAccess, from_file, from_socket
from tippingpoint.targets.lxd.client import LxdClient

T = TypeVar("T")

_INSTANCE = {"name": "proxied", "source": {"type": "image", "alias": "tiny"}}


@pytest.fixture
def proxy(lxd_single: LxdLab) -> Iterator[LxdProxy]:
    """A proxy without rules in front of the shared single server."""
    with LxdProxy(lxd_single) as proxy:
        yield proxy


def test_without_rules_operations_and_lists_pass_and_are_counted(proxy: LxdProxy) -> None:
    async def scenario(client: LxdClient) -> list[Any]:
        await client.operate("POST", "/1.0/instances", _INSTANCE)
        listed = await client.get("/1.0/instances", recursion="1")
        await client.operate("DELETE", "/1.0/instances/proxied")
        return listed

    for access in (from_file(proxy.credentials), from_socket(proxy.socket)):
        proxy.clear()
        assert [instance["name"] for instance in _as(access, scenario)] == ["proxied"]
        assert proxy.count("GET", r"/1\.0/instances\?.*recursion=1") == 1
        assert proxy.counts()["GET", "/1.0/operations/*/wait"] == 2
        assert proxy.counts()["DELETE", "/1.0/instances/*"] == 1


def test_a_failed_operation_never_comes_to_the_member(proxy: LxdProxy) -> None:
    locked = "Failed to begin transaction: database is locked"
    proxy.add("POST", "^/1.0/instances", FailOperation(locked), times=1)

    async def scenario(client: LxdClient) -> list[str]:
        with pytest.raises(OperationFailed, match=locked):
            await client.operate("POST", "/1.0/instances", _INSTANCE)
        return await client.get("/1.0/instances")

    assert _as(from_file(proxy.credentials), scenario) == []


@pytest.mark.parametrize(
    ("effect", "problem"),
    [
        (Fail("reached maximum number of instances", 400), "reached maximum number of instances"),
        (Garble(b"<html>not LXD</html>"), "."),
        (Garble(b"[" * 2_000_000), "."),
    ],
)
def test_an_answer_is_replaced_as_often_as_the_rule_says(
    proxy: LxdProxy, effect: Effect, problem: str
) -> None:
    proxy.add("GET", "^/1.0/projects", effect, skip=1, times=1)

    async def scenario(client: LxdClient) -> list[Any]:
        before = await client.get("/1.0/projects")
        with pytest.raises(OperationFailed, match=problem):
            await client.get("/1.0/projects")
        return [before, await client.get("/1.0/projects")]

    assert _as(from_file(proxy.credentials), scenario) == [["/1.0/projects/default"]] * 2


@pytest.mark.parametrize(("after", "made"), [(False, []), (True, ["/1.0/projects/cut"])])
def test_a_connection_is_cut_before_or_after_the_member_is_asked(
    proxy: LxdProxy, lxd_single: LxdLab, after: bool, made: list[str]
) -> None:
    proxy.add("POST", "^/1.0/projects", Cut(after), times=1)

    async def scenario(client: LxdClient) -> list[str]:
        with pytest.raises(OperationFailed):
            await client.send("POST", "/1.0/projects", {"name": "cut"})
        return await client.get("/1.0/projects")

    try:
        assert set(_as(from_file(proxy.credentials), scenario)) == {"/1.0/projects/default", *made}
    finally:
        if made:
            lxd_single.lxc("project", "delete", "cut")


def test_a_request_is_held_until_it_is_released(proxy: LxdProxy) -> None:
    hold = Hold()
    proxy.add("GET", "^/1.0/projects", hold, times=1)

    async def scenario(client: LxdClient) -> list[str]:
        held = asyncio.create_task(client.get("/1.0/projects"))
        await asyncio.to_thread(hold.met.wait, 30)
        await client.get("/1.0/profiles")  # others pass
        assert proxy.count("GET", "^/1.0/profiles") == 1
        assert not held.done()
        hold.released.set()
        return await held

    assert _as(from_file(proxy.credentials), scenario) == ["/1.0/projects/default"]


def test_a_client_without_the_labs_certificate_is_not_let_in(proxy: LxdProxy) -> None:
    unknown = replace(from_file(proxy.credentials), **asdict(make_client_certificate()))

    with pytest.raises((OperationFailed, TargetError)):
        _as(unknown, lambda client: client.get("/1.0"))
    assert proxy.counts() == {}


def _as(access: LxdAccess, scenario: Callable[[LxdClient], Awaitable[T]]) -> T:
    """What a scenario comes to with a client of this access."""

    async def run() -> T:
        client = LxdClient(access)
        try:
            return await scenario(client)
        finally:
            await client.close()

    return asyncio.run(run())
