"""The simulated Juju controller replies as a real one did: every recorded pair, replayed.

The pairs in data/ were recorded from stock 4.0.15 controllers. The same tests hold a real controller against them
when TIPPINGPOINT_JUJU_CONTROLLER names one in the juju client's store (JUJU_DATA): they make a model of their own
there, and remove it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.juju.replay import LINKED, TINY, WORKING, Stage, differences
from lab.juju.simulator import JujuLab
from tippingpoint.targets.juju.api.access import ControllerAccess, from_store

DATA = Path(__file__).parent / "data"
CHARMS = {"juju-4.0.15": TINY, "juju-4.0.15-more": LINKED, "juju-4.0.15-operate": WORKING}
"""The charm of each recording."""
RECORDINGS = {name: json.loads((DATA / f"{name}.json").read_text()) for name in CHARMS}
_REMOVED_WITHIN_S = 600.0


@pytest.fixture(scope="module")
def controller() -> Iterator[ControllerAccess]:
    """The controller under test: the one that is named, or a simulator."""
    named = os.environ.get("TIPPINGPOINT_JUJU_CONTROLLER")
    if named:
        store = Path(os.environ.get("JUJU_DATA") or "~/.local/share/juju").expanduser()
        yield from_store(named, store)
        return
    with JujuLab() as lab:
        yield from_store(lab.controller, lab.data)


@pytest.fixture(scope="module")
def stage(controller: ControllerAccess) -> Iterator[Stage]:
    """A model of the tests' own."""
    with Stage(controller) as stage:
        yield stage


@pytest.fixture(scope="module")
def replies(controller: ControllerAccess) -> dict[str, list[dict[str, Any]]]:
    """What the controller replies to every recorded request, in the recorded order; a model per recording."""
    replied: dict[str, list[dict[str, Any]]] = {}
    for name, pairs in RECORDINGS.items():
        with Stage(controller, CHARMS[name]) as stage:
            replied[name] = [stage.replay(pair) for pair in pairs]
    return replied


def _each_pair() -> list[Any]:
    return [
        pytest.param(name, place, id=f"{name}-{place}-{pair['request']['type']}.{pair['request']['request']}")
        for name, pairs in RECORDINGS.items()
        for place, pair in enumerate(pairs)
    ]


@pytest.mark.parametrize(("recording", "place"), _each_pair())
def test_a_reply_is_as_it_was_recorded(
    replies: dict[str, list[dict[str, Any]]], recording: str, place: int
) -> None:
    recorded = RECORDINGS[recording][place]["reply"]

    assert differences(recorded, replies[recording][place]) == []


def test_the_facade_versions_that_were_spoken_are_offered(replies: dict[str, list[dict[str, Any]]]) -> None:
    logins = [reply for reply in replies["juju-4.0.15"] if "facades" in reply.get("response", {})]
    offered = {
        (entry["name"], version)
        for entry in logins[0]["response"]["facades"]
        for version in entry["versions"]
    }
    spoken = {
        (pair["request"]["type"], pair["request"]["version"])
        for pair in RECORDINGS["juju-4.0.15"]
        if "unknown version" not in pair["reply"].get("error", "") and pair["request"]["type"] != "Admin"
    }

    assert spoken <= offered


def test_a_provisioning_script_carries_the_machines_password(stage: Stage) -> None:
    """Given a machine that somebody entered, its provisioning script has an agent.conf with `oldpassword` in it."""
    machine = {"instance-id": f"manual:{stage.prefix}-script", "nonce": "n", "addresses": []}
    machine |= {"base": {"name": "ubuntu", "channel": "24.04"}, "hardware-characteristics": {"arch": "amd64"}}
    added = stage.exchange("user-admin", _request("MachineManager", 11, "AddMachines", {"params": [machine]}))
    number = added["response"]["machines"][0]["machine"]
    wanted = {"machine-id": number, "nonce": "n", "data-dir": "", "disable-package-commands": True}

    reply = stage.exchange("user-admin", _request("MachineManager", 11, "ProvisioningScript", wanted))

    assert re.search(r"\boldpassword: \S{18,}", reply["response"]["script"])


def test_whoever_waits_for_a_lease_is_told_when_its_holder_is_removed(stage: Stage) -> None:
    """Given a unit that holds the lease and one that waits, when the holder goes, then the other is answered {}."""
    add = {"application": "hol0", "num-units": 1, "placement": [{"scope": "#", "directive": "0"}]}
    stage.exchange("user-admin", _request("Application", 22, "AddUnits", add))
    assert stage.exchange("unit-hol0-0", _claim("hol0", "0"))["response"] == {"results": [{}]}
    denied = stage.exchange("unit-hol0-1", _claim("hol0", "1"))["response"]["results"][0]["error"]
    assert denied["code"] == "leadership claim denied"

    waiting = stage.begin(
        "unit-hol0-1", _request("LeadershipService", 2, "BlockUntilLeadershipReleased", {"Name": "hol0"})
    )
    gone = {"units": [{"unit-tag": "unit-hol0-0", "destroy-storage": True, "force": True, "max-wait": 0}]}
    stage.exchange("user-admin", _request("Application", 22, "DestroyUnit", gone))

    assert stage.end("unit-hol0-1", waiting)["response"] == {}


def test_a_destroyed_model_is_not_found_and_its_units_may_not_log_in(controller: ControllerAccess) -> None:
    """Given units logged in, when their model is destroyed, then it is gone, and whoever comes anew is refused.

    Who is logged in stays so, and is even granted leases: a client must not take that for a model that is there.
    """
    with Stage(controller) as stage:
        stage.exchange("unit-hol0-0", _claim("hol0", "0"))
        stage.destroy()
        refused = _until(lambda: stage.try_login("unit-hol0-0"), "model not found")
        info = stage.exchange(
            "user-admin at the controller",
            _request("ModelManager", 11, "ModelInfo", {"entities": [{"tag": f"model-{stage.model}"}]}),
        )

        assert refused["error"] == f'unknown model: "{stage.model}"'
        assert info["response"]["results"][0]["error"]["code"] == "not found"
        assert stage.exchange("unit-hol0-0", _claim("hol0", "0"))["response"] == {"results": [{}]}


def _request(facade: str, version: int, name: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"type": facade, "version": version, "request": name, "params": params}


def _claim(application: str, unit: str) -> dict[str, Any]:
    claim = {
        "application-tag": f"application-{application}",
        "unit-tag": f"unit-{application}-{unit}",
        "duration": 60.0,
    }
    return _request("LeadershipService", 2, "ClaimLeadership", {"params": [claim]})


def _until(reply: Any, code: str) -> dict[str, Any]:
    """The first reply with this error code."""
    deadline = time.monotonic() + _REMOVED_WITHIN_S
    while True:
        answer: dict[str, Any] = reply()
        if answer.get("error-code") == code:
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.2)
