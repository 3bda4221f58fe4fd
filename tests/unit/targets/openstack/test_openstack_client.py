"""Calls of an OpenStack: tokens that are renewed on the way, rate limits that are heeded, answers that are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from tests.unit.targets.openstack.openstack_stub import OpenstackStub
from tippingpoint.errors import Limited, TargetError, UserError
from tippingpoint.targets.openstack.client import OpenstackClient, insist
from tippingpoint.targets.openstack.errors import OpenstackError
from tippingpoint.targets.openstack.tokens import tokens_of


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[OpenstackStub]:
    async with OpenstackStub(tmp_path) as stub:
        yield stub


def age(stub: OpenstackStub, seconds: float) -> None:
    """Have the tokens that clients have end so much earlier."""
    tokens = tokens_of(stub.access)
    for project, token in tokens.items():
        tokens[project] = replace(token, expires=token.expires - seconds)


def answering(
    status: int, body: object = None, **headers: str
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(
            body, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    return answer


async def test_one_token_does_for_many_calls(stub: OpenstackStub) -> None:
    await asyncio.gather(*(stub.client.get("compute", f"/{number}") for number in range(50)))
    assert stub.asked == ["password"]
    assert len(stub.calls) == 50


async def test_clients_of_one_process_log_in_once(stub: OpenstackStub) -> None:
    """Given one client after the other, as for a run's ledger, its room, and its removal, then Keystone hashes the
    password once."""
    for _ in range(3):
        client = OpenstackClient(stub.access)
        await client.get("compute", "/")
        await client.close()
    assert stub.asked == ["password"]


async def test_a_token_that_runs_out_is_renewed_before_it_does(stub: OpenstackStub) -> None:
    """Given a token that has 300 s left (RENEW_AT_MOST), then calls go on with it until there is another."""
    await stub.client.get("compute", "/")
    age(stub, 3301.0)
    await stub.client.get("compute", "/")
    due = tokens_of(stub.access)[""]
    while tokens_of(stub.access)[""] is due:
        await stub.client.get("compute", "/")
    stub.good.remove(due.text)
    await stub.client.get("compute", "/")
    assert stub.asked == ["password"] * 2
    assert stub.refused == 0


async def test_a_token_that_is_over_is_not_used(stub: OpenstackStub) -> None:
    await stub.client.get("compute", "/")
    stub.forget()
    age(stub, 3599.0)
    await stub.client.get("compute", "/")
    assert stub.asked == ["password"] * 2
    assert stub.refused == 0


async def test_a_slow_keystone_holds_up_no_call_while_there_is_a_good_token(stub: OpenstackStub) -> None:
    """Given a token that is due, and a Keystone that does not answer, then calls are made with it all the same."""
    await stub.client.log_in()
    stub.keystone_waits = asyncio.Event()
    age(stub, 3400.0)
    for _ in range(5):
        await stub.client.get("compute", "/")
    while len(stub.asked) < 2:
        await stub.client.get("compute", "/")
    stub.keystone_waits.set()


async def test_a_keystone_that_does_not_answer_is_not_waited_for_for_ever(
    stub: OpenstackStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a Keystone that is silent
    stub.keystone_waits = asyncio.Event()
    # when a token is waited for, for a short time only
    with monkeypatch.context() as patience:
        patience.setattr("tippingpoint.targets.openstack.client.RENEW_WITHIN", 0.05)
        with pytest.raises(OpenstackError, match="no answer within") as late:
            await stub.client.get("compute", "/")
    # then that is a timeout, and the next call asks again, for as long as a slow machine takes
    assert late.value.kind == "timeout"
    stub.keystone_waits.set()
    await stub.client.get("compute", "/")


async def test_a_token_that_is_refused_is_renewed_once_for_all_who_find_out(stub: OpenstackStub) -> None:
    await stub.client.log_in()
    stub.forget()
    await asyncio.gather(*(stub.client.get("compute", f"/{number}") for number in range(20)))
    assert stub.asked == ["password", "password"]
    assert stub.refused == 20


async def test_a_service_that_refuses_every_token_is_asked_twice_and_no_more(stub: OpenstackStub) -> None:
    stub.answer = answering(401, {"error": {"message": "no"}})
    with pytest.raises(OpenstackError, match="no") as refused:
        await stub.client.get("compute", "/")
    assert refused.value.kind == "trust"
    assert len(stub.calls) == 2


async def test_a_project_s_token_is_made_of_our_own(stub: OpenstackStub) -> None:
    """Given 20 projects, then the password is hashed once; and refused tokens of projects are made anew."""
    projects = [f"p{number}" for number in range(20)]
    calls = [stub.client.get("compute", "/", project=project) for project in projects]
    await asyncio.gather(*calls)
    assert sorted(stub.asked) == sorted(["password", *(f"token {project}" for project in projects)])
    stub.forget()
    await stub.client.get("compute", "/", project="p1")
    assert stub.asked[21:] == ["token p1", "password", "token p1"]


async def test_clients_that_are_made_before_there_is_a_token_share_it(stub: OpenstackStub) -> None:
    """Given a client of the user that groups are made by, and one of who makes them, then one log-in does."""
    clients = [OpenstackClient(stub.access) for _ in range(2)]
    for client in clients:
        await client.get("compute", "/", project="p1")
        await client.close()
    assert stub.asked == ["password", "token p1"]


async def test_a_project_s_token_is_had_again_after_all_were_revoked_whoever_was_slow(
    stub: OpenstackStub,
) -> None:
    """Given tokens of which one was had when Keystone was slow, so that it seems to end much earlier than the one that
    it was made of, then both are made anew when both are refused."""
    await stub.client.log_in()
    await stub.client.get("compute", "/", project="p1")
    tokens = tokens_of(stub.access)
    tokens["p1"] = replace(tokens["p1"], expires=tokens["p1"].expires - 100.0)
    stub.forget()
    await stub.client.get("compute", "/", project="p1")
    assert stub.asked == ["password", "token p1", "token p1", "password", "token p1"]


async def test_a_rate_limit_is_waited_for_and_told_as_what_it_is(stub: OpenstackStub) -> None:
    loop = asyncio.get_running_loop()
    stub.answer = answering(429, {"overLimit": {"message": "slow down"}}, Retry_After="1")
    began = loop.time()
    with pytest.raises(Limited, match="rate limit"):
        await stub.client.get("compute", "/")
    assert loop.time() - began >= 1.0


async def test_a_service_that_says_when_to_come_again_is_left_alone_until_then(stub: OpenstackStub) -> None:
    loop = asyncio.get_running_loop()
    stub.answer = answering(503, None, Retry_After="1")
    began = loop.time()
    with pytest.raises(OpenstackError) as refused:
        await stub.client.get("compute", "/")
    assert refused.value.kind == "unreachable"
    assert loop.time() - began >= 1.0


@pytest.mark.parametrize("date", ["soon", "", "-1", "Thu, 01 Jan 1970 00:00:00 GMT"])
async def test_a_retry_after_that_is_none_is_not_heeded(stub: OpenstackStub, date: str) -> None:
    stub.answer = answering(503, None, Retry_After=date)
    with pytest.raises(OpenstackError):
        await stub.client.get("compute", "/")


async def test_garbage_is_an_error_in_one_line(stub: OpenstackStub) -> None:
    async def garbage(request: web.Request) -> web.Response:
        return web.Response(body=b"\xff\n<html>")

    stub.answer = garbage
    with pytest.raises(OpenstackError, match="not JSON"):
        await stub.client.get("compute", "/servers")


async def test_an_answer_without_end_is_not_taken_in(
    stub: OpenstackStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tippingpoint.targets.openstack.client.LARGEST_ANSWER", 1 << 20)

    async def endless(request: web.Request) -> web.Response:
        return web.Response(body=b" " * (8 << 20))

    stub.answer = endless
    with pytest.raises(OpenstackError, match="more than 1 MiB"):
        await stub.client.get("compute", "/servers")


async def test_what_passes_by_itself_is_asked_again(stub: OpenstackStub) -> None:
    async def second(request: web.Request) -> web.Response:
        return web.json_response({"found": 1}, status=200 if len(stub.calls) > 1 else 503)

    stub.answer = second
    assert await insist(lambda: stub.client.get("compute", "/")) == {"found": 1}
    stub.answer = answering(403, {"forbidden": {"message": "Policy"}})
    calls = len(stub.calls)
    with pytest.raises(OpenstackError, match="Policy"):
        await insist(lambda: stub.client.get("compute", "/"))
    assert len(stub.calls) == calls + 1


async def test_a_service_that_the_catalogue_does_not_have_is_told(stub: OpenstackStub) -> None:
    with pytest.raises(OpenstackError, match="no public endpoint of network in any region"):
        await stub.client.get("network", "/networks")


async def test_a_catalogue_s_address_that_is_none_is_told(stub: OpenstackStub) -> None:
    stub.address = "https://compute:port/v2.1"
    with pytest.raises(OpenstackError, match="invalid address") as refused:
        await stub.client.get("compute", "/servers")
    assert refused.value.kind == "setting"


async def test_one_of_several_regions_has_to_be_named(stub: OpenstackStub) -> None:
    stub.regions = ["West", "East"]
    with pytest.raises(UserError, match=r"target\.region: missing: expected one of East, West"):
        await stub.client.log_in()
    for region in stub.regions:
        client = OpenstackClient(stub.access_to(region))
        await client.log_in()
        await client.close()
    client = OpenstackClient(stub.access_to("North"))
    with pytest.raises(UserError, match=r"target\.region: North: expected one of East, West"):
        await client.log_in()
    await client.close()


async def test_a_log_in_that_a_rate_limit_refuses_is_tried_again(stub: OpenstackStub) -> None:
    stub.keystone_limits = 2
    await stub.client.log_in()
    assert stub.asked == ["password"] * 3


async def test_a_rate_limit_that_does_not_end_is_one_line(
    stub: OpenstackStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tippingpoint.targets.openstack.client.insist", partial(insist, within=2.0))

    stub.keystone_limits = 1000
    with pytest.raises(TargetError, match="rate limit"):
        await stub.client.log_in()


async def test_a_keystone_that_is_not_there_is_one_line(stub: OpenstackStub) -> None:
    await stub.end()
    with pytest.raises(TargetError, match="Connection refused") as refused:
        await stub.client.log_in()
    assert "hush" not in str(refused.value)
