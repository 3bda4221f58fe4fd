"""The client of the LXD API on a real LXD, and on a proxy in front of it for what LXD does not do on demand."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lab.lxd.access import make_client_certificate
from lab.lxd.cluster import LxdLab
from lab.lxd.proxy import Cut, Fail, FailOperation, Garble, Hold, LxdProxy
from tests.functional.program import WITHIN_S
from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.targets.lxd import client as client_module
from tippingpoint.targets.lxd.access import LxdAccess, der, fingerprint, from_file, from_remote, from_socket
from tippingpoint.targets.lxd.client import LxdClient
from tippingpoint.targets.lxd.errors import LxdError, LxdExists, LxdGone
from tippingpoint.targets.lxd.image import fingerprint as image_fingerprint
from tippingpoint.targets.lxd.image import tiny_image
from tippingpoint.targets.lxd.product import image_headers
from tippingpoint.targets.lxd.trust import from_identity, make_identity, redeem
from tippingpoint.util import rest
from tippingpoint.workloads.spawn.target import PASSING

T = TypeVar("T")

INSTANCES = "/1.0/instances"
WAIT = r"^/1.0/operations/[^/]+/wait"


@pytest.fixture
def proxy(lxd_single: LxdLab) -> Iterator[LxdProxy]:
    """A proxy without rules in front of the shared single server."""
    with LxdProxy(lxd_single) as proxy:
        yield proxy


@pytest.fixture
def access(lxd_single: LxdLab) -> LxdAccess:
    """The shared single server, over HTTPS."""
    return from_file(lxd_single.credentials)


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The address of a server that refuses connections."""
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        yield f"https://127.0.0.1:{bound.getsockname()[1]}"


def use(access: LxdAccess, act: Callable[[LxdClient], Awaitable[T]], prefer: int = 0) -> T:
    """What is done with a client of its own."""

    async def scene() -> T:
        client = LxdClient(access, prefer)
        try:
            async with asyncio.timeout(600):
                return await act(client)
        finally:
            await client.close()

    return asyncio.run(scene())


def failure(access: LxdAccess, act: Callable[[LxdClient], Awaitable[Any]]) -> LxdError:
    """How it fails: one line."""
    with pytest.raises(LxdError) as error:
        use(access, act)
    assert isinstance(error.value, OperationFailed)
    assert len(str(error.value).splitlines()) == 1
    return error.value


async def create(client: LxdClient, name: str, **query: object) -> dict[str, Any]:
    body = {"name": name, "source": {"type": "image", "alias": "tiny"}}
    return await client.operate("POST", INSTANCES, body, **query)


async def change(client: LxdClient, name: str, action: str) -> dict[str, Any]:
    return await client.operate(
        "PUT", f"{INSTANCES}/{name}/state", {"action": action, "force": action == "stop"}
    )


async def remove(client: LxdClient, name: str) -> None:
    await client.operate("DELETE", f"{INSTANCES}/{name}")


async def remove_once_made(client: LxdClient, name: str) -> None:
    """Remove an instance that LXD has been asked for, and may not have begun to make."""
    while True:
        try:
            return await remove(client, name)
        except LxdError as problem:
            if problem.kind != "busy" and not isinstance(problem, LxdGone):
                raise


# Calls


@pytest.mark.parametrize("way", ["https", "socket", "remote"])
def test_an_instance_is_made_started_stopped_and_removed(lxd_single: LxdLab, way: str) -> None:
    """Given each way to reach a server, when an instance lives its life, then each call returns once it is so."""

    async def life(client: LxdClient) -> list[str]:
        seen: list[str] = []
        await create(client, "life")
        seen.append((await client.get(f"{INSTANCES}/life"))["status"])
        for action in ("start", "stop"):
            await change(client, "life", action)
            seen.append((await client.get(f"{INSTANCES}/life"))["status"])
        await remove(client, "life")
        return seen + await client.get(INSTANCES, recursion=0)

    access = {
        "https": lambda: from_file(lxd_single.credentials),
        "socket": lambda: from_socket(lxd_single.unix_socket()),
        "remote": lambda: from_remote(None, lxd_single.remote_directory()),
    }[way]()
    assert use(access, life) == ["Stopped", "Running", "Stopped"]


def test_an_operation_is_followed_by_one_call_that_waits(proxy: LxdProxy) -> None:
    """Given a server that counts, when operations are done, then each costs its request and one wait."""

    async def live(client: LxdClient) -> None:
        await create(client, "followed")
        await change(client, "followed", "start")
        await change(client, "followed", "stop")
        await remove(client, "followed")

    use(from_file(proxy.credentials), live)
    assert proxy.counts() == {
        ("POST", "/1.0/instances"): 1,
        ("PUT", "/1.0/instances/*/state"): 2,
        ("DELETE", "/1.0/instances/*"): 1,
        ("GET", "/1.0/operations/*/wait"): 4,
    }


