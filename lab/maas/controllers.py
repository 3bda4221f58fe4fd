"""The power controllers of the lab's machines, and how the region asks them.

A machine of the type `webhook` is asked over HTTP, at the URIs of its parameters, as MAAS's driver does: with the
header System_Id. The region's own port answers such requests below /lab/power/ (`on`, `off`, `query`), also for a real
region. One of the type `virsh` is asked by virsh in a lab with libvirt, unless it was composed. All other types but
`manual` are answered within this process.
"""

from __future__ import annotations

import asyncio
import re

import aiohttp

from lab.maas.machine import Machine
from lab.maas.power import PowerProblem, PowerTimedOut
from lab.maas.virsh import Virsh

ON_REGEX, OFF_REGEX = r"status.*\:.*running", r"status.*\:.*stopped"
"""How MAAS reads the answer of a webhook, unless its parameters say otherwise."""


class Controllers:
    """All power controllers. `fault` is normal, silent (no answer within the time-out) or failing."""

    def __init__(self, timeout_s: float, virsh: Virsh | None) -> None:
        self.fault = "normal"
        self._virsh = virsh
        self._timeout_s = timeout_s
        self._on: set[str] = set()

    def settle(self, system_id: str, on: bool) -> None:
        """Note that a machine has switched itself off or on, or is gone."""
        (self._on.add if on else self._on.discard)(system_id)

    def is_real(self, machine: Machine) -> bool:
        """Whether there is a machine, which boots."""
        return self._virsh is not None and machine.power_type == "virsh" and machine.host is None

    async def switch(self, machine: Machine, state: str, anew: bool = False) -> None:
        """Switch a machine on or off; with `anew` a real one that is on boots again. Raises PowerProblem."""
        if self._virsh is not None and self.is_real(machine):
            await self._fail_if_faulty()
            await self._virsh.switch(machine.power_parameters, state, anew)
        elif machine.power_type == "webhook":
            await self._request("POST", machine, machine.power_parameters[f"power_{state}_uri"])
        else:
            await self.reply(machine.system_id, state)

    async def query(self, machine: Machine) -> str:
        """Return on, off or unknown. Raises PowerProblem."""
        if self._virsh is not None and self.is_real(machine):
            await self._fail_if_faulty()
            return await self._virsh.query(machine.power_parameters)
        if machine.power_type != "webhook":
            return await self.reply(machine.system_id)
        text = await self._request("GET", machine, machine.power_parameters["power_query_uri"])
        for state, default in (("on", ON_REGEX), ("off", OFF_REGEX)):
            try:
                if re.search(machine.power_parameters.get(f"power_{state}_regex", default), text):
                    return state
            except re.error as problem:
                raise PowerProblem(
                    f"Missing or invalid power setting: power_{state}_regex: {problem}"
                ) from None
        return "unknown"

    async def reply(self, system_id: str, state: str | None = None) -> str:
        """Answer as a controller: switch a machine if a state is given, and return its state. Raises PowerProblem."""
        await self._fail_if_faulty()
        if state:
            self.settle(system_id, state == "on")
        return "on" if system_id in self._on else "off"

    async def _fail_if_faulty(self) -> None:
        if self.fault == "silent":
            await asyncio.sleep(self._timeout_s)
            raise PowerTimedOut
        if self.fault == "failing":
            raise PowerProblem("Failed to complete power action: the power controller refused")

    async def _request(self, method: str, machine: Machine, uri: str) -> str:
        limit = aiohttp.ClientTimeout(total=self._timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as http,
                http.request(method, uri, headers={"System_Id": machine.system_id}) as answer,
            ):
                if answer.status >= 400:
                    what = f"Request failed with response status code: {answer.status}."
                    raise PowerProblem(f"Failed to complete power action: {what}")
                return await answer.text(errors="replace")
        except TimeoutError:
            raise PowerTimedOut from None
        except (aiohttp.ClientError, ValueError) as problem:
            raise PowerProblem(f"Failed talking to node's BMC: {type(problem).__name__}") from None
