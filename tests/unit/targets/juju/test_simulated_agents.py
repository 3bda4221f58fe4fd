"""The simulated Juju controller serves units that work: statuses, relations, config, actions, secrets and logs."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lab.juju.client import dial
from lab.juju.simulator import JujuLab
from lab.patience import PATIENCE_S
from tests.unit.targets.juju.simulated_population import LINK, Population

TAG = {"entities": [{"tag": "unit-a-0"}]}
CONTENT = {"data": {"key": base64.b64encode(b"one").decode()}, "checksum": "1"}


@pytest.fixture(scope="module")
def lab() -> Iterator[JujuLab]:
    with JujuLab() as lab:
        yield lab


@pytest.fixture
def model(lab: JujuLab) -> Iterator[Population]:
    with Population(lab) as population:
        yield population


def _link(unit: str, **settings: str) -> list[dict[str, Any]]:
    return [{"relation": LINK, "unit": f"unit-{unit.replace('/', '-')}", "settings": settings}]


# -- the unit ------------------------------------------------------------------------------------


def test_what_a_unit_reports_is_in_the_status(model: Population) -> None:
    unit = model.unit("a/0")

    def report(what: str, **fields: Any) -> None:
        assert model.ask(unit, f"Uniter.{what}", entities=[{"tag": "unit-a-0"} | fields]) == {"results": [{}]}

    report("SetUnitStatus", status="active", info="ready", data=None)
    report("SetAgentStatus", status="idle", info="", data=None)
    report("SetWorkloadVersion", **{"workload-version": "1.2"})
    application = model.status()["applications"]["a"]
    shown = application["units"]["a/0"]

    assert (shown["workload-status"]["status"], shown["workload-status"]["info"]) == ("active", "ready")
    assert shown["agent-status"]["status"] == "idle"
    assert (shown["workload-version"], application["workload-version"]) == ("1.2", "1.2")


def test_only_the_leader_sets_its_applications_status(model: Population) -> None:
    unit = model.unit("a/0")
    status = {"tag": "unit-a-0", "status": "blocked", "info": "by nobody", "data": None}
    (before,) = model.ask(unit, "Uniter.SetApplicationStatus", entities=[status])["results"]
    model.lead(unit, "a/0")
    (after,) = model.ask(unit, "Uniter.SetApplicationStatus", entities=[status])["results"]

    assert before == {"error": {"message": "permission denied", "code": "unauthorized access"}}
    assert after == {}
    assert model.status()["applications"]["a"]["status"]["status"] == "blocked"


def test_a_units_state_is_kept_field_by_field(model: Population) -> None:
    unit = model.unit("a/0")
    model.ask(unit, "Uniter.SetState", args=[{"tag": "unit-a-0", "uniter-state": "op: continue\n"}])
    model.commit(unit, "a/0", unit_state={"tag": "unit-a-0", "charm-state": {"k": "v"}})

    assert model.ask(unit, "Uniter.State", **TAG)["results"] == [
        {"uniter-state": "op: continue\n", "charm-state": {"k": "v"}}
    ]


def test_config_is_read_and_its_changes_are_noticed_once(model: Population) -> None:
    unit = model.unit("a/0")
    (begun,) = model.ask(unit, "Uniter.WatchConfigSettingsHash", **TAG)["results"]
    waiting = model.begin_next(unit, "StringsWatcher", begun["watcher-id"])
    setting = {"application": "a", "config": {"setting": "other", "size": "3"}, "config-yaml": ""}
    assert model.ask(model.admin, "Application.SetConfigs", Args=[setting]) == {"results": [{}]}

    (hashed,) = model.event(unit, waiting)
    model.ask(model.admin, "Application.SetConfigs", Args=[setting])
    waiting = model.begin_next(unit, "StringsWatcher", begun["watcher-id"])
    read = model.ask(unit, "Uniter.ConfigSettings", **TAG)["results"]
    model.ask(
        model.admin,
        "Application.UnsetApplicationsConfig",
        Args=[{"application": "a", "options": ["setting", "size"]}],
    )

    assert read == [{"settings": {"setting": "other", "size": 3}}]
    assert hashed not in begun["changes"]
    assert model.event(unit, waiting) == begun["changes"]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"unknown": "x"}, ('invalid application config: unknown option "unknown"', "not valid")),
        ({"size": "x"}, ('option "size" expected int, got "x"', "")),
    ],
)
def test_config_that_the_charm_does_not_have_is_refused(
    model: Population, config: dict[str, str], problem: tuple[str, str]
) -> None:
    setting = {"application": "a", "config": config, "config-yaml": ""}
    (result,) = model.ask(model.admin, "Application.SetConfigs", Args=[setting])["results"]

    assert (result["error"]["message"], result["error"]["code"]) == problem


def test_open_ports_are_in_the_status_until_they_are_closed(model: Population) -> None:
    unit = model.unit("a/0")

    def port(first: int, last: int, protocol: str = "tcp", endpoint: str = "") -> dict[str, Any]:
        return {
            "tag": "unit-a-0",
            "protocol": protocol,
            "from-port": first,
            "to-port": last,
            "endpoint": endpoint,
        }

    def opened() -> list[str] | None:
        return model.status()["applications"]["a"]["units"]["a/0"]["opened-ports"]

    assert opened() is None
    model.commit(unit, "a/0", open_ports=[port(80, 80), port(8000, 8010, "udp", "link"), port(0, 0, "icmp")])
    assert opened() == ["icmp", "80/tcp", "8000-8010/udp"]
    ranges = model.ask(unit, "Uniter.OpenedPortRangesByEndpoint")["results"][0]["unit-port-ranges"]
    context = model.ask(model.unit("a/1"), "Uniter.GetUnitContext", tag="unit-a-1")
    udp = [{"from-port": 8000, "to-port": 8010, "protocol": "udp"}]
    assert ranges["unit-a-0"][1] == {"endpoint": "link", "port-ranges": udp}
    assert context["opened-machine-port-ranges-by-endpoint"]["unit-a-0"]["link"] == udp
    model.commit(unit, "a/0", close_ports=[port(80, 80), port(8000, 8010, "udp")])
    assert opened() == ["icmp"]


# -- relations -----------------------------------------------------------------------------------


def test_what_one_unit_writes_is_noticed_by_the_units_of_the_other_side(model: Population) -> None:
    """Given units in scope, when one writes settings, then the other side is told a new version, and reads them."""
    writer, reader = model.unit("a/0"), model.unit("b/0")
    model.enter(writer, "a/0")
    model.enter(reader, "b/0")
    pair = {"relation": LINK, "unit": "unit-b-0"}
    (begun,) = model.ask(reader, "Uniter.WatchRelationUnits", **{"relation-units": [pair]})["results"]
    waiting = model.begin_next(reader, "RelationUnitsWatcher", begun["watcher-id"])
    assert begun["changes"] == {
        "changed": {"a/0": {"version": 0}},
        "app-changed": {"a": 0},
        "departed": ["a/1"],
    }

    assert model.commit(writer, "a/0", relation_unit_settings=_link("a/0", host="here", port="1")) == {}
    first = model.event(reader, waiting)["changed"]["a/0"]["version"]
    model.commit(writer, "a/0", relation_unit_settings=_link("a/0", host="here"))  # nothing new
    waiting = model.begin_next(reader, "RelationUnitsWatcher", begun["watcher-id"])
    model.commit(writer, "a/0", relation_unit_settings=_link("a/0", host=""))
    second = model.event(reader, waiting)["changed"]["a/0"]["version"]
    remote = pair | {"local-unit": "unit-b-0", "remote-unit": "unit-a-0"}
    read = model.ask(reader, "Uniter.ReadRemoteSettings", **{"relation-unit-pairs": [remote]})["results"]
    own = {"relation": LINK, "unit": "unit-a-0"}

    assert 0 not in (first, second)
    assert first != second
    assert read == [{"settings": {"port": "1"}}]
    assert model.ask(writer, "Uniter.ReadSettings", **{"relation-units": [own]})["results"] == read


def test_many_writes_before_a_reader_asks_are_one_event_with_the_last_version(model: Population) -> None:
    writer, reader = model.unit("a/0"), model.unit("b/0")
    model.enter(writer, "a/0")
    pair = {"relation": LINK, "unit": "unit-b-0"}
    (begun,) = model.ask(reader, "Uniter.WatchRelationUnits", **{"relation-units": [pair]})["results"]
    for number in range(5):
        model.commit(writer, "a/0", relation_unit_settings=_link("a/0", number=str(number)))
    event = model.event(reader, model.begin_next(reader, "RelationUnitsWatcher", begun["watcher-id"]))
    (again,) = model.ask(reader, "Uniter.WatchRelationUnits", **{"relation-units": [pair]})["results"]

    assert event["changed"] == again["changes"]["changed"]


def test_a_unit_that_leaves_has_departed_and_its_last_settings_remain(model: Population) -> None:
    writer, reader = model.unit("a/0"), model.unit("b/0")
    model.enter(writer, "a/0")
    model.commit(writer, "a/0", relation_unit_settings=_link("a/0", host="here"))
    pair = {"relation": LINK, "unit": "unit-b-0"}
    (begun,) = model.ask(reader, "Uniter.WatchRelationUnits", **{"relation-units": [pair]})["results"]
    leave = {"relation": LINK, "unit": "unit-a-0"}
    model.ask(writer, "Uniter.LeaveScope", **{"relation-units": [leave]})

    event = model.event(reader, model.begin_next(reader, "RelationUnitsWatcher", begun["watcher-id"]))
    remote = pair | {"local-unit": "unit-b-0", "remote-unit": "unit-a-0"}
    read = model.ask(reader, "Uniter.ReadRemoteSettings", **{"relation-unit-pairs": [remote]})["results"]

    assert event == {"changed": {}, "departed": ["a/0"]}
    assert read == [{"settings": {"host": "here"}}]


def test_only_the_leader_writes_its_applications_settings(model: Population) -> None:
    writer, reader = model.unit("a/0"), model.unit("b/0")
    model.enter(writer, "a/0")
    pair = {"relation": LINK, "unit": "unit-b-0"}
    (begun,) = model.ask(reader, "Uniter.WatchRelationUnits", **{"relation-units": [pair]})["results"]
    written = [_link("a/0")[0] | {"application-settings": {"of": "all"}}]

    refused = model.commit(writer, "a/0", relation_unit_settings=written)
    model.lead(writer, "a/0")
    assert model.commit(writer, "a/0", relation_unit_settings=written) == {}
    event = model.event(reader, model.begin_next(reader, "RelationUnitsWatcher", begun["watcher-id"]))
    remote = pair | {"local-unit": "unit-b-0", "remote-unit": "application-a"}
    read = model.ask(reader, "Uniter.ReadRemoteSettings", **{"relation-unit-pairs": [remote]})["results"]

    assert refused == {"error": {"message": "checking lease token: lease not held", "code": ""}}
    assert event["app-changed"]["a"] != 0
    assert read == [{"settings": {"of": "all"}}]


def test_a_commit_that_is_refused_changes_nothing(model: Population) -> None:
    unit = model.unit("a/0")
    port = {"tag": "unit-a-0", "protocol": "tcp", "from-port": 80, "to-port": 80, "endpoint": ""}
    refused = model.commit(
        unit, "a/0", open_ports=[port], relation_unit_settings=_link("a/0", host="not in scope")
    )
    others = model.commit(unit, "a/0", open_ports=[port | {"tag": "unit-a-1"}])

    assert refused["error"]["code"] == "not found"
    assert others == {"error": {"message": "permission denied", "code": "unauthorized access"}}
    assert model.status()["applications"]["a"]["units"]["a/0"]["opened-ports"] is None


def test_who_waits_for_a_watcher_that_is_stopped_is_told(model: Population) -> None:
    unit = model.unit("a/0")
    (begun,) = model.ask(unit, "Uniter.WatchUnitRelations", **TAG)["results"]
    waiting = model.begin_next(unit, "StringsWatcher", begun["watcher-id"])
    stop = {
        "type": "StringsWatcher",
        "version": 1,
        "request": "Stop",
        "params": {},
        "id": begun["watcher-id"],
    }

    assert unit.exchange(stop)["response"] == {}
    assert unit.reply(waiting)["error-code"] == "stopped"


# -- actions -------------------------------------------------------------------------------------


def _enqueue(model: Population, *receivers: str, action: str = "work") -> dict[str, Any]:
    actions = [{"receiver": one, "name": action, "parameters": {"deep": {"er": 1}}} for one in receivers]
    return model.ask(model.admin, "Action.EnqueueOperation", actions=actions)


def test_an_action_is_run_by_its_unit(model: Population) -> None:
    """Given a unit that watches, when a user runs an action, then the unit is told, and the user gets its result."""
    unit = model.unit("a/0")
    (begun,) = model.ask(unit, "Uniter.WatchActionNotifications", **TAG)["results"]
    waiting = model.begin_next(unit, "StringsWatcher", begun["watcher-id"])
    enqueued = _enqueue(model, "unit-a-0", "unit-a-1")
    operation, task = enqueued["operation"], enqueued["actions"][0]["action"]["tag"]
    (number,) = model.event(unit, waiting)
    tag = {"entities": [{"tag": f"action-{number}"}]}

    (asked,) = model.ask(unit, "Uniter.Actions", **tag)["results"]
    assert model.ask(unit, "Uniter.BeginActions", **tag) == {"results": [{}]}
    (again,) = model.ask(unit, "Uniter.Actions", **tag)["results"]
    (progress,) = model.ask(model.admin, "Action.WatchActionsProgress", **tag)["results"]
    model.ask(unit, "Uniter.LogActionsMessages", messages=[{"tag": f"action-{number}", "value": "half"}])
    logged = model.event(model.admin, model.begin_next(model.admin, "StringsWatcher", progress["watcher-id"]))
    finished = {
        "action-tag": f"action-{number}",
        "status": "completed",
        "results": {"answer": 42},
        "message": "",
    }
    assert model.ask(unit, "Uniter.FinishActions", results=[finished]) == {"results": [{}]}
    (done,) = model.ask(model.admin, "Action.Actions", **tag)["results"]
    (whole,) = model.ask(model.admin, "Action.Operations", entities=[{"tag": operation}])["results"]

    assert task == f"action-{number}"
    assert (asked["action"]["name"], asked["action"]["parameters"]) == ("work", {"deep": {"er": 1}})
    assert again["error"]["code"] == "action no longer available"
    assert json.loads(logged[0])["message"] == "half"
    assert (done["status"], done["output"], done["log"][0]["message"]) == (
        "completed",
        {"answer": 42},
        "half",
    )
    assert done["started"] > "2000" < done["completed"]
    assert (whole["status"], whole["summary"]) == ("pending", 'action "work"')
    assert [one["status"] for one in whole["actions"]] == ["completed", "pending"]


def test_tasks_that_waited_for_a_unit_are_its_watchers_first_event(model: Population) -> None:
    tags = [_enqueue(model, "unit-a-0")["actions"][0]["action"]["tag"] for _ in range(3)]
    unit = model.unit("a/0")

    (begun,) = model.ask(unit, "Uniter.WatchActionNotifications", **TAG)["results"]

    assert [f"action-{number}" for number in begun["changes"]] == tags


def test_an_action_runs_on_the_leader(model: Population) -> None:
    unit = model.unit("a/1")
    led = [{"receiver": "a/leader", "name": "work"}]
    message, code = model.refusal(model.admin, "Action.EnqueueOperation", actions=led)
    model.lead(unit, "a/1")
    after = _enqueue(model, "a/leader")["actions"][0]

    assert (message, code) == ('getting leader unit for a: application "a" not found in leases', "not found")
    assert after["action"]["receiver"] == "unit-a-1"


def test_operations_are_listed_by_what_they_ran_on(model: Population) -> None:
    for receiver in ("unit-a-0", "unit-a-1", "unit-b-0"):
        _enqueue(model, receiver)

    def found(**wanted: Any) -> tuple[int, bool]:
        reply = model.ask(model.admin, "Action.ListOperations", **wanted)
        return len(reply.get("results", [])), reply.get("truncated", False)

    assert found() == (3, False)
    assert found(applications=["a"]) == (2, False)
    assert found(units=["b/0"]) == (1, False)
    assert found(status=["completed"]) == (0, False)
    assert found(limit=2) == (2, True)
    assert found(limit=2, offset=1) == (2, False)


def test_what_cannot_run_is_refused(model: Population) -> None:
    def refusal(receiver: str, action: str) -> tuple[str, str]:
        actions = [{"receiver": receiver, "name": action}]
        return model.refusal(model.admin, "Action.EnqueueOperation", actions=actions)

    assert refusal("unit-a-0", "play") == ('action "play" not defined for unit "a/0".', "not found")
    assert refusal("unit-c-0", "work")[0].endswith('application "c": application "c" not found')
    assert "error" in _enqueue(model, "unit-a-9")["actions"][0]


def test_a_unit_runs_no_tasks_of_others(model: Population) -> None:
    task = _enqueue(model, "unit-a-0")["actions"][0]["action"]["tag"]
    (result,) = model.ask(model.unit("a/1"), "Uniter.BeginActions", entities=[{"tag": task}])["results"]

    assert result["error"]["code"] == "unauthorized access"


# -- secrets -------------------------------------------------------------------------------------


def _new_secret(model: Population, unit: Any, owner: str = "unit-a-0", **fields: Any) -> str:
    (made,) = model.ask(unit, "SecretsManager.CreateSecretURIs", count=1)["results"]
    create = {"uri": made["result"], "owner-tag": owner, "content": CONTENT} | fields
    assert model.commit(unit, "a/0", secret_creates=[create]) == {}
    return made["result"]


def _short(uri: str) -> str:
    """Return a secret's URI without its model's, as watchers tell it."""
    return f"secret:{uri.rpartition('/')[2]}"


def _get(model: Population, unit: Any, uri: str, **fields: Any) -> dict[str, Any]:
    (result,) = model.ask(unit, "SecretsManager.GetSecretContentInfo", args=[{"uri": uri} | fields])[
        "results"
    ]
    return result


def test_a_consumer_is_told_of_new_revisions_and_keeps_its_own_until_it_refreshes(model: Population) -> None:
    """Given a granted secret, when its owner updates it, then its consumer is told, and gets the new one by refresh."""
    owner, consumer = model.unit("a/0"), model.unit("b/0")
    uri = _new_secret(model, owner)
    assert _get(model, consumer, uri)["error"] == {
        "message": '"b/0" is not allowed to read this secret',
        "code": "unauthorized access",
    }
    grant = {"uri": uri, "scope-tag": LINK, "subject-tags": ["application-b"], "role": "view"}
    assert model.commit(owner, "a/0", secret_grants=[grant]) == {}
    first = _get(model, consumer, uri, label="mine")
    watch = {"entities": [{"tag": "unit-b-0"}]}
    (begun,) = model.ask(consumer, "SecretsManager.WatchConsumedSecretsChanges", **watch)["results"]
    waiting = model.begin_next(consumer, "StringsWatcher", begun["watcher-id"])
    second = {"data": {"key": base64.b64encode(b"two").decode()}, "checksum": "2"}
    assert model.commit(owner, "a/0", secret_updates=[{"uri": uri, "content": second}]) == {}

    assert "changes" not in begun
    assert model.event(consumer, waiting) == [_short(uri)]
    params = {"consumer-tag": "unit-b-0", "uris": [uri]}
    info = model.ask(consumer, "SecretsManager.GetConsumerSecretsRevisionInfo", **params)["results"]
    assert info == [{"revision": 2, "label": "mine"}]
    assert _get(model, consumer, "", label="mine") == first
    assert _get(model, consumer, uri, peek=True)["content"]["data"] == second["data"]
    assert _get(model, consumer, uri) == first
    (again,) = model.ask(consumer, "SecretsManager.WatchConsumedSecretsChanges", **watch)["results"]
    assert again["changes"] == [_short(uri)]
    assert _get(model, consumer, uri, refresh=True)["content"]["data"] == second["data"]


def test_a_consumers_label_names_one_secret(model: Population) -> None:
    owner, other = model.unit("a/0"), model.unit("b/0")
    uris = [_new_secret(model, owner) for _ in range(2)]
    grants = [
        {"uri": uri, "scope-tag": LINK, "subject-tags": ["application-b"], "role": "view"} for uri in uris
    ]
    model.commit(owner, "a/0", secret_grants=grants)
    first, second = (_get(model, other, uri, label="mine") for uri in uris)

    assert "error" not in first
    assert "UNIQUE constraint failed" in second["error"]["message"]


def test_a_revision_that_nobody_keeps_is_obsolete(model: Population) -> None:
    owner = model.unit("a/0")
    uri = _new_secret(model, owner)
    begun = model.ask(owner, "SecretsManager.WatchObsolete", **TAG)
    waiting = model.begin_next(owner, "StringsWatcher", begun["watcher-id"])
    model.commit(owner, "a/0", secret_updates=[{"uri": uri, "content": CONTENT | {"checksum": "2"}}])
    obsolete = model.event(owner, waiting)
    deleted = {"uri": uri, "revisions": [1]}
    assert model.commit(owner, "a/0", secret_deletes=[deleted]) == {}
    (listed,) = model.ask(model.admin, "Secrets.ListSecrets", filter={"owner-tag": "unit-a-0"})["results"]

    assert obsolete == [f"{_short(uri).removeprefix('secret:')}/1"]
    assert [one["revision"] for one in listed["revisions"]] == [2]
    assert model.commit(owner, "a/0", secret_deletes=[{"uri": uri}]) == {}
    assert _get(model, owner, uri)["error"]["code"] == "secret not found"


def test_an_owner_is_told_when_to_rotate(model: Population) -> None:
    owner = model.unit("a/0")
    uri = _new_secret(model, owner, **{"rotate-policy": "hourly"})
    begun = model.ask(owner, "SecretsManager.WatchSecretsRotationChanges", **TAG)
    (first,) = model.event(owner, model.begin_next(owner, "SecretsTriggerWatcher", begun["watcher-id"]))
    model.commit(owner, "a/0", secret_updates=[{"uri": uri, "content": CONTENT | {"checksum": "2"}}])
    rotated = {"uri": uri, "original-revision": 1, "skip": False}
    assert model.ask(owner, "SecretsManager.SecretsRotated", args=[rotated]) == {"results": [{}]}
    (second,) = model.event(owner, model.begin_next(owner, "SecretsTriggerWatcher", begun["watcher-id"]))

    assert begun["changes"] == []
    assert first["uri"] == second["uri"] == _short(uri)
    assert first["next-trigger-time"] < second["next-trigger-time"]


def test_only_the_leader_makes_and_changes_its_applications_secrets(model: Population) -> None:
    leader, other = model.unit("a/0"), model.unit("a/1")
    create = {"owner-tag": "application-a", "content": CONTENT, "label": "ours"}
    refused = model.commit(leader, "a/0", secret_creates=[create])
    model.lead(leader, "a/0")
    uri = _new_secret(model, leader, "application-a", label="ours")

    assert refused == {"error": {"message": "checking lease token: lease not held", "code": ""}}
    assert _get(model, other, "", label="ours")["content"]["data"] == CONTENT["data"]
    update = {"uri": uri, "content": CONTENT | {"checksum": "2"}}
    assert model.commit(other, "a/1", secret_updates=[update])["error"] == {
        "message": 'updating secrets: "a/1" is not allowed to manage this secret',
        "code": "unauthorized access",
    }
    assert model.ask(leader, "SecretsManager.GetSecretMetadata")["results"][0]["label"] == "ours"
    twice = model.commit(leader, "a/0", secret_creates=[create])
    assert twice["error"]["message"].endswith('secret with label "ours" already exists')


# -- logs ----------------------------------------------------------------------------------------


def _log_sink(model: Population, password: str, tag: str = "unit-a-0") -> Any:
    sock = dial(model.lab.addresses[0], model.lab.ca)
    credentials = base64.b64encode(f"{tag}:{password}".encode()).decode()
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(
        f"GET /model/{model.uuid}/logsink?version=1 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Basic {credentials}\r\n\r\n".encode()
    )
    return sock


def test_lines_in_the_log_sink_are_counted(model: Population) -> None:
    before = model.lab.ask({"do": "counts"})["log-lines"]
    record = {"t": "2026-01-01T00:00:00Z", "m": "juju.worker", "l": "x.go:1", "v": "INFO", "x": "hello"}
    with _log_sink(model, model.passwords["a/0"]) as sock:
        received = b""
        while not received.endswith(b"{}\n"):
            received += sock.recv(4096)
        for _ in range(3):
            payload = json.dumps(record).encode()
            sock.sendall(bytes((0x81, 0x80 | len(payload))) + bytes(4) + payload)
        deadline = time.monotonic() + PATIENCE_S
        while model.lab.ask({"do": "counts"})["log-lines"] < before + 3:
            assert time.monotonic() < deadline

    assert received.startswith(b"HTTP/1.1 101")
    assert model.lab.ask({"do": "counts"})["log-lines"] == before + 3


@pytest.mark.parametrize(("tag", "status"), [("unit-a-0", b"401"), ("user-admin", b"403")])
def test_only_agents_with_their_password_get_the_log_sink(model: Population, tag: str, status: bytes) -> None:
    with _log_sink(model, "wrong", tag) as sock:
        assert sock.recv(4096).startswith(b"HTTP/1.1 " + status)
