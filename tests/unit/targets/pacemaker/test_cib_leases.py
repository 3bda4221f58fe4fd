"""Leases in the CIB against small daemons of the tests, for faults that real ones do not produce on demand."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lab.certificates import make_certificates, named, unsigned
from tests.unit.targets.pacemaker.small_cib import RECORDED, SmallCib, recorded, section, serving
from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.targets.pacemaker import members, nodes
from tippingpoint.targets.pacemaker.access import access
from tippingpoint.targets.pacemaker.claim import CibLeases
from tippingpoint.targets.pacemaker.connection import Connection
from tippingpoint.targets.pacemaker.plan import PacemakerTarget
from tippingpoint.targets.pacemaker.removal import remove
from tippingpoint.targets.pacemaker.stores import STORES
from tippingpoint.targets.pacemaker.wire import ENDIAN, HEADER, LOCAL, SYNC
from tippingpoint.workloads.claim.target import Holding


@contextlib.asynccontextmanager
async def leases_of(target: PacemakerTarget) -> AsyncIterator[CibLeases]:
    leases = CibLeases(target, "tp-0-")
    await leases.open()
    try:
        yield leases
    finally:
        await leases.close()


async def until(so: Any) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(30):
        while not so():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.01)


async def held(leases: CibLeases, lease: int = 0, holder: int = 0) -> Holding:
    holding = await leases.claim(lease, holder)
    assert holding is not None
    return holding


async def test_a_lease_is_claimed_denied_extended_and_freed(tmp_path: Path) -> None:
    node = SmallCib()
    async with serving(node), leases_of(section(tmp_path, node)) as leases:
        holding = await held(leases)
        assert node.tickets == {"tp-0-0": "0:1"}
        assert await leases.claim(0, 1) is None
        assert await leases.extend(holding) is True
        assert node.tickets == {"tp-0-0": "0:3"}
        await leases.release(holding)
        assert node.tickets == {"tp-0-0": ""}
        assert await leases.claim(0, 1) is not None


@pytest.mark.parametrize("release", ["2.1.5", "3.0.0"])
@pytest.mark.parametrize("store", ["ticket", "config"])
def test_a_release_is_found_in_what_real_clusters_notify(store: str, release: str) -> None:
    freed, renewed = (recorded(f"{store}-{what}-{release}").encode() for what in ("freed", "held"))
    assert STORES[store].freed.findall(freed) == [RECORDED.encode()]
    assert STORES[store].freed.findall(renewed) == []


@pytest.mark.parametrize("release", ["2.1.5", "3.0.0"])
async def test_a_waiting_unit_hears_of_a_release(tmp_path: Path, release: str) -> None:
    # given a lease that one unit has, and another waits for
    node, heard = SmallCib(), asyncio.Event()
    node.notification = recorded(f"ticket-freed-{release}")
    async with serving(node), leases_of(section(tmp_path, node)) as leases:
        await until(lambda: leases._nodes.readers[0].up)
        holding = await held(leases)
        leases.watch_release(0, 1, heard.set)
        await until(lambda: any("@held=''" in str(each.attributes) for each in node.seen))
        assert not heard.is_set()
        # when it is released, then the other hears of it by the notification
        await leases.release(holding)
        async with asyncio.timeout(30):
            await heard.wait()


async def test_a_notification_of_anothers_call_is_no_answer_to_ours(tmp_path: Path) -> None:
    # given a call that waits, and a watch for changes, on one link
    node = SmallCib()
    node.silent = True
    notified: list[bytes] = []
    async with serving(node):
        found = access(section(tmp_path, node))
        link = await Connection.connect(
            "127.0.0.1", node.port, found.tls, found.user, found.password, lambda reason: None
        )
        link.on_notification = lambda answer: notified.append(answer.body)
        link.watch()
        call = link.call("cib_query", None, None, SYNC | LOCAL)
        await until(lambda: len(node.seen) == 2)
        # when a change is notified that had the same number at its client, as Pacemaker 3 says
        number = node.seen[1].attributes["cib_callid"]
        node.notify(re.sub(r'cib_callid="\d+"', f'cib_callid="{number}"', recorded("ticket-freed-3.0.0")))
        await until(lambda: notified or call.done())
        # then the call still waits for its answer
        assert not call.done()
        link.close("over")
        with pytest.raises(OperationFailed, match="over"):
            await call


async def test_an_acknowledged_write_that_is_gone_is_lost_and_named(tmp_path: Path) -> None:
    # given a lease with an acknowledged extension
    node = SmallCib()
    told: list[tuple[str, Mapping[str, Any]]] = []
    async with serving(node), leases_of(section(tmp_path, node)) as leases:
        leases.notice(lambda event, fields: told.append((event, fields)), members=False)
        holding = await held(leases)
        before = node.tickets["tp-0-0"]
        assert await leases.extend(holding) is True
        await until(lambda: any(reader.up for reader in leases._nodes.readers))
        await leases._members.look()
        # when the cluster takes it back, as with another partition's CIB
        node.tickets["tp-0-0"] = before
        # then the lease is lost, with an event that names it, and can be claimed again
        assert await leases.extend(holding) is False
        await until(lambda: told)
        assert told == [("undone", {"count": 1, "lease": "tp-0-0", "acknowledged": "0:2"})]
        assert await leases.claim(0, 0) is not None


async def test_a_lease_that_is_gone_with_the_whole_status_is_made_again(tmp_path: Path) -> None:
    node = SmallCib()
    async with serving(node), leases_of(section(tmp_path, node)) as leases:
        holding = await held(leases)
        await until(lambda: any(reader.up for reader in leases._nodes.readers))
        await leases._members.look()
        node.tickets.clear()
        assert await leases.extend(holding) is False
        assert await leases.claim(0, 0) is not None
        assert list(node.tickets) == ["tp-0-0"]


async def test_an_unanswered_extension_that_was_made_is_no_loss(tmp_path: Path) -> None:
    # given an extension whose answer never came, and that the cluster has made
    node = SmallCib()
    async with serving(node), leases_of(section(tmp_path, node)) as leases:
        holding = await held(leases)
        node.silent = True
        unanswered = leases.extend(holding)
        await until(lambda: node.seen[-1].attributes["cib_op"] == "cib_modify")
        unanswered.cancel()
        node.silent = False
        node.tickets["tp-0-0"] = "0:2"
        # when it is extended again
        assert await leases.extend(holding) is True
        assert node.tickets["tp-0-0"] == "0:3"


async def test_a_node_that_answers_for_an_old_copy_loses_no_lease(tmp_path: Path) -> None:
    # given two nodes, one of which has come back and has an empty copy of its own
    there = SmallCib()
    back = SmallCib(tickets={})
    back.num_updates = 0
    async with serving(there, back), leases_of(section(tmp_path, there, back)) as leases:
        await until(lambda: all(reader.up for reader in leases._nodes.readers))
        await leases._members.look()
        # (lease 1 of holder 0 goes to one of the two nodes, lease 2 to the other)
        for lease in (1, 2):
            holding = await held(leases, lease)
            there.tickets |= back.tickets
            back.tickets.clear()
            outcome = await asyncio.gather(leases.extend(holding), return_exceptions=True)
            assert outcome == [True] or "answered for an old copy of the CIB" in str(outcome[0])


async def test_an_acknowledgement_without_quorum_is_a_failure(tmp_path: Path) -> None:
    node = SmallCib()
    async with serving(node), leases_of(section(tmp_path, node)) as leases:
        holding = await held(leases)
        await until(lambda: all(reader.up for reader in leases._nodes.readers))
        node.quorate = False
        await leases._members.look()
        with pytest.raises(OperationFailed, match="acknowledged without quorum"):
            await leases.extend(holding)


async def test_the_side_with_quorum_is_used_and_the_other_not_waited_for(tmp_path: Path) -> None:
    # given two nodes, one of which is alone and does not get what the other is told
    majority, alone = SmallCib(), SmallCib(tickets={})
    async with serving(majority, alone), leases_of(section(tmp_path, majority, alone)) as leases:
        await until(lambda: all(reader.up for reader in leases._nodes.readers))
        alone.quorate = False
        await leases._members.look()
        holding = await held(leases)
        assert await leases.extend(holding) is True
        await leases.seen(holding)
        assert (len(majority.tickets), len(alone.tickets)) == (1, 0)


async def test_an_extension_is_visible_once_every_node_shows_it(tmp_path: Path) -> None:
    first, second = SmallCib(), SmallCib(tickets={})
    async with serving(first, second), leases_of(section(tmp_path, first, second)) as leases:
        await until(lambda: all(reader.up for reader in leases._nodes.readers))
        holding = await held(leases)
        (ticket,) = {**first.tickets, **second.tickets}.items()
        look = leases.seen(holding)
        await until(
            lambda: sum("ticket_state" in str(each.attributes) for each in [*first.seen, *second.seen]) > 3
        )
        assert not look.done()
        first.tickets = second.tickets = dict([ticket])
        async with asyncio.timeout(30):
            await look


async def test_a_node_that_is_back_and_has_not_joined_is_not_waited_for(tmp_path: Path) -> None:
    # given a node that is back, says that it has quorum, and has a copy of the CIB of its own
    there, back = SmallCib(), SmallCib(tickets={})
    async with serving(there, back), leases_of(section(tmp_path, there, back)) as leases:
        await until(lambda: all(reader.up for reader in leases._nodes.readers))
        holding = await held_at(leases, there)
        back.joined, back.num_updates = False, 0
        # when an extension is read back, then it is seen although that node does not show it
        async with asyncio.timeout(30):
            await leases.seen(holding)
        assert back.tickets.get(f"tp-0-{holding.lease}") is None


async def test_members_are_reported_once_and_when_they_change(tmp_path: Path) -> None:
    node = SmallCib()
    told: list[tuple[str, Mapping[str, Any]]] = []
    async with serving(node), leases_of(section(tmp_path, node)) as leases:
        # given a worker that has looked before it is asked for them
        await until(lambda: leases._nodes.readers[0].up)
        await leases._members.look()
        leases.notice(lambda event, fields: told.append((event, fields)), members=True)
        await until(lambda: ("leader", {"member": "node1"}) in told)
        leases.notice(lambda event, fields: told.append((event, fields)), members=True)
        node.dc = "2"
        await until(lambda: ("leader", {"member": "node2"}) in told)
        node.quorate = False
        await until(lambda: told[-1][0] == "quorum")
    assert [event for event, _ in told] == ["member", "member", "leader", "leader", "quorum"]
    assert told[-1][1] == {"member": f"127.0.0.1:{node.port}", "status": "lost"}


async def test_a_refusal_of_the_cluster_is_one_line_with_its_code(tmp_path: Path) -> None:
    node = SmallCib()
    async with serving(node), leases_of(section(tmp_path, node)) as leases:
        holding = await held(leases)
        node.rc = -62
        with pytest.raises(OperationFailed) as problem:
            await leases.extend(holding)
        assert str(problem.value) == f"127.0.0.1:{node.port}: rc -62 (timed out in the cluster)"


async def test_a_wrong_password_is_refused_in_words_and_tried_once_a_node(tmp_path: Path) -> None:
    first, second = SmallCib(), SmallCib()
    async with serving(first, second):
        leases = CibLeases(section(tmp_path, first, second, password="wrong"), "tp-0-")
        with pytest.raises(TargetError) as problem:
            await leases.open()
        assert problem.value.refused
        assert str(problem.value).endswith(
            "127.0.0.1:"
            + f"{first.port}: refused: expected the password of a user in the cluster's group haclient "
            "(hacluster)"
        )
        await leases.close()
    assert (first.logins, second.logins) == (1, 1)


async def test_a_node_that_refuses_later_is_asked_by_one_link_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a worker with three links to a node and a minute of 0.3 s, whose password is changed
    monkeypatch.setattr(nodes, "AFTER_REFUSAL", 0.3)
    monkeypatch.setattr(nodes, "_FIRST_RETRY", 0.01)
    node = SmallCib()
    async with serving(node):
        target = section(tmp_path, node).model_copy(update={"connections": 2})
        async with leases_of(target) as leases:
            links = [*leases._nodes.links, *leases._nodes.readers]
            await until(lambda: all(link.up for link in links))
            node.refusing = True
            before, began = node.logins, asyncio.get_running_loop().time()
            for link in links:
                assert link.connection is not None
                link.connection.close("gone")
                link._lost("gone")
            # when ten minutes of it are over
            await until(lambda: node.logins >= before + 6)
            minutes = (asyncio.get_running_loop().time() - began) / 0.3
            # then it was asked once a minute, besides those logins that were under way when the first was refused
            assert node.logins - before <= len(links) + minutes
            # and all links are back once it accepts the password
            node.refusing = False
            await until(lambda: all(link.up for link in links))


@pytest.mark.parametrize("garbage", [b"SSH-2.0-OpenSSH_9.2\r\n" + b"x" * 40, b"\0" * 64])
async def test_garbage_on_the_port_is_named(tmp_path: Path, garbage: bytes) -> None:
    node = SmallCib()
    node.garbage = garbage
    async with serving(node):
        leases = CibLeases(section(tmp_path, node), "tp-0-")
        with pytest.raises(TargetError, match="is no CIB daemon: endian mark"):
            await leases.open()
        await leases.close()


async def test_silence_on_the_port_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "LOGIN_WITHIN", 0.2)

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.2", 0)
    node, mute = SmallCib(), SmallCib()
    node.port = silent.sockets[0].getsockname()[1]
    async with silent:
        target = section(tmp_path, node, mute)
        # given no other node, it is named
        leases = CibLeases(target, "tp-0-")
        with pytest.raises(TargetError, match="no answer in time"):
            await leases.open()
        await leases.close()


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n" + b"x" * 40, "endian mark 0x2d485353"),
        (HEADER.pack(ENDIAN, 1, 0, 0, 10, 40, 0, 10), "frame of 10 bytes, payload at 40"),
        (HEADER.pack(ENDIAN, 1, 0, 0, 48, 40, 8, 8) + b"no bz2!!", "a compressed answer that is no bz2"),
    ],
)
async def test_garbage_in_mid_run_ends_the_calls_of_one_node_and_its_links_are_remade(
    tmp_path: Path, garbage: bytes, said: str
) -> None:
    # given two nodes that have answered, one of which now owes an answer
    good, bad = SmallCib(), SmallCib()
    async with serving(good, bad), leases_of(section(tmp_path, good, bad)) as leases:
        links = [*leases._nodes.links, *leases._nodes.readers]
        await until(lambda: all(link.up for link in links))
        leases._members.close()
        holding = await held_at(leases, bad)
        logins = bad.logins
        bad.silent = True
        owed = leases.extend(holding)
        await until(lambda: bad.seen[-1].attributes["cib_op"] == "cib_modify")
        # when it sends garbage
        bad.blurt(garbage)
        # then the call ends in one line that names the node
        with pytest.raises(OperationFailed) as problem:
            await owed
        assert str(problem.value).startswith(f"127.0.0.2:{bad.port}: is no CIB daemon: {said}")
        assert "\n" not in str(problem.value)
        # and the other node is used meanwhile, and the links to this one are remade
        bad.silent = False
        good.tickets |= bad.tickets
        bad.tickets |= good.tickets
        assert await leases.extend(holding) is True
        await until(lambda: bad.logins == logins + 2 and all(link.up for link in links))


async def test_a_node_that_is_silent_in_mid_run_is_given_up_and_its_links_are_remade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given two nodes that have answered
    monkeypatch.setattr(members, "EVERY", 0.01)
    monkeypatch.setattr(members, "_ANSWER_WITHIN", 1.0)
    monkeypatch.setattr(members, "SILENT_LOOKS", 2)
    monkeypatch.setattr(nodes, "LOGIN_WITHIN", 3.0)
    good, bad = SmallCib(), SmallCib()
    async with serving(good, bad), leases_of(section(tmp_path, good, bad)) as leases:
        links = [*leases._nodes.links, *leases._nodes.readers]
        await until(lambda: all(link.up for link in links))
        holding = await held_at(leases, bad)
        # when one of them falls silent, and does not even let us in
        bad.mute = True
        # then its calls end in one line that names it
        with pytest.raises(OperationFailed, match=rf"^127\.0\.0\.2:{bad.port}: silent$"):
            async with asyncio.timeout(30):
                await leases.extend(holding)
        # and its units go on with the other
        good.tickets |= bad.tickets
        assert await leases.extend(holding) is True
        assert good.tickets[f"tp-0-{holding.lease}"] == holding.token[0]
        # and the links are back with the node
        bad.mute = False
        for node_link in links:
            await until(lambda link=node_link: link.up)


async def held_at(leases: CibLeases, node: SmallCib) -> Holding:
    """A lease whose unit uses this node."""
    for lease in range(20):
        holding = await held(leases, lease)
        if f"tp-0-{lease}" in node.tickets:
            return holding
    raise AssertionError("no lease is at this node")


async def test_certificates_of_the_cluster_are_verified(tmp_path: Path) -> None:
    # given a node with a certificate of an authority, which wants one of ours
    made = make_certificates(tmp_path, "tippingpoint")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(made.ca))
    tls.load_cert_chain(made.server_cert, made.server_key)
    tls.verify_mode = ssl.CERT_REQUIRED
    texts = {"ca": made.ca, "cert": made.client_cert, "key": made.client_key}
    known = {name: path.read_text() for name, path in texts.items()}
    node = SmallCib()
    async with serving(node, tls=tls), leases_of(section(tmp_path, node, **known)) as leases:
        assert await leases.claim(0, 0) is not None


async def test_an_expired_certificate_is_named(tmp_path: Path) -> None:
    # given a node whose certificate, which is trusted, ended yesterday
    key, name = ec.generate_private_key(ec.SECP256R1()), named("node1")
    ended = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = unsigned(name, name, key, ended).add_extension(names, critical=True).sign(key, hashes.SHA256())
    text = made.public_bytes(serialization.Encoding.PEM)
    (tmp_path / "node.pem").write_bytes(
        text
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "node.pem")
    node = SmallCib()
    async with serving(node, tls=tls):
        leases = CibLeases(section(tmp_path, node, ca=text.decode()), "tp-0-")
        with pytest.raises(TargetError) as problem:
            await leases.open()
        assert problem.value.refused
        assert "the server's certificate has expired: expected a renewed certificate" in str(problem.value)
        await leases.close()


async def test_removal_takes_the_runs_leases_and_counts_them(tmp_path: Path) -> None:
    node = SmallCib({"tp-0-1": "0:1", "tp-1-7": "", "tpx-0-1": "0:1", "booth": "0:1"})
    async with serving(node):
        assert await remove(access(section(tmp_path, node)), "tp") == 2
    assert node.tickets == {"tpx-0-1": "0:1", "booth": "0:1"}
