"""Calls of a MAAS: they are signed, and each way in which a region may refuse or be none is told in one line."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from lab.certificates import make_certificates
from tests.unit.targets.maas.maas_stub import MaasStub, answering, stub_region, way_to
from tippingpoint.errors import TargetError
from tippingpoint.targets.maas import client as maas_client
from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.errors import MaasError, MaasExists, MaasGone
from tippingpoint.workloads.spawn.target import Exists, Gone


@pytest.fixture
async def stub() -> AsyncIterator[MaasStub]:
    async with stub_region() as stub:
        yield stub


@pytest.fixture
async def client(stub: MaasStub, tmp_path: Path) -> AsyncIterator[MaasClient]:
    client = MaasClient(way_to(stub.url, tmp_path))
    yield client
    await client.close()


async def refusal(url: str, directory: Path, **changed: Any) -> TargetError:
    client = MaasClient(way_to(url, directory, **changed))
    try:
        with pytest.raises(TargetError) as problem:
            await client.log_in()
    finally:
        await client.close()
    assert "hush" not in str(problem.value)
    assert "\n" not in str(problem.value)
    return problem.value


@pytest.mark.parametrize("version", ["3.3.11", "3.4.0", "3.5.0~beta1", "3.6.1", "3.7.0", "4.0.0"])
async def test_a_region_that_takes_the_key_tells_its_version(
    stub: MaasStub, client: MaasClient, version: str
) -> None:
    stub.answers["GET api/2.0/version/"] = answering({"version": version})
    assert await client.log_in() == version


async def test_the_key_goes_only_to_what_is_a_maas(stub: MaasStub, client: MaasClient) -> None:
    """Given a region, when its version is asked for, then that call has no key, and the next one has."""
    await client.log_in()
    version, user = stub.signatures
    assert version == {}
    assert (user["consumer_key"], user["token"], user["signature"]) == ("consumer", "token", "&hush")


async def test_a_wrong_key_is_refused_in_one_line(stub: MaasStub, tmp_path: Path) -> None:
    problem = await refusal(stub.url, tmp_path, api_key="consumer:token:other")
    assert problem.refused
    assert problem.problem == "GET users/ whoami: Authorization Error: Invalid API key. (HTTP 401)"
    assert "maas apikey" in problem.accepted


async def test_a_user_who_is_no_administrator_is_refused(stub: MaasStub, tmp_path: Path) -> None:
    stub.answers["GET api/2.0/users/"] = answering({"username": "ann", "is_superuser": False})
    problem = await refusal(stub.url, tmp_path)
    assert problem.refused
    assert problem.problem == "ann is no administrator"


async def test_another_authority_is_refused(tmp_path: Path) -> None:
    """Given a region with a certificate, then it is verified by the file's authority and by no other."""
    for name in ("ours", "others"):
        (tmp_path / name).mkdir()
    ours, others = (make_certificates(tmp_path / name, name) for name in ("ours", "others"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours.server_cert, ours.server_key)
    async with stub_region(context) as stub:
        client = MaasClient(way_to(stub.url, tmp_path, ca=ours.ca.read_text()))
        assert await client.log_in() == "3.3.11"
        await client.close()
        problem = await refusal(stub.url, tmp_path, ca=others.ca.read_text())
        assert problem.refused
        assert "the server's certificate is not signed by a trusted authority" in problem.problem
        assert problem.accepted == "the authority that signed the region's certificate, as `ca`"


async def test_an_api_older_than_2_0_is_refused(stub: MaasStub, tmp_path: Path) -> None:
    del stub.answers["GET api/2.0/version/"]
    stub.answers["GET api/1.0/version/"] = answering({"version": "1.9.5"})
    problem = await refusal(stub.url, tmp_path)
    assert problem.problem == "MAAS 1.9.5 with version 1.0 of the API"
    assert problem.accepted == "MAAS 3.3 or newer, with version 2.0 of the API"


@pytest.mark.parametrize("version", ["2.9.2", "3.2.9", "", None, "new"])
async def test_a_maas_that_the_suite_does_not_know_is_refused(
    stub: MaasStub, tmp_path: Path, version: str | None
) -> None:
    stub.answers["GET api/2.0/version/"] = answering({"version": version})
    problem = await refusal(stub.url, tmp_path)
    assert problem.problem == f"MAAS {version or 'without a version'}"
    assert problem.accepted.startswith("MAAS 3.3 or newer")


async def test_an_address_where_no_maas_is_is_named(stub: MaasStub, tmp_path: Path) -> None:
    stub.answers.clear()
    problem = await refusal(stub.url, tmp_path)
    assert problem.where == stub.url
    assert problem.problem == "no MAAS here"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("<!DOCTYPE html><p>Welcome", "GET version/: an HTML page instead of JSON"),
        ("3.3.11 or so", "GET version/: an answer instead of JSON"),
        ("", "GET version/: an empty answer"),
    ],
)
async def test_an_answer_that_is_none_is_told(stub: MaasStub, tmp_path: Path, answer: str, said: str) -> None:
    stub.answers["GET api/2.0/version/"] = answering(answer)
    problem = await refusal(stub.url, tmp_path)
    assert problem.problem == said
    assert problem.accepted == "a MAAS region that answers"


