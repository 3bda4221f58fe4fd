"""Logins and calls of the Juju client, against a server of a few lines that answers as each test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.targets.juju.juju_stub import Peer, login_reply, obliging, stub
from tippingpoint.errors import UserError
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.errors import (
    ApiError,
    ConnectionLost,
    RateLimited,
    result_error,
    result_errors,
)
from tippingpoint.targets.juju.api.facades import choose, offered_facades
from tippingpoint.targets.juju.api.login import Identity, TermsBook

MODEL = "ef3d116f-0437-4a17-844b-bde876780123"
UNIT = Identity("unit-tp1-l0-0", "unit-secret")
LOOPS = ("asyncio", "uvloop")


def refusing(message: str, code: str, **fields: object) -> Callable[[Peer, dict[str, Any]], None]:
    return lambda peer, request: peer.reply(request, error=message, **{"error-code": code}, **fields)


async def test_a_login_says_who_and_where_and_the_reply_is_negotiated() -> None:
    async with stub() as server:
        client = ApiClient([server.address], server.ca)
        connection = await client.login(Identity("machine-0", "secret", "manual:x"), MODEL)
        peer = server.peers[0]
        assert peer.path == f"/model/{MODEL}/api"
        login = peer.requests[0]
        assert (login["type"], login["version"], login["request"]) == ("Admin", 3, "Login")
        assert login["params"] == {
            "auth-tag": "machine-0",
            "credentials": "secret",
            "nonce": "manual:x",
            "client-version": "4.0.0",
        }
        assert (connection.tag, connection.server) == ("machine-0", server.address)
        assert connection.server_version == "4.0.15"
        assert connection.facades == {"Application": 22, "LeadershipService": 2, "Pinger": 1}
        assert client.connections == 1
        await client.close()
        assert client.connections == 0


async def test_a_login_without_a_model_is_the_controllers() -> None:
    async with stub() as server:
        client = ApiClient([server.address], server.ca)
        await client.login(UNIT, None)
        assert server.peers[0].path == "/api"
        await client.close()


async def test_connections_with_the_same_terms_share_them() -> None:
    async with stub() as server:
        client = ApiClient([server.address], server.ca)
        one, other = await asyncio.gather(client.login(UNIT, MODEL), client.login(UNIT, MODEL))
        assert one.facades is other.facades
        await client.close()


async def test_a_call_has_the_version_chosen_and_ends_with_the_response() -> None:
    async with stub() as server:
        client = ApiClient([server.address], server.ca)
        connection = await client.login(UNIT, MODEL)
        assert await connection.call("Application", "Get", {"application": "é"}) == {"application": "é"}
        assert await connection.call("LeadershipService", "X", None) == {}
        get, x = server.peers[0].requests[1:]
        assert (get["type"], get["version"], get["request"]) == ("Application", 22, "Get")
        assert x["params"] == {}
        assert len({request["request-id"] for request in server.peers[0].requests}) == 3
        await client.close()


async def test_answers_may_come_in_any_order() -> None:
    held: list[dict[str, Any]] = []

    def answer(peer: Peer, request: dict[str, Any]) -> None:
        if request["request"] == "Login":
            obliging(peer, request)
        else:
            held.append(request)
            if len(held) == 3:
                for one in reversed(held):
                    peer.reply(one, one["params"])

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)
        connection = await client.login(UNIT, MODEL)
        calls = [connection.call("LeadershipService", "Echo", {"n": n}) for n in range(3)]
        assert await asyncio.gather(*calls) == [{"n": 0}, {"n": 1}, {"n": 2}]
        await client.close()


async def test_an_error_has_the_controllers_code() -> None:
    def answer(peer: Peer, request: dict[str, Any]) -> None:
        if request["request"] == "Login":
            obliging(peer, request)
        else:
            peer.reply(request, error="permission\n denied", **{"error-code": "unauthorized access"})

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)
        connection = await client.login(UNIT, MODEL)
        with pytest.raises(ApiError) as caught:
            await connection.call("LeadershipService", "ClaimLeadership", {})
        error = caught.value
        assert str(error) == "permission denied (unauthorized access)"
        assert (error.code, error.facade, error.request) == (
            "unauthorized access",
            "LeadershipService",
            "ClaimLeadership",
        )
        await client.close()


@pytest.mark.parametrize(
    ("facade", "said"),
    [
        ("Deployer", "Juju 4.0.15 offers version 99: expected version 1"),
        ("Client", "Juju 4.0.15 does not offer it to this login: expected versions 2 to 8"),
        ("Nonsense", "not supported by this client"),
    ],
)
async def test_a_facade_we_cannot_speak_is_refused_with_the_versions_offered(facade: str, said: str) -> None:
    async with stub() as server:
        client = ApiClient([server.address], server.ca)
        connection = await client.login(UNIT, MODEL)
        with pytest.raises(ApiError, match=said) as caught:
            await connection.call(facade, "SetPasswords", {})
        assert (caught.value.code, caught.value.facade) == ("not implemented", facade)
        assert len(server.peers[0].requests) == 1
        await client.close()


@given(st.lists(st.integers(0, 40), max_size=8, unique=True))
def test_the_newest_version_that_both_sides_speak_is_chosen(offered: list[int]) -> None:
    common = [version for version in offered if 13 <= version <= 22]
    chosen = choose(offered_facades([{"name": "Application", "versions": offered}]))
    assert chosen == ({"Application": max(common)} if common else {})


async def test_the_late_answer_of_a_cancelled_call_is_dropped() -> None:
    held: list[dict[str, Any]] = []

    def answer(peer: Peer, request: dict[str, Any]) -> None:
        if request["request"] == "Block":
            held.append(request)
            return
        for late in held:
            peer.reply(late, {"late": True})
            peer.reply({"request-id": 987654}, {"never": "asked"})
        obliging(peer, request)

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)
        connection = await client.login(UNIT, MODEL)
        blocked = connection.call("LeadershipService", "Block", {})
        blocked.cancel()
        assert await connection.call("LeadershipService", "Echo", {"n": 1}) == {"n": 1}
        assert held
        await client.close()


@pytest.mark.parametrize(
    ("message", "code", "kind"),
    [
        ("invalid entity name or password", "unauthorized access", ApiError),
        ("try again", "try again", RateLimited),
    ],
)
async def test_a_refused_login_ends_with_the_controllers_error(
    message: str, code: str, kind: type[ApiError]
) -> None:
    async with stub(refusing(message, code)) as server:
        client = ApiClient([server.address], server.ca)
        with pytest.raises(ApiError) as caught:
            await client.login(UNIT, MODEL)
        assert type(caught.value) is kind
        assert (caught.value.code, caught.value.request) == (code, "Login")
        await server.peers[0].closed.wait()
        await client.close()


async def test_an_older_controller_is_told_its_own_version_as_it_restricts_users_of_another() -> None:
    def answer(peer: Peer, request: dict[str, Any]) -> None:
        peer.reply(request, login_reply(**{"server-version": "3.6.4"}))

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)
        connection = await client.login(UNIT, MODEL)
        assert connection.server_version == "3.6.4"
        await client.login(UNIT, MODEL)
        said = [peer.requests[0]["params"]["client-version"] for peer in server.peers]
        assert said == ["4.0.0", "3.6.4", "3.6.4"]
        await client.close()


async def test_a_controller_that_wants_a_macaroon_is_refused_in_one_line() -> None:
    def answer(peer: Peer, request: dict[str, Any]) -> None:
        peer.reply(request, {"discharge-required": {}, "discharge-required-error": "no macaroons"})

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)
        with pytest.raises(ApiError, match="expected a local user with a password"):
            await client.login(UNIT, MODEL)
        await client.close()


def hosts(*addresses: str) -> list[list[dict[str, Any]]]:
    """Addresses as Juju lists servers, after one that is of use to nobody else."""
    local = {"value": "127.0.0.1", "type": "ipv4", "scope": "local-machine", "port": 1}
    split = [address.rsplit(":", 1) for address in addresses]
    return [
        [local],
        *([{"value": h, "type": "ipv4", "scope": "local-cloud", "port": int(p)}] for h, p in split),
    ]


async def test_a_redirect_is_followed_and_remembered() -> None:
    async with stub() as new:
        info = {"servers": hosts(new.address), "ca-cert": new.ca}
        async with stub(refusing("moved", "redirection required", **{"error-info": info})) as old:
            client = ApiClient([old.address], old.ca)
            connection = await client.login(UNIT, MODEL)
            assert connection.server == new.address
            assert new.peers[0].requests[0]["params"]["auth-tag"] == UNIT.tag
            await client.login(UNIT, MODEL)
            assert (len(old.peers), len(new.peers)) == (1, 2)
            await client.close()


async def test_a_redirect_without_addresses_is_asked_for_them() -> None:
    async with stub() as new:
        info = {"servers": hosts(new.address), "ca-cert": new.ca}

        def answer(peer: Peer, request: dict[str, Any]) -> None:
            if request["request"] == "RedirectInfo":
                peer.reply(request, info)
            else:
                refusing("moved", "redirection required")(peer, request)

        async with stub(answer) as old:
            client = ApiClient([old.address], old.ca)
            assert (await client.login(UNIT, MODEL)).server == new.address
            await client.close()


@pytest.mark.parametrize("ca", ["", "no certificate"])
async def test_a_redirect_to_no_controller_loses_the_login(ca: str) -> None:
    def answer(peer: Peer, request: dict[str, Any]) -> None:
        if request["request"] == "RedirectInfo":
            peer.reply(request, {"servers": hosts("192.0.2.1:17070"), "ca-cert": ca})
        else:
            refusing("moved", "redirection required")(peer, request)

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)
        with pytest.raises(ConnectionLost, match="redirects to an invalid controller"):
            await client.login(UNIT, MODEL)
        await client.close()


async def test_redirects_in_a_circle_end() -> None:
    def answer(peer: Peer, request: dict[str, Any]) -> None:
        info = {"servers": hosts(server.address), "ca-cert": server.ca}
        refusing("moved", "redirection required", **{"error-info": info})(peer, request)

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)
        with pytest.raises(ConnectionLost, match="redirects too often or without an address"):
            await client.login(UNIT, MODEL)
        await client.close()


@pytest.mark.parametrize(
    "address", ["", "192.0.2.1", "192.0.2.1:0", "192.0.2.1:99999", "fe80::1:17070", ":1"]
)
async def test_an_address_without_host_or_port_is_refused(address: str) -> None:
    with pytest.raises(UserError, match=r'addresses: .*expected "HOST:PORT"'):
        ApiClient([address], "")


async def test_a_ca_that_is_none_is_refused_without_quoting_it() -> None:
    with pytest.raises(UserError, match="ca: not a certificate: expected CA certificates in PEM"):
        ApiClient(["192.0.2.1:17070"], "-----BEGIN " + "PRIVATE KEY-----\nsecret")


async def test_passwords_show_in_no_text_of_the_client() -> None:
    async with stub(refusing("no", "unauthorized access")) as server:
        client = ApiClient([server.address], server.ca)
        texts = [repr(UNIT), str(UNIT)]
        login = client.login(UNIT, MODEL)
        texts.append(repr(login))
        with pytest.raises(ApiError) as caught:
            await login
        texts += [repr(caught.value), str(caught.value), repr(vars(caught.value)), repr(login)]
        assert "unit-secret" not in "".join(texts)
        await client.close()


def test_errors_inside_a_bulk_response_are_found() -> None:
    response = {
        "results": [
            {},
            {"error": None},
            {"error": {"message": "leadership claim denied", "code": "leadership claim denied"}},
            {"error": {"message": "invalid duration", "code": ""}},
            {"error": {"message": "slow down", "code": "try again"}},
        ]
    }
    found = result_errors(response, "LeadershipService", "ClaimLeadership")
    assert [error and (str(error), error.code) for error in found] == [
        None,
        None,
        ("leadership claim denied (leadership claim denied)", "leadership claim denied"),
        ("invalid duration", ""),
        ("slow down (try again)", "try again"),
    ]
    assert isinstance(found[4], RateLimited)
    assert found[2] is not None
    assert found[2].facade == "LeadershipService"
    assert result_errors(None) == result_errors({}) == result_errors({"results": None}) == []
    assert result_error({"error": {"message": "gone", "code": "not found"}}) is not None
    assert result_error({}) is None


def test_a_reply_written_in_another_way_is_read_too() -> None:
    book = TermsBook()
    compact = (
        b'{"request-id":1,"response":{"facades":[{"name":"Pinger","versions":[1]}],"server-version":"4.0.1"}}'
    )
    spaced = compact.replace(b'"facades":', b'"facades": ')
    for text in (compact, spaced, compact.replace(b'"versions":[1]', b'"versions":[1],"more":[{"x":[{}]}]')):
        reply, facades = book.read(text)
        assert reply["response"]["server-version"] == "4.0.1"
        assert book.terms("4.0.1", facades).facades == {"Pinger": 1}
    nothing, facades = book.read(b'{"request-id":1,"response":{"server-version":"4.0.1"}}')
    assert nothing["response"] == {"server-version": "4.0.1"}
    assert book.terms("4.0.1", facades).facades == {}
