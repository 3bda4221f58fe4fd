"""A plan's faults reach a lab through its control socket; a refusal is one line that says what would do."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.control import ControlServer, LabError
from tests.unit.play.two_members import TwoMembers
from tippingpoint.errors import UserError
from tippingpoint.play.faults import LabControl, LabMember


async def test_each_action_has_happened_when_it_returns(lab: TwoMembers, control: Path) -> None:
    seen: list[str] = []
    for do in ("kill", "start", "stop", "continue"):
        await LabControl(control).act(do, "b")
        seen.append(lab.state["b"])
    assert seen == ["dead", "running", "stopped", "running"]


async def test_members_are_told_apart_by_what_they_are_doing(lab: TwoMembers, control: Path) -> None:
    lab.kill("b")

    members = await LabControl(control).members()

    assert members == [LabMember("a", 100, True, True), LabMember("b", None, False, False)]


async def test_an_unknown_member_is_refused_with_the_names_there_are(lab: TwoMembers, control: Path) -> None:
    with pytest.raises(UserError) as refusal:
        await LabControl(control).act("kill", "c")

    assert str(refusal.value) == "lab: member: 'c': expected one of a, b"
    assert lab.state == {"a": "running", "b": "running"}


async def test_what_a_lab_refuses_is_its_own_reason(control: Path) -> None:
    with pytest.raises(UserError) as refusal:
        await LabControl(control).act("start", "a")

    assert str(refusal.value) == "lab: a: is running: expected a member that is dead"


async def test_no_socket_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        await LabControl(tmp_path / "gone").act("kill", "a")

    assert refusal.value.field == "lab"
    assert refusal.value.accepted == "the control socket of a running lab (No such file or directory)"


async def test_a_socket_nobody_listens_on_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(path))

    with pytest.raises(UserError, match=r"lab: .*/dead: expected the control socket of a running lab"):
        await LabControl(path).members()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"", "it gave no answer"),
        (b"hello\n", "its answer is not a JSON object"),
        (b"[1]\n", "its answer is not a JSON object"),
        (b'{"members": 3}\n', 'it answered {"members": 3}'),
        (b'{"members": [{"name": "a"}]}\n', 'it answered {"members": [{"name": "a"}]}'),
    ],
)
async def test_something_that_is_not_a_lab_is_one_line(tmp_path: Path, reply: bytes, reason: str) -> None:
    path = tmp_path / "other.sock"

    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(reply)
        writer.close()

    with pytest.raises(UserError) as refusal:
        async with await asyncio.start_unix_server(stranger, str(path)):
            await LabControl(path).members()
    assert refusal.value.accepted == f"the control socket of a running lab ({reason})"


def test_only_the_owner_may_open_the_socket(control: Path) -> None:
    assert stat.S_IMODE(control.stat().st_mode) == 0o600


def test_the_socket_goes_with_its_server(lab: TwoMembers, tmp_path: Path) -> None:
    with ControlServer(lab, tmp_path / "s"):
        pass

    assert not (tmp_path / "s").exists()


def test_a_path_too_long_for_a_socket_is_refused(lab: TwoMembers, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="expected a path for a unix socket, under 108 bytes"):
        ControlServer(lab, tmp_path / ("x" * 120)).__enter__()


@pytest.fixture(scope="module")
def long_lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("lab") / "lab.sock"
    with ControlServer(TwoMembers(), path):
        yield path


@given(garbage=st.binary(max_size=200).filter(lambda line: b"\n" not in line and b'"members"' not in line))
def test_garbage_is_answered_by_one_line_and_the_lab_goes_on(long_lived: Path, garbage: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(120)
        client.connect(str(long_lived))
        conversation = client.makefile("rwb")
        conversation.write(garbage + b'\n{"do": "members"}\n')
        conversation.flush()
        first, second = conversation.readline(), conversation.readline()

    assert first.startswith(b'{"error": ')
    assert second.startswith(b'{"members": [{"name": "a"')
