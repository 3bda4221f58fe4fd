"""The commands of the operators make the calls of the juju client, compared with recordings of it.

What differs is in `docs/how-to/juju.md`: the fields of a login, and that a removal waits until the thing is gone.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from lab.juju.simulator import JujuLab
from tests.functional.juju.juju_access import run, user_of
from tests.functional.juju.wiretap import Said, Wiretap
from tippingpoint.plan.operate import OPERATE_OPERATIONS, Command, ModelShape
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.juju.api.access import from_store
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.facades import SPOKEN
from tippingpoint.targets.juju.commands import Commands
from tippingpoint.targets.juju.operated_model import OperatedModel
from tippingpoint.targets.juju.working_agent import WorkingAgent
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.spawn.operations import Operations

DATA = Path(__file__).parent / "data"
RECORDED: dict[str, Any] = json.loads((DATA / "client-4.0.15.json").read_text())
OF_3_6: dict[str, list[int]] = json.loads((DATA / "facades-3.6.json").read_text())
RELEASES = ("4.0", "3.6")

_LOGIN = "Admin/3.Login"
_POLLED = (
    "Action/7.Actions",
    "StringsWatcher/1.Next",
    "ModelManager/11.ModelStatus",
    "ModelManager/10.ModelStatus",
)
"""Calls that are repeated for as long as something takes."""
_NAMED_FREELY = ("config", "parameters", "data", "endpoints")
"""Fields that hold an object whose keys are names of a charm's or a user's own."""


async def _sent(lab: JujuLab, tap: Wiretap) -> dict[Command, list[Said]]:
    """Run each command once, in two models with units at work, and return what was sent for it."""
    access = from_store(lab.controller, tap.data)
    near, tapped = ApiClient(lab.addresses, lab.ca), ApiClient(access.addresses, access.ca)
    schedule = Schedule(asyncio.get_running_loop())
    operations = Operations(OPERATE_OPERATIONS, Recorder(), 60.0)
    commands = Commands(tapped, access)
    here, there = models = [
        OperatedModel(near, user_of(lab), name, "tp0", "0", operations, schedule)
        for name in ("here", "there")
    ]
    for model in models:
        await model.become(ModelShape(applications=[1, 1]))
    one, other = [*here.applications]
    at_work: Future[None] = asyncio.get_running_loop().create_future()
    agent = here.agents.of(f"{one}/0")
    assert isinstance(agent, WorkingAgent)
    agent.started(at_work)
    await at_work
    ends = here.ends(0, 1)
    made: dict[str, str] = {}
    url = f"{access.user_name}/here.share"
    sent: dict[Command, list[Said]] = {}

    async def make(what: str, making: Awaitable[str]) -> None:
        made[what] = await making

    steps: dict[Command, Callable[[], Awaitable[None]]] = {
        "models": commands.models,
        "show-model": lambda: commands.show_model(here.uuid),
        "status": lambda: commands.status(here.uuid),
        "config": lambda: commands.config(here.uuid, one, "7"),
        "run": lambda: commands.run(here.uuid, f"{one}/0"),
        "exec": lambda: commands.exec(here.uuid, f"{one}/0"),
        "deploy": lambda: commands.deploy(here.uuid, "new", here.machine),
        "remove-application": lambda: commands.remove_application(here.uuid, "new"),
        "add-unit": lambda: make("unit", commands.add_unit(here.uuid, other, here.machine)),
        "remove-unit": lambda: commands.remove_unit(here.uuid, made["unit"]),
        "integrate": lambda: commands.integrate(here.uuid, *ends),
        "remove-relation": lambda: commands.remove_relation(here.uuid, *ends),
        "offer": lambda: commands.offer(here.uuid, one, "share"),
        "consume": lambda: commands.consume(there.uuid, url, "alias"),
        "remove-saas": lambda: commands.remove_saas(there.uuid, "alias"),
        "remove-offer": lambda: commands.remove_offer(url),
        "add-model": lambda: make("model", commands.add_model("new")),
        "grant": lambda: commands.grant(made["model"]),
        "revoke": lambda: commands.revoke(made["model"]),
        "destroy-model": lambda: commands.destroy_model(made["model"]),
        "add-secret": lambda: make("secret", commands.add_secret(here.uuid, "name")),
        "remove-secret": lambda: commands.remove_secret(here.uuid, made["secret"]),
    }
    for name, step in steps.items():
        tap.said.clear()
        await step()
        sent[name] = list(tap.said)
    for model in models:
        model.close()
    await near.close()
    await tapped.close()
    schedule.close()
    return sent


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[Command, list[Said]]]:
    """By release, what each command sends to a controller that offers the facades of this release."""
    found: dict[str, dict[Command, list[Said]]] = {}
    with JujuLab() as lab:
        for release in RELEASES:
            if release == "3.6":
                lab.ask({"do": "facades", "versions": OF_3_6})
            with Wiretap(lab, tmp_path_factory.mktemp("tap")) as tap:

                async def test(tap: Wiretap = tap, release: str = release) -> None:
                    found[release] = await _sent(lab, tap)

                run(test())
    return found


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("command", get_args(Command))
def test_a_command_makes_the_calls_of_the_client(
    sent: dict[str, dict[Command, list[Said]]], command: Command, release: str
) -> None:
    """Given a recording of the client's command, when ours runs, then it makes these calls, with the same fields."""
    recorded = [_as_of(release, Said(*call)) for call in RECORDED[command]["calls"]]

    ours = _once(sent[release][command])
    if command in ("remove-unit", "remove-application"):
        while ours[-1].what == "Client/8.FullStatus":
            ours.pop()
    theirs = _once(recorded)
    assert [(call.on, call.what) for call in ours] == [(call.on, call.what) for call in theirs]
    for expected, call in zip(theirs, ours, strict=True):
        if call.what != _LOGIN:
            assert _differences(expected.params, call.params) == []


