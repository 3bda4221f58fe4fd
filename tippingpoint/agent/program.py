"""The agent as a process: it locks its state directory, notifies systemd, and ends in an orderly way on signals."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import uvloop

from tippingpoint.agent.log import log
from tippingpoint.agent.server import Server
from tippingpoint.agent.service import Agent
from tippingpoint.agent.state import lock
from tippingpoint.errors import UserError, describe
from tippingpoint.util.systemd_notify import serve_until


def run_agent(state: Path, socket: Path, wake_file: Path, unit: str, metrics: str | None) -> None:
    """Run the agent until a signal ends it; raises UserError if the paths cannot be used."""
    os.umask(0o022)  # everybody may read runs; secret files get a mode of their own
    try:
        state.mkdir(mode=0o755, parents=True, exist_ok=True)
        (state / "credentials").mkdir(mode=0o700, exist_ok=True)
    except OSError as problem:
        raise UserError("--state", str(state), f"a writable directory ({problem.strerror})") from None
    with lock(state):
        uvloop.run(_serve(state, socket, wake_file, unit, metrics))


async def _serve(state: Path, socket: Path, wake_file: Path, unit: str, metrics: str | None) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_unexpected)
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, ending.set)
    agent = Agent(state, wake_file, unit)
    server = Server(socket, agent.answer)
    try:
        await agent.open(metrics)
        await server.open()
        await serve_until(ending)
        await server.close()
    finally:
        await agent.close()


def _log_unexpected(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    problem = context.get("exception")
    log(describe(problem) if isinstance(problem, BaseException) else str(context.get("message", "")))
