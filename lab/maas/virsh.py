"""Power by virsh, as MAAS's driver for it does: `virsh -c POWER_ADDRESS start|destroy|domstate POWER_ID`."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from lab.maas.power import PowerProblem, PowerTimedOut
from lab.patience import PATIENCE_S

T = TypeVar("T")
_OFF = {"shut off", "crashed", "pmsuspended"}
"""The states of a domain in which MAAS calls a machine off."""
_AT_ONCE = 8
"""Calls of virsh at a time. Each is a process with a TLS connection of its own."""


class Virsh:
    """Switches domains of libvirt, and asks for their states. What is done to one domain is done in order."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._running: set[asyncio.Task[Any]] = set()

    async def query(self, parameters: Mapping[str, Any]) -> str:
        """Return on or off. Raises PowerProblem."""
        return await self._finished(self._query(parameters))

    async def switch(self, parameters: Mapping[str, Any], state: str, anew: bool) -> None:
        """Switch a domain on or off, unless it is. With `anew` one that is on is switched off before.

        Raises PowerProblem.
        """
        await self._finished(self._switch(parameters, state, anew))

    async def _query(self, parameters: Mapping[str, Any]) -> str:
        async with self._lock(parameters):
            return await self._state(parameters)

    async def _switch(self, parameters: Mapping[str, Any], state: str, anew: bool) -> None:
        async with self._lock(parameters):
            before = await self._state(parameters)
            if before == "on" and (state == "off" or anew):
                await self._run(parameters, "destroy")
                before = "off"
            if before == "off" and state == "on":
                await self._run(parameters, "start")

    def _lock(self, parameters: Mapping[str, Any]) -> asyncio.Lock:
        return self._locks[parameters["power_address"], parameters["power_id"]]

    async def _state(self, parameters: Mapping[str, Any]) -> str:
        return "off" if await self._run(parameters, "domstate") in _OFF else "on"

    async def _finished(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something to its end, even if whoever asked for it is no longer interested."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _run(self, parameters: Mapping[str, Any], verb: str) -> str:
        command = ["virsh", "-q", "-c", str(parameters["power_address"]), verb, str(parameters["power_id"])]
        async with self._room:
            process = await asyncio.create_subprocess_exec(
                "setpriv",  # a call that hangs ends with the region
                "--pdeathsig=KILL",
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                async with asyncio.timeout(PATIENCE_S):
                    said, problem = await process.communicate()
            except TimeoutError:
                process.kill()
                await process.communicate()
                raise PowerTimedOut from None
        if process.returncode != 0:
            lines = [line.strip() for line in problem.decode(errors="replace").splitlines()]
            errors = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
            raise PowerProblem(f"Failed to complete power action: virsh {verb}: {': '.join(errors or lines)}")
        return said.decode(errors="replace").strip()