def test_what_an_operation_tells_is_returned(access: LxdAccess) -> None:
    async def run_in_it(client: LxdClient) -> dict[str, Any]:
        await create(client, "telling")
        await change(client, "telling", "start")
        wanted = {"command": ["sh", "-c", "exit 3"], "record-output": True}
        told = await client.operate("POST", f"{INSTANCES}/telling/exec", wanted)
        await change(client, "telling", "stop")
        await remove(client, "telling")
        return told

    assert use(access, run_in_it)["return"] == 3


def test_a_change_that_is_done_at_once_is_sent(access: LxdAccess) -> None:
    async def settle(client: LxdClient) -> Any:
        await client.send("POST", "/1.0/projects", {"name": "sent", "config": {"user.x": "a b&c"}})
        await client.send("PATCH", "/1.0/projects/sent", {"description": "changed"})
        shown = await client.get("/1.0/projects/sent")
        await client.send("DELETE", "/1.0/projects/sent")
        return shown["config"]["user.x"], shown["description"]

    assert use(access, settle) == ("a b&c", "changed")


def test_what_is_asked_for_in_a_query_is_passed_as_it_is(access: LxdAccess) -> None:
    async def ask(client: LxdClient) -> Any:
        await client.send("POST", "/1.0/projects", {"name": "a&b=c"})
        listed = await client.get(INSTANCES, project="a&b=c", recursion=1)
        await client.send("DELETE", "/1.0/projects/a%26b=c")
        return listed

    assert use(access, ask) == []


def test_what_lxd_refuses_is_raised(access: LxdAccess) -> None:
    """Given an instance, when one is made again or one that is not there is used, then the errors say which it is."""

    async def misuse(client: LxdClient) -> None:
        await create(client, "misused")
        try:
            with pytest.raises(LxdExists):
                await create(client, "misused")
            with pytest.raises(LxdGone):
                await change(client, "none", "start")
            with pytest.raises(LxdGone):
                await client.get(f"{INSTANCES}/none")
            with pytest.raises(LxdError) as error:
                await client.operate(
                    "POST", INSTANCES, {"name": "x", "source": {"type": "image", "alias": "none"}}
                )
            assert (error.value.kind, error.value.code) == ("image", 404)
        finally:
            await remove(client, "misused")

    use(access, misuse)


def test_an_operation_that_fails_is_raised_with_its_kind(proxy: LxdProxy) -> None:
    proxy.add("POST", "/1.0/instances", FailOperation("Failed creating instance record: database is locked"))
    error = failure(from_file(proxy.credentials), lambda client: create(client, "locked"))
    assert (error.kind, error.code) == ("locked", 400)


def test_a_list_of_many_comes_whole(lxd_single: LxdLab, access: LxdAccess) -> None:
    """Given an answer of many packets, when it is read, then nothing of it is missing."""

    async def fill(client: LxdClient) -> int:
        text = "x" * 100_000
        for number in range(20):
            await client.send("POST", "/1.0/profiles", {"name": f"p{number}", "config": {"user.text": text}})
        listed = await client.get("/1.0/profiles", recursion=1)
        for number in range(20):
            await client.send("DELETE", f"/1.0/profiles/p{number}")
        return sum(len(profile["config"].get("user.text", "")) for profile in listed)

    assert use(access, fill) == 2_000_000


# Answers that LXD would not give


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Garble(b"<html>"), "HTTP 200 without an answer of LXD"),
        (Garble(b""), "HTTP 200 without an answer of LXD"),
        (Garble(b"[]"), "HTTP 200 without an answer of LXD"),
        (Garble(b'{"type": 3}'), "HTTP 200 without an answer of LXD"),
        (Garble(b"\xff", 502), "HTTP 502 without an answer of LXD"),
        (Garble(b'{"type": "error", "error": "two\\nlines", "error_code": "x"}', 500), "two lines"),
        (Garble(b'{"type": "error"}', 500), "HTTP 500 without an answer of LXD"),
    ],
)
def test_an_answer_that_is_none_is_one_line(proxy: LxdProxy, answer: Garble, problem: str) -> None:
    proxy.add("GET", "/1.0/instances", answer)
    error = failure(from_file(proxy.credentials), lambda client: client.get(INSTANCES))
    assert str(error) == problem
    assert error.kind == ("unreachable" if answer.code == 502 else "other")


