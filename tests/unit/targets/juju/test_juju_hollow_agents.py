"""Hollow units' agents where the controller ends a connection in the same breath as it accepts the login."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.unit.targets.juju.juju_stub import Peer, Stub, login_reply, obliging, server_frame, stub
from tippingpoint.errors import OperationFailed
from tippingpoint.plan.grow import GROW_OPERATIONS
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.juju import hollow_agent
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.api.model import ModelAdmin
from tippingpoint.targets.juju.hollow_agents import Agents
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.spawn.operations import Operations

MODEL = "5c1b3d8e-4a47-4c9c-8e7c-0d1f4f1e5d11"
FACADES = [
    {"name": "Client", "versions": [8]},
    {"name": "Deployer", "versions": [1]},
    {"name": "LeadershipService", "versions": [2]},
]
Answer = Callable[[Peer, dict[str, Any]], None]


def closing_at_first(tag: str) -> Answer:
    """Answers all; the first login of that tag is accepted and the connection closed with the same bytes."""
    closed: list[Peer] = []

    def answer(peer: Peer, request: dict[str, Any]) -> None:
        if request["request"] == "SetPasswords":
            peer.reply(request, {"results": [{} for _ in request["params"]["changes"]]})
        elif request["request"] != "Login":
            obliging(peer, request)
        elif request["params"]["auth-tag"] == tag and not closed:
            closed.append(peer)
            reply = {"request-id": request["request-id"], "response": login_reply(facades=FACADES)}
            peer.raw(server_frame(0x1, orjson.dumps(reply)) + server_frame(0x8, (1001).to_bytes(2, "big")))
        else:
            peer.reply(request, login_reply(facades=FACADES))

    return answer


class Rig:
    """The agents of a model's units."""

    def __init__(self, server: Stub) -> None:
        self.recorder = Recorder()
        self.schedule = Schedule(asyncio.get_running_loop())
        self.client = ApiClient([server.address], server.ca)
        self.operations = Operations(GROW_OPERATIONS, self.recorder, 60.0)
        self.agents = Agents(self.client, MODEL, self._machine, self.operations, self.schedule)

    async def _machine(self, machine: str) -> Identity:
        return Identity(f"machine-{machine}", "password", "nonce")

    async def up(self) -> None:
        """Wait until there are agents, all of them logged in and idle."""
        for _ in range(1500):
            if self.agents.connected and self.agents.up:
                return
            await asyncio.sleep(0.01)
        pytest.fail("the agents do not come up")

    async def close(self) -> None:
        self.agents.close()
        await self.client.close()
        self.schedule.close()


@pytest.fixture(autouse=True)
def reconnect_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hollow_agent, "RECONNECT_WITHIN", 0.01)


@pytest.mark.parametrize("tag", ["unit-app-0", "machine-7"])
async def test_a_connection_that_is_lost_as_it_is_made_is_made_again(tag: str) -> None:
    """Given a login after which the server closes at once, then the unit (or the machine that gives it its password)
    logs in again."""
    async with stub(closing_at_first(tag)) as server:
        rig = Rig(server)
        rig.agents.add({"app/0": "7"})
        await rig.up()
        assert [peer.requests[0]["params"]["auth-tag"] for peer in server.peers].count(tag) == 2
        await rig.close()


async def test_a_unit_has_an_agent_once_it_is_on_a_machine() -> None:
    async with stub(closing_at_first("nobody")) as server:
        rig = Rig(server)
        rig.agents.add({"app/0": ""})
        assert server.peers == []
        rig.agents.add({"app/0": "7"})
        await rig.up()
        assert rig.agents.connected == 1
        await rig.close()


async def test_an_administrators_connection_that_is_lost_as_it_is_made_is_known_to_be() -> None:
    async with stub(closing_at_first("user-admin")) as server:
        client = ApiClient([server.address], server.ca)
        access = ControllerAccess("stub", (server.address,), server.ca, Identity("user-admin", "password"))
        told: list[str] = []
        lost = await ModelAdmin.open(client, access, MODEL, told=told.append)
        assert lost.lost
        assert told == [f"{server.address}: closed by the server: 1001 going away"]
        assert not (await ModelAdmin.open(client, access, MODEL)).lost
        await client.close()


async def test_an_administrators_call_waits_for_its_answer_as_long_as_it_is_given() -> None:
    def answer(peer: Peer, request: dict[str, Any]) -> None:
        if request["request"] == "Login":
            peer.reply(request, login_reply(facades=FACADES))

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)
        access = ControllerAccess("stub", (server.address,), server.ca, Identity("user-admin", "password"))
        admin = await ModelAdmin.open(client, access, MODEL, answer_within=0.05)
        with pytest.raises(OperationFailed, match=r"no answer to Client\.FullStatus within 0\.05 s"):
            await admin.full_status()
        await client.close()