async def test_a_region_that_closes_the_connection_is_told(stub: MaasStub, tmp_path: Path) -> None:
    async def close(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    stub.answers["GET api/2.0/version/"] = close
    problem = await refusal(stub.url, tmp_path)
    assert problem.problem == "connection closed by the server"
    assert not problem.refused


async def test_a_region_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with stub_region() as stub:
        url = stub.url
    problem = await refusal(url, tmp_path)
    assert problem.problem == "Connection refused"


@pytest.mark.parametrize("listed", [[], [{"a": "}]"}, {"b": [{}]}]])
async def test_a_list_is_read_one_object_at_a_time(
    stub: MaasStub, client: MaasClient, listed: list[Any]
) -> None:
    stub.answers["GET api/2.0/machines/"] = answering(listed)
    assert await client.each("machines/", lambda each: each, [("id", "x")]) == listed
    assert await client.each("machines/", lambda each: each.get("a")) == [
        each["a"] for each in listed if "a" in each
    ]
    await client.skim("machines/")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("<html>{}</html>", "GET machines/: an HTML page instead of JSON"),
        ("yes", "GET machines/: an answer instead of JSON"),
        ("[{'a': 1}]", "GET machines/: an answer instead of JSON"),
        ("", "GET machines/: an empty answer"),
    ],
)
async def test_a_list_that_is_none_is_told(
    stub: MaasStub, client: MaasClient, answer: str, said: str
) -> None:
    stub.answers["GET api/2.0/machines/"] = answering(answer)
    with pytest.raises(MaasError) as problem:
        await client.each("machines/", lambda each: each)
    assert str(problem.value) == said
    if not answer.startswith("["):
        with pytest.raises(MaasError) as problem:
            await client.skim("machines/")
        assert str(problem.value) == said


async def test_a_list_without_an_end_is_given_up(
    stub: MaasStub, client: MaasClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maas_client, "LARGEST_LIST", 1 << 20)
    stub.answers["GET api/2.0/machines/"] = answering("[" + 200_000 * '{"a": 1},')
    for asked in (client.each("machines/", lambda each: each), client.skim("machines/")):
        with pytest.raises(MaasError, match="an answer of more than 1 MiB"):
            await asked


async def test_a_field_may_be_sent_several_times(stub: MaasStub, client: MaasClient) -> None:
    """Given a machine with two MAC addresses, then both are fields of this name; the operation is in the query."""
    stub.answers["POST api/2.0/machines/"] = answering({"system_id": "abc123"})
    fields = [("mac_addresses", "02:00:00:00:00:01"), ("mac_addresses", "02:00:00:00:00:02")]
    assert await client.send("POST", "machines/", fields, op="op of a test") == {"system_id": "abc123"}
    assert stub.forms == [fields]
    assert dict(stub.calls[-1].query) == {"op": "op of a test"}


async def test_a_deletion_has_no_answer(stub: MaasStub, client: MaasClient) -> None:
    stub.answers["DELETE api/2.0/machines/abc123/"] = answering("", 204)
    assert await client.send("DELETE", "machines/abc123/") is None


async def test_a_mac_that_is_in_use_is_a_thing_that_exists(stub: MaasStub, client: MaasClient) -> None:
    said = {"mac_addresses": ["MAC address 02:00:00:00:00:01 already in use on tp-000-0001."]}
    stub.answers["POST api/2.0/machines/"] = answering(said, 400)
    with pytest.raises(MaasExists) as problem:
        await client.send("POST", "machines/", [("mac_addresses", "02:00:00:00:00:01")])
    assert isinstance(problem.value, Exists)
    assert problem.value.name == "tp-000-0001"
    assert str(problem.value) == (
        "POST machines/: mac_addresses: MAC address MAC already in use on another machine. (HTTP 400)"
    )


@pytest.mark.parametrize(
    ("status", "answer", "kind", "said"),
    [
        (
            400,
            {"architecture": ["'sparc' is not a valid architecture."]},
            "setting",
            "architecture: 'sparc' is",
        ),
        (400, {"__all__": ["Sorry"]}, "setting", "ID/ deploy: Sorry (HTTP 400)"),
        (401, "Authorization Error: 'Invalid access token: x'", "trust", "Invalid access token"),
        (403, "You are not allowed", "trust", "(HTTP 403)"),
        (409, "Can't deploy a machine that is in the 'Deployed' state", "busy", "'Deployed' state"),
        (500, "could not serialize access due to concurrent update", "locked", "concurrent update"),
        (502, "<html>Bad Gateway</html>", "unreachable", "an HTML page (HTTP 502)"),
        (503, "No more IPs available in subnet: 10.0.0.0/24.", "full", "No more IPs"),
        (503, "Unable to connect to any rack controller x; no connections available.", "unreachable", "rack"),
        (504, "", "timeout", "no message (HTTP 504)"),
        (500, "", "other", "POST machines/ID/ deploy: no message (HTTP 500)"),
    ],
)
async def test_a_failure_is_told_in_maas_words_with_its_cause(
    stub: MaasStub, client: MaasClient, status: int, answer: Any, kind: str, said: str
) -> None:
    stub.answers["POST api/2.0/machines/abc123/"] = answering(answer, status)
    with pytest.raises(MaasError) as problem:
        await client.send("POST", "machines/abc123/", op="deploy")
    assert (problem.value.kind, problem.value.code) == (kind, status)
    assert said in str(problem.value)


async def test_a_machine_that_does_not_exist_is_gone(client: MaasClient) -> None:
    with pytest.raises(MaasGone) as problem:
        await client.get("machines/abc123/")
    assert isinstance(problem.value, Gone)
    assert str(problem.value) == "GET machines/ID/: Not Found (HTTP 404)"


async def test_a_simulated_region_is_known_by_its_version(tmp_path: Path) -> None:
    async with stub_region() as stub:
        stub.answers["GET api/2.0/version/"] = answering({"version": "3.3.11", "subversion": "simulated"})
        client = MaasClient(way_to(stub.url, tmp_path))
        assert await client.log_in() == "3.3.11-simulated"
        await client.close()
