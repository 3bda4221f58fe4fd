"""A refresh from the charms of an older commit, in the middle of a run: tests/data/kept-charms says what they left."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ops import testing

from tests.charms.collector import context, engine_in_this_process, on_machine
from tests.charms.generators import ScriptedAgent, Unit, run_in, secret, units_of
from tippingpoint.collect.runs import Runs
from tippingpoint.conduct.run_state import read_word

DATA = Path(__file__).parents[1] / "data"
KEPT = sorted(path.stem for path in (DATA / "kept-charms").glob("*.json"))
COLLECTED = DATA / "kept-runs" / "two-units-collected"


class Before:
    """A unit as the older charm left it, with its agent, which runs from the older copy and goes on."""

    def __init__(self, unit: Unit) -> None:
        text = (DATA / "kept-charms" / f"{unit.app}.json").read_text()
        at = json.loads(text)["at"]
        # As if it were now: a unit whose last word is days old is silent.
        moment = re.compile(rf"\b{str(at)[:4]}\d{{6}}\.\d+")
        told: dict[str, Any] = json.loads(
            moment.sub(lambda found: repr(float(found[0]) - at + time.time()), text)
        )
        self.unit = unit
        self.files: dict[str, dict[str, str]] = told["files"]
        for name, file in self.files.items():
            path = unit.root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["text"])
            path.chmod(int(file["mode"], 8))
        granted = secret(**told["secret"])
        self.secret: dict[str, str] = told["secret"]
        peers = told["peers"]
        self.state = testing.State(
            leader=True,
            config={"credentials": granted.id, **told["config"]},
            secrets=[granted],
            relations=[
                testing.PeerRelation(
                    "units",
                    local_app_data=peers["app"],
                    local_unit_data=peers["own"],
                    peers_data={int(number): bag for number, bag in peers["others"].items()},
                )
            ],
            stored_states={
                testing.StoredState(each["name"], owner_path=each["owner_path"], content=each["content"])
                for each in told["stored"]
                if each["owner_path"]
            },
            planned_units=2,
        )
        run = run_in(self.state)
        assert run is not None
        self.run = run
        self.agent = ScriptedAgent(unit)
        self.agent.running = run.id
        self.agent.word = read_word(peers["own"]["word"])
        # and the pack that the refresh brings
        (unit.pack / "tippingpoint/__init__.py").write_text("version = 2\n")

    def text(self, name: str) -> str:
        return (self.unit.root / name.lstrip("/")).read_text()

    @property
    def service(self) -> str:
        return f"/etc/systemd/system/{self.unit.service}.service"


@pytest.fixture(params=KEPT)
def before(request: pytest.FixtureRequest, root: Path) -> Iterator[Before]:
    before = Before(Unit(root, request.param))
    with before.agent.at_its_socket():
        yield before


def test_the_run_goes_on_and_both_units_are_known(before: Before) -> None:
    unit = before.unit
    out = unit.run(unit.on.upgrade_charm(), before.state)

    # then the agent still runs from the older copy, as its unit file says
    assert before.text(before.service) == before.files[before.service]["text"]
    assert [command for command in unit.machine.commands if "restart" in command] == []
    assert "the new version starts after the run" in out.unit_status.message
    # and the run is the same, with its turns and its units
    assert run_in(out) == before.run
    told = unit.act("status", out, json=True)
    status = json.loads(told["json"])
    assert status["run"] == before.run.id
    assert status["status"].startswith("stage 1/")
    assert [each["phase"] for each in status["units"].values()] == ["up", "ready"]
    # and it can be stopped
    assert unit.act("stop", out)["run"] == before.run.id
    assert before.agent.orders["run"]["stopped"] == "asked to stop"


def test_the_secret_is_where_it_was_and_nowhere_else(before: Before) -> None:
    unit = before.unit
    out = unit.run(unit.on.upgrade_charm(), before.state)

    out = unit.agent_changed(out)

    kept = [name for name in before.files if "/credentials/" in name]
    assert any(before.secret["password"] in before.text(name) for name in kept)
    for name in kept:
        assert (unit.root / name.lstrip("/")).stat().st_mode & 0o777 == 0o600
    password = before.secret["password"]
    peers = units_of(out)
    assert password not in repr((peers.local_app_data, peers.local_unit_data, out.unit_status))
    assert password not in repr([state.content for state in out.stored_states])
    assert password not in json.dumps(before.agent.asked)


def test_when_the_run_is_over_the_agent_has_the_new_version(before: Before) -> None:
    unit = before.unit
    out = unit.run(unit.on.upgrade_charm(), before.state)

    before.agent.running = ""
    unit.agent_changed(out)

    now = before.text(before.service)
    (copy,) = set(re.findall("/opt/tippingpoint/[0-9a-f]+", now))
    assert before.text(f"{copy}/tippingpoint/__init__.py") == "version = 2\n"
    assert any(command.startswith("systemctl restart") for command in unit.machine.commands)


def test_a_collector_lists_and_reports_what_an_older_one_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = on_machine(monkeypatch, tmp_path)
    engine_in_this_process(monkeypatch)
    state = machine.path("/var/lib/tippingpoint-metrics-collector-0")
    run = json.loads((COLLECTED / "run.json").read_text())["id"]
    place = state / "runs" / run
    place.parent.mkdir(parents=True)
    for path in COLLECTED.iterdir():
        place.mkdir(exist_ok=True)
        (place / path.name).write_bytes(path.read_bytes())

    ctx = context()
    out = ctx.run(ctx.on.upgrade_charm(), testing.State())
    assert Runs(state / "runs").find("").id == run

    ctx.run(ctx.on.action("list-runs"), out)
    assert ctx.action_results is not None
    assert ctx.action_results["runs"].startswith(f"{run}  2 units, 2 reported")
    ctx.run(ctx.on.action("report"), out)
    assert ctx.action_results["text"].startswith("# ")