def test_an_answer_that_is_too_large_is_refused(proxy: LxdProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LARGEST_ANSWER", 1 << 20)
    proxy.add("GET", "/1.0/instances", Garble(b"x" * (2 << 20)))
    error = failure(from_file(proxy.credentials), lambda client: client.get(INSTANCES))
    assert str(error) == "/1.0/instances: an answer of more than 1 MiB"


@pytest.mark.parametrize("answer", [b'{"type": "sync", "metadata": [1]}', b'{"type": "sync"}'])
def test_a_server_that_is_no_lxd_is_refused(proxy: LxdProxy, answer: bytes) -> None:
    proxy.add("GET", "^/1.0$", Garble(answer))
    with pytest.raises(TargetError, match="it is not an LXD server"):
        use(from_file(proxy.credentials), lambda client: client.server())


# The way there


@pytest.mark.parametrize(
    ("answer", "times"),
    [
        pytest.param(Cut(), 1, id="connection breaks"),
        pytest.param(
            Fail("Failed to begin transaction: call exec-sql (budget 10s): receive: header: EOF"),
            2,
            id="no leader",
        ),
    ],
)
def test_a_wait_that_says_nothing_of_the_operation_is_asked_again(
    proxy: LxdProxy, answer: Cut | Fail, times: int
) -> None:
    """Given a wait whose answer is none, when there is no other address, then the same is asked again, for the
    operation, which is not begun twice."""
    unanswered = proxy.add("GET", WAIT, answer, times=times)

    async def live(client: LxdClient) -> None:
        await create(client, "asked-again")
        await remove(client, "asked-again")

    use(from_file(proxy.credentials), live)
    assert unanswered.applied == times
    assert proxy.count("POST", INSTANCES) == 1


def test_a_wait_goes_on_at_the_next_address(proxy: LxdProxy, access: LxdAccess) -> None:
    """Given a first address where every wait is cut, when an operation is done, then the second tells how it ended."""
    proxy.add("GET", WAIT, Cut())

    async def live(client: LxdClient) -> int:
        client.add_addresses([proxy.address, *access.addresses])
        await create(client, "moved")
        posted = proxy.count("POST", INSTANCES)
        await remove(client, "moved")
        return posted

    assert use(from_file(proxy.credentials), live) == 1
    assert proxy.count("GET", WAIT) <= 2  # on a connection that was used before aiohttp tries twice
    assert proxy.count("DELETE", INSTANCES) == 0  # the address that broke is not gone back to


def test_an_operation_that_nobody_knows_any_more_may_have_been_done(proxy: LxdProxy) -> None:
    proxy.add("GET", WAIT, Fail("Operation not found", 404), times=1)

    async def live(client: LxdClient) -> None:
        with pytest.raises(LxdError, match="its result is unknown") as error:
            await create(client, "unknown")
        assert error.value.kind == "unreachable"
        assert not isinstance(error.value, LxdGone)
        await remove_once_made(client, "unknown")

    use(from_file(proxy.credentials), live)


def test_a_cluster_that_finds_no_leader_is_not_asked_for_ever(
    proxy: LxdProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "LEADER_WITHIN", 0.5)
    failed = proxy.add("GET", WAIT, Fail("no available dqlite leader server found"))

    async def live(client: LxdClient) -> None:
        with pytest.raises(LxdError, match="no available dqlite leader") as error:
            await create(client, "never")
        assert error.value.kind == "quorum"
        asked.append(failed.applied)
        proxy.clear()
        await remove_once_made(client, "never")

    asked: list[int] = []
    use(from_file(proxy.credentials), live)
    assert asked[0] > 1


def test_a_change_that_was_sent_is_not_sent_again_elsewhere(proxy: LxdProxy, access: LxdAccess) -> None:
    """Given a connection that is cut after the request came, when it is a change, then it is left to the caller."""
    proxy.add("POST", INSTANCES, Cut(after=True))

    async def live(client: LxdClient) -> None:
        client.add_addresses(access.addresses)
        with pytest.raises(LxdError) as error:
            await create(client, "sent-once")
        assert error.value.kind == "unreachable"
        await remove_once_made(client, "sent-once")  # elsewhere, where it turns out to have been done

    use(from_file(proxy.credentials), live)
    assert proxy.count("POST", INSTANCES) == 1


def test_a_question_that_was_cut_is_asked_elsewhere(proxy: LxdProxy, access: LxdAccess) -> None:
    proxy.add("GET", "/1.0/profiles", Cut())

    async def ask(client: LxdClient) -> Any:
        client.add_addresses(access.addresses)
        return await client.get("/1.0/profiles")

    assert use(from_file(proxy.credentials), ask) == ["/1.0/profiles/default"]


def test_the_second_address_is_used_when_the_first_is_gone(access: LxdAccess, nowhere: str) -> None:
    both = replace(access, addresses=(nowhere, *access.addresses))

    async def live(client: LxdClient) -> tuple[str, ...]:
        await asyncio.gather(*(create(client, f"second-{number}") for number in range(3)))
        await asyncio.gather(*(remove(client, f"second-{number}") for number in range(3)))
        return client.addresses

    assert use(both, live) == (nowhere, *access.addresses)


def test_workers_begin_at_different_addresses(proxy: LxdProxy, access: LxdAccess) -> None:
    both = replace(access, addresses=(proxy.address, *access.addresses))
    for prefer in range(4):
        use(both, lambda client: client.server(), prefer)
    assert proxy.count("GET", "^/1.0$") == 2


def test_an_address_that_does_not_answer_is_left_when_the_caller_gives_up(
    proxy: LxdProxy, access: LxdAccess
) -> None:
    """Given a first address that holds requests, when the caller cancels one, then the next is sent elsewhere."""
    hold = Hold()
    proxy.add("GET", "/1.0/profiles", hold)

    async def ask(client: LxdClient) -> Any:
        client.add_addresses(access.addresses)
        asked = asyncio.create_task(client.get("/1.0/profiles"))
        await asyncio.to_thread(hold.met.wait, WITHIN_S)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        return await client.get("/1.0/profiles")

    try:
        assert use(from_file(proxy.credentials), ask) == ["/1.0/profiles/default"]
    finally:
        hold.released.set()


@pytest.mark.parametrize("how", ["refused", "no socket"])
def test_a_server_that_is_not_there_is_one_line(
    access: LxdAccess, nowhere: str, tmp_path: Path, how: str
) -> None:
    gone = replace(access, addresses=(nowhere,)) if how == "refused" else LxdAccess("here", tmp_path / "none")
    error = failure(gone, lambda client: client.get("/1.0"))
    assert error.kind == "unreachable"
    where = nowhere.removeprefix("https://") if how == "refused" else tmp_path / "none"
    reason = "Connection refused" if how == "refused" else "No such file or directory"
    assert str(error) == f"{where}: {reason}"
    with pytest.raises(TargetError, match="expected an LXD server that answers"):
        use(gone, lambda client: client.server())


def test_a_server_that_says_nothing_is_given_up(access: LxdAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a port that accepts and never speaks, when a connection is made, then there is an end to waiting."""
    monkeypatch.setattr(rest, "CONNECT_WITHIN", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        error = failure(replace(access, addresses=(f"https://{address}",)), lambda client: client.get("/1.0"))
    assert str(error) == f"{address}: no connection within 0.2 s"
    assert error.kind == "unreachable"


def test_a_server_that_speaks_no_tls_is_one_line(access: LxdAccess) -> None:
    async def scene() -> LxdError:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            client = LxdClient(replace(access, addresses=(f"https://127.0.0.1:{port}",)))
            with pytest.raises(LxdError) as error:
                await client.get("/1.0")
            await client.close()
        return error.value

    error = asyncio.run(scene())
    assert error.kind == "unreachable"
    assert "TLS: wrong version number" in str(error)


def test_an_operation_outlives_the_member_it_was_asked_of(
    new_lxd: Callable[..., LxdLab], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a command that runs on m2 and is waited for through m1, when m1's machine dies, then the client still
    learns how the command ended, from another member, and goes on with that one."""
    # (m1 led, and a slow machine takes its time to choose another leader)
    monkeypatch.setattr(client_module, "LEADER_WITHIN", WITHIN_S)
    lab = new_lxd(3)
    lab.image("tiny")

    async def scene(client: LxdClient) -> Any:
        await create(client, "outlives", target="m2")
        await change(client, "outlives", "start")
        # (LXD forgets an operation 5 s after its end, so it ends when another member is asked)
        until_told = "touch /begun; until [ -e /go ]; do sleep 0.2; done; exit 7"
        wanted = {"command": ["sh", "-c", until_told], "record-output": True}
        ran = asyncio.create_task(client.operate("POST", f"{INSTANCES}/outlives/exec", wanted))
        await until_done(client, "outlives", "test", "-e", "/begun")
        await asyncio.to_thread(lab.kill, "m1")
        await until_done(client, "outlives", "touch", "/go")
        return (await ran)["return"]

    assert use(from_file(lab.credentials), scene) == 7


async def until_done(client: LxdClient, name: str, *command: str) -> None:
    """Run a command in an instance until it succeeds."""
    wanted = {"command": command, "record-output": True}
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        try:
            if (await client.operate("POST", f"{INSTANCES}/{name}/exec", wanted))["return"] == 0:
                return
        except LxdError as problem:  # such as of a cluster whose leader has died
            if problem.kind not in PASSING:
                raise
        await asyncio.sleep(0.3)
    pytest.fail(f"{' '.join(command)}: not done within {WITHIN_S:g} s")


# Who is who


def test_a_server_that_trusts_us_tells_about_itself(access: LxdAccess) -> None:
    facts = use(access, lambda client: client.server())
    assert facts["auth"] == "trusted"
    assert facts["environment"]["server_version"]


def test_a_server_with_another_certificate_is_refused(access: LxdAccess) -> None:
    """Given the wrong server's certificate, when it is connected to, then nothing is sent, and one line says why."""
    wrong = replace(access, server_certificate=make_client_certificate().certificate)
    error = failure(wrong, lambda client: client.get("/1.0"))
    assert error.kind == "trust"
    assert "the server's certificate" in str(error)
    with pytest.raises(TargetError, match=r"expected the server with the known certificate$"):
        use(wrong, lambda client: client.server())


def test_a_certificate_that_nobody_trusts_is_refused(access: LxdAccess) -> None:
    stranger = make_client_certificate()
    unknown = replace(access, certificate=stranger.certificate, key=stranger.key)
    with pytest.raises(TargetError) as error:
        use(unknown, lambda client: client.server())
    assert "it does not trust the client certificate: expected one that is in `lxc config trust list`" in str(
        error.value
    )
    assert failure(unknown, lambda client: client.get(INSTANCES)).kind == "trust"


def test_a_token_makes_a_server_trust_our_key_pair(lxd_single: LxdLab, tmp_path: Path) -> None:
    """Given a trust token, when it is redeemed, then our certificate, known before by its fingerprint, lets us in,
    now and from what was kept; and the token cannot be redeemed again."""
    ours = make_identity(tmp_path / "first", "tippingpoint-test")
    token = lxd_single.token("tippingpoint-test")
    access = asyncio.run(redeem(token, tmp_path / "first", "tippingpoint-test"))
    assert fingerprint(der(access.certificate)) == ours
    assert from_identity(tmp_path / "first") == access
    use(access, lambda client: client.server())
    again = asyncio.run(
        redeem(token, tmp_path / "first", "tippingpoint-test")
    )  # which is trusted: nothing to do
    with pytest.raises(TargetError, match=r"^target\.token: .*expected an unused token"):
        asyncio.run(redeem(token, tmp_path / "second", "tippingpoint-test"))
    use(again, lambda client: client.send("DELETE", f"/1.0/certificates/{ours}"))
    with pytest.raises(TargetError, match="does not trust the client certificate"):
        use(from_identity(tmp_path / "first"), lambda client: client.server())


# Images


@pytest.mark.parametrize("form", ["bytes", "file"])
def test_an_image_is_imported(access: LxdAccess, tmp_path: Path, form: str) -> None:
    made = tiny_image(f"imported as {form}")
    file = tmp_path / "image.tar.gz"
    file.write_bytes(made)

    async def bring(client: LxdClient) -> tuple[str, Any]:
        sent = made if form == "bytes" else file
        told = await client.upload("/1.0/images", sent, image_headers(properties="tippingpoint=test"))
        shown = await client.get(f"/1.0/images/{told['fingerprint']}")
        with pytest.raises(LxdExists):
            await client.upload("/1.0/images", sent, {})
        await client.operate("DELETE", f"/1.0/images/{told['fingerprint']}")
        return told["fingerprint"], shown["properties"]["tippingpoint"]

    assert use(access, bring) == (image_fingerprint(made), "test")


def test_a_file_is_sent_again_whole_when_its_connection_was_refused(
    access: LxdAccess, nowhere: str, tmp_path: Path
) -> None:
    file = tmp_path / "image.tar.gz"
    file.write_bytes(tiny_image("sent again"))

    async def bring(client: LxdClient) -> Any:
        told = await client.upload("/1.0/images", file, {})
        await client.operate("DELETE", f"/1.0/images/{told['fingerprint']}")
        return told["fingerprint"]

    both = replace(access, addresses=(nowhere, *access.addresses))
    assert use(both, bring) == image_fingerprint(file)


def test_what_is_no_image_is_refused(access: LxdAccess) -> None:
    error = failure(access, lambda client: client.upload("/1.0/images", b"junk", {}))
    assert str(error) == "Unsupported compression"
