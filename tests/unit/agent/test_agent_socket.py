"""What the agent's socket answers, whatever is sent to it."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tippingpoint.agent.client import LONGEST_REQUEST, AgentAway, call
from tippingpoint.agent.server import Server
from tippingpoint.errors import UserError


async def echo(request: dict[str, Any]) -> dict[str, Any]:
    """Answers with the request; fails as it is told to."""
    match request.get("do"):
        case "refuse":
            raise UserError("member", "m9", "one of m1, m2")
        case "break":
            raise RuntimeError("two\nlines")
        case "wait":
            await asyncio.Event().wait()
    return {"heard": request}


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[Path]:
    server = Server(path, echo)
    await server.open()
    try:
        yield path
    finally:
        await server.close()


def say(path: Path, data: bytes) -> bytes:
    """Send bytes as they are; returns all that is answered."""
    with socket.socket(socket.AF_UNIX) as there:
        there.settimeout(600)
        there.connect(str(path))
        there.sendall(data)
        there.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := there.recv(1 << 16):
            answer += chunk
    return answer


async def test_an_answer_has_what_was_asked_for(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as path:
        answer = await asyncio.to_thread(call, path, {"do": "x", "text": "ä\n"})
        mode = stat.S_IMODE(path.stat().st_mode)
    assert answer == {"ok": True, "heard": {"do": "x", "text": "ä\n"}}
    assert mode == 0o660
    assert not path.exists()


async def test_problems_are_one_line(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as path:
        refused = await asyncio.to_thread(call, path, {"do": "refuse"})
        broken = await asyncio.to_thread(call, path, {"do": "break"})
    assert refused == {"ok": False, "problem": "member: m9: expected one of m1, m2"}
    assert broken == {"ok": False, "problem": "unexpected RuntimeError: two lines"}


async def test_many_clients_are_answered_while_one_waits(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as path:
        waiting = [asyncio.create_task(asyncio.to_thread(call, path, {"do": "wait"}, 1.0)) for _ in range(3)]
        answers = await asyncio.gather(*(asyncio.to_thread(call, path, {"n": n}) for n in range(40)))
        away = await asyncio.gather(*waiting, return_exceptions=True)
    assert [answer["heard"]["n"] for answer in answers] == list(range(40))
    assert {str(each) for each in away} == {f"agent: {path}: expected an answer within 1 s"}


async def test_a_request_that_is_too_long_is_told_so(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as path:
        long = await asyncio.to_thread(call, path, {"do": "x" * (LONGEST_REQUEST + 10)}, 30.0)
        allowed = await asyncio.to_thread(call, path, {"do": "x" * (LONGEST_REQUEST - 100)}, 30.0)
    assert long == {"ok": False, "problem": "request: more than 16 MiB: expected one line, not so long"}
    assert allowed["ok"]


async def test_a_new_server_takes_the_place_of_a_socket_that_was_left(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "s"))
    left.close()
    async with served(tmp_path / "s") as path:
        assert (await asyncio.to_thread(call, path, {}))["ok"]


async def test_a_socket_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--socket: .*: expected a path for a socket"):
        await Server(tmp_path / "none" / "s", echo).open()
    with pytest.raises(UserError, match=r"--socket: .*: expected a path for a socket"):
        await Server(tmp_path / ("x" * 200), echo).open()


def is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.text(max_size=100).map(lambda text: json.dumps(text).encode())))
@example(b"{")
@example(b"[{}]")
async def test_garbage_is_answered_with_one_line(data: bytes) -> None:
    assume(not is_object(data.partition(b"\n")[0]))
    with tempfile.TemporaryDirectory() as folder:
        async with served(Path(folder) / "s") as path:
            answer = await asyncio.to_thread(say, path, data)
    if not data:
        assert answer == b""
        return
    assert answer.count(b"\n") == 1
    said = json.loads(answer)
    assert said == {"ok": False, "problem": "request: expected one line of JSON, an object with `do`"}


def test_nobody_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        AgentAway, match=r"expected an agent that listens there \(No such file or directory\)"
    ):
        call(tmp_path / "s", {"do": "ping"})
    with pytest.raises(AgentAway, match="expected an agent that listens there"):
        call(tmp_path / ("x" * 200), {"do": "ping"})


@pytest.mark.parametrize("answer", [b"", b"\n", b"nonsense\n", b"[1]\n", b"{}\n", b'{"ok": tr'])
async def test_an_answer_that_is_none_is_said_in_one_line(tmp_path: Path, answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    async with await asyncio.start_unix_server(reply, tmp_path / "s"):
        with pytest.raises(AgentAway, match="expected an answer in one line of JSON"):
            await asyncio.to_thread(call, tmp_path / "s", {"do": "ping"})


def test_hooks_pay_for_no_library() -> None:
    """The client is imported in every hook: nothing but the standard library comes with it."""
    script = (
        "import sys; import tippingpoint.agent.client; "
        "print([name for name in ('numpy', 'pydantic', 'aiohttp', 'orjson', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