def _as_of(release: str, call: Said) -> Said:
    """Return a recorded call with the newest versions of both sides, and the fields of this release."""
    facade, slash, rest = call.what.partition("/")
    if release == "4.0" or facade not in OF_3_6:
        return call
    version = max({*OF_3_6[facade]} & {*SPOKEN[facade]})
    params = dict(call.params)
    if rest.endswith(".CreateModel"):
        params["owner-tag"] = params.pop("qualifier")
    return Said(call.on, f"{facade}{slash}{version}.{rest.partition('.')[2]}", params)


def _once(calls: Sequence[Said]) -> list[Said]:
    """Return calls without the repetitions of what is polled."""
    seen: set[str] = set()
    kept: list[Said] = []
    for call in calls:
        if call.what in _POLLED:
            if call.what in seen:
                continue
            seen.add(call.what)
        kept.append(call)
    return kept


def _differences(recorded: Any, ours: Any, where: str = "") -> list[str]:
    """Return where keys or types of parameters differ."""
    if recorded == "<secret>":
        return []
    if type(recorded) is not type(ours):
        return [f"{where}: {ours!r}: expected a {type(recorded).__name__}"]
    if isinstance(recorded, dict):
        if where.rpartition(".")[2] in _NAMED_FREELY:
            return []
        found = [f"{where}.{key}: missing" for key in recorded.keys() - ours.keys()]
        found += [f"{where}.{key}: expected none" for key in ours.keys() - recorded.keys()]
        both = [key for key in recorded if key in ours]
        return found + [
            each for key in both for each in _differences(recorded[key], ours[key], f"{where}.{key}")
        ]
    if isinstance(recorded, list):
        if len(recorded) != len(ours):
            return [f"{where}: {len(ours)} of {len(recorded)}"]
        pairs = zip(recorded, ours, strict=True)
        return [each for theirs, our in pairs for each in _differences(theirs, our, f"{where}.")]
    return []
