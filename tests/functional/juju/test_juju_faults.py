"""What a run on a Juju controller survives: servers, connections, models and logins that fail.

The controller is a simulated one: a real one does not fail on demand.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.juju.simulator import JujuLab
from tests.functional.juju.juju_runs import (
    LEASES,
    UNITS,
    contents,
    ended,
    held,
    juju_plan,
    run_on,
    start_on,
)
from tests.functional.program import expect_missed, only_run, run, start, until, wait_for_hold
from tests.functional.spawn_runs import directory_of, going, named, wait_for
from tests.functional.standstills import await_ticks, held_now, longest_stall, ticks_of
from tests.unit.report.one_maximum import assert_one_maximum
from tippingpoint.rundir.results import RunData, load_run

EVERYONE = LEASES * UNITS
LASTING = {"units": UNITS, "claim_time": "60s", "renew_time": "1s", "timeout": "3s"}
"""Leases that outlast a fault and the wait before a unit connects again."""
LONG_HOLD = "20m"
"""Longer than the test, which ends the run when it has seen what it came for."""
LOOKED_AT = "40s"
"""Of a run that comes to its end by itself, long after what is done to it."""
INTERRUPTED = 4
_SETTLED_TICKS = 5
"""Of each worker, one a second."""
MODEL_GONE = "its model was gone before the run ended; leases after that were of units that no longer existed"
NONE_LOST = [{"operation": "extend", "lost_rate": 0}]
Labs = Callable[..., JujuLab]


def lasting_plan(directory: Path, hold: str, **changes: Any) -> Path:
    stages = [{"leases": LEASES, "over": "200ms", "hold": hold}]
    return juju_plan(directory, **{"workload": LASTING, "stages": stages, "thresholds": NONE_LOST, **changes})


def lab_settings(lab: JujuLab) -> list[str]:
    return [part for setting in lab.settings() for part in ("--set", setting)]


def counted(measured: RunData, operation: str, outcome: str) -> dict[str, int]:
    """How often an operation ended with an outcome, by what was said."""
    found: dict[str, int] = {}
    for event in measured.events:
        if event["event"] == "error" and (event["operation"], event["outcome"]) == (operation, outcome):
            found[event["error"]] = found.get(event["error"], 0) + event["count"]
    return found


def until_back(out: Path, units: int = EVERYONE) -> None:
    """Wait until all units of a run that is held are connected again, since some seconds, so that no other connection
    is about to be given up, and their leases are held."""

    def back() -> bool:
        directory = directory_of(out)
        if directory is None:
            return False
        measured = load_run(directory)
        lost = sum(counted(measured, "connection", "lost").values())
        if not lost or measured.stages[0].count("connect") != units + lost:
            return False
        last = max(event["t"] for event in named(directory, "error", operation="connection"))
        since = [sum(tick["t"] > last for tick in ticks) for ticks in ticks_of(directory)]
        return min(since) > _SETTLED_TICKS and held_now(directory) == units / UNITS

    until(back, "all units are back", every=0.5)


class Background:
    """A run half of whose connections are half open once it holds its leases."""

    def __init__(self, lab: JujuLab, directory: Path) -> None:
        self.lab = lab
        self.out = directory / "runs"
        plan = lasting_plan(directory, LONG_HOLD, workload={**LASTING, "claim_time": "20s"})
        self.process = start_on(lab, "run", plan, "--out", self.out)
        self._muting = threading.Thread(target=self._mute)
        self._muting.start()

    def _mute(self) -> None:
        wait_for_hold(self.out)
        self.lab.ask({"do": "mute", "share": 0.5})

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._muting.join()


@pytest.fixture(scope="module", autouse=True)
def half_open(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Background | None]:
    """Begun before the other tests, where it is wanted, and ended beside them: it takes a minute until a connection
    is pinged, and half a minute more until that has had no answer for too long."""
    if not any(item.name == "test_connections_that_are_half_open" for item in request.session.items):
        yield None
        return
    with JujuLab() as lab:
        run = Background(lab, tmp_path_factory.mktemp("half-open"))
        yield run
        run.close()


def test_a_controller_that_goes_and_comes_back(new_juju: Labs, tmp_path: Path) -> None:
    # given a plan that kills the only server in mid-stage and starts it again
    lab = new_juju()
    before = contents(lab)
    faults = [{"do": "kill", "member": "s1", "stage": 1, "at": "1s", "undo_after": "3s"}]
    leases = 20  # enough units that they do not come back in one second by chance
    stages = [{"leases": leases, "over": "200ms", "hold": LONG_HOLD}]
    plan = lasting_plan(tmp_path, LONG_HOLD, faults=faults, stages=stages)
    # when it is run until everybody is back
    process = start_on(lab, "run", plan, *lab_settings(lab), "--out", tmp_path / "runs")
    with going(process):
        wait_for_hold(tmp_path / "runs")
        until_back(tmp_path / "runs", leases * UNITS)
        process.send_signal(signal.SIGINT)
        done = ended(process, lab)
    # then no lease is lost, what was due meanwhile took as long as it took, and what failed is counted by what was said
    assert done.returncode == INTERRUPTED, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "interrupted"
    assert [event["do"] for event in measured.events if event["event"] == "fault"] == ["kill", "start"]
    (stage,) = measured.stages
    assert stage.count("extend", "lost") == 0
    assert stage.response("extend").max > 2_000_000
    assert sum(counted(measured, "connection", "lost").values()) == leases * UNITS
    assert all(text.startswith(lab.addresses[0]) for text in counted(measured, "connect", "error"))
    # and every unit has connected again, not all at once, and holds what it held
    assert stage.count("connect") == 2 * leases * UNITS
    again = [int(n) for n in measured.curves["connect.ok"].count]
    # (those that are due while a worker stands still connect together)
    assert sum(1 for n in again if n) >= 3 or longest_stall(measured) > 1.0
    assert held(measured.directory) == leases
    # and the fault is in the report, and nothing is left
    assert "kill" in run("report", measured.directory).stdout
    assert contents(lab) == before


def test_one_of_three_servers_gone(new_juju: Labs, tmp_path: Path) -> None:
    # given a controller of three servers, one of which is killed in mid-stage for good
    lab = new_juju(servers=3)
    faults = [{"do": "kill", "member": "s2", "stage": 1, "at": "1s"}]
    plan = lasting_plan(tmp_path, LONG_HOLD, faults=faults)
    # when the plan is run until its units are connected elsewhere
    process = start_on(lab, "run", plan, *lab_settings(lab), "--out", tmp_path / "runs")
    with going(process):
        wait_for_hold(tmp_path / "runs")
        until_back(tmp_path / "runs")
        process.send_signal(signal.SIGINT)
        done = ended(process, lab)
    # then only the units that were there connect again, elsewhere, and no lease is lost
    assert done.returncode == INTERRUPTED, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    (stage,) = measured.stages
    gone = counted(measured, "connection", "lost")
    assert {text.partition(": ")[0] for text in gone} == {lab.addresses[1]}
    assert EVERYONE / 4 <= sum(gone.values()) <= EVERYONE / 2
    assert stage.count("connect") == EVERYONE + sum(gone.values())
    assert stage.count("extend", "lost") == 0
    assert held(measured.directory) == LEASES
    # and the run that killed it has started it again at its end
    assert len(lab.pids) == 3
    assert list(contents(lab)) == ["controller"]


def test_connections_that_are_reset(juju: JujuLab, tmp_path: Path) -> None:
    process = start_on(juju, "run", lasting_plan(tmp_path, LONG_HOLD), "--out", tmp_path / "runs")
    with going(process):
        wait_for(tmp_path / "runs", process, "stage", 2, phase="hold")
        reset = juju.ask({"do": "reset", "share": 1})["connections"]
        assert reset >= EVERYONE
        until_back(tmp_path / "runs")
        process.send_signal(signal.SIGINT)
        done = ended(process, juju)
    assert done.returncode == INTERRUPTED, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    (stage,) = measured.stages
    # (a socket tells of a reset once: where a call of Python's ssl hears of it first, it calls it the end)
    lost = counted(measured, "connection", "lost")
    reset_words, closed_words = (
        f"{juju.addresses[0]}: {words}"
        for words in ("Connection reset by peer", "connection closed by the server")
    )
    assert lost.keys() <= {reset_words, closed_words}
    assert lost[reset_words] > EVERYONE / 2
    assert sum(lost.values()) == EVERYONE
    assert stage.count("connect") == 2 * EVERYONE
    assert stage.count("extend", "lost") == 0
    assert held(measured.directory) == LEASES
    assert list(measured.directory.glob("worker-*.stderr")) == []


def test_logins_of_a_server_that_redirects_go_where_it_says(new_juju: Labs, tmp_path: Path) -> None:
    # given a controller one of whose servers sends everybody to the other
    lab = new_juju(servers=2)
    lab.ask({"do": "redirect", "member": "s1", "to": "s2"})
    # when a plan is run
    done = run_on(lab, "run", lasting_plan(tmp_path, "2s"), "--out", tmp_path / "runs")
    # then every unit has connected once, and all hold what they should
    assert done.returncode == 0, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    (stage,) = measured.stages
    assert (stage.count("connect"), stage.count("connect", "error")) == (EVERYONE, 0)
    assert held(measured.directory) == LEASES
    lab.ask({"do": "redirect", "member": "s1", "to": None})
    assert list(contents(lab)) == ["controller"]


def test_logins_that_are_limited_are_counted_apart(new_juju: Labs, tmp_path: Path) -> None:
    # given a controller that lets few agents log in
    lab = new_juju(rate_limit=(4, 1000.0))
    plan = lasting_plan(tmp_path, "2s", thresholds=[{"operation": "connect", "error_rate": 0}])
    # when more than those are to connect, and it lets in all once some were refused
    process = start_on(lab, "run", plan, "--out", tmp_path / "runs", "--json")
    with going(process):
        directory = wait_for(tmp_path / "runs", process, "error", operation="connect", outcome="limited")
        refused = time.monotonic()
        await_ticks(directory, 4)  # two of each worker, a second apart
        refused_for = time.monotonic() - refused
        lab.ask({"do": "rate-limit", "max": 0})
        done = ended(process, lab)
    # then all have in the end; what was refused is no failure, and is told apart from one
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert "limited" in report["outcomes"]
    (stage,) = report["stages"]
    connect = stage["operations"]["connect"]
    assert (connect["ok"], connect["attempts"]) == (EVERYONE, EVERYONE)
    assert connect["limited"] > 0
    assert connect["error"] == connect["timeout"] == 0
    # and the time of a login counts from its first attempt
    assert connect["response"]["max"] >= refused_for * 1e6
    assert connect["response"]["max"] > connect["service"]["p50"]
    assert stage["held"] == LEASES
    assert set(counted(only_run(tmp_path / "runs"), "connect", "limited")) == {"try again (try again)"}


def test_a_wrong_password_is_one_line(juju: JujuLab, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(juju.data, store)
    accounts = yaml.safe_load((store / "accounts.yaml").read_text())
    accounts["controllers"]["simulator"]["password"] = "wrong-and-recognisable"
    (store / "accounts.yaml").write_text(yaml.safe_dump(accounts))
    done = ended(start("run", juju_plan(tmp_path), "--out", tmp_path / "runs", JUJU_DATA=str(store)), juju)
    refused_in_one_line(done, tmp_path, "invalid entity name or password")
    assert "recognisable" not in done.stderr
    assert not any(b"recognisable" in path.read_bytes() for path in tmp_path.glob("runs/*/*"))


@pytest.mark.parametrize(
    ("certificate", "said"),
    [
        ("expired", "expired"),
        ("other-name", "juju-apiserver"),
        ("other-authority", "not signed by a trusted authority"),
    ],
)
def test_a_certificate_that_does_not_hold_is_one_line(
    new_juju: Labs, tmp_path: Path, certificate: str, said: str
) -> None:
    lab = new_juju(certificate=certificate)
    done = run_on(lab, "run", juju_plan(tmp_path), "--out", tmp_path / "runs")
    refused_in_one_line(done, tmp_path, said)


def test_a_controller_that_nobody_can_reach_is_one_line(new_juju: Labs, tmp_path: Path) -> None:
    lab = new_juju()
    lab.kill("s1")
    done = run_on(lab, "run", juju_plan(tmp_path), "--out", tmp_path / "runs")
    refused_in_one_line(done, tmp_path, f"{lab.addresses[0]}: Connection refused")


def refused_in_one_line(done: subprocess.CompletedProcess[str], tmp_path: Path, said: str) -> None:
    assert done.returncode == 3, done.stdout + done.stderr
    assert re.fullmatch(
        r"tippingpoint: simulator: .*: expected a controller that accepts the login\n", done.stderr
    ), done.stderr
    assert said in done.stderr
    assert [*(tmp_path / "runs").iterdir()] == []


def test_a_model_destroyed_under_us(new_juju: Labs, tmp_path: Path) -> None:
    # given a run that holds leases
    lab = new_juju()
    before = contents(lab)
    work = {**LASTING, "claim_time": "5s"}
    plan = lasting_plan(tmp_path, LOOKED_AT, workload=work)
    process = start_on(lab, "run", plan, "--out", tmp_path / "runs")
    wait_for_hold(tmp_path / "runs")
    # when somebody destroys its model, and the controller ends its connections
    (model,) = set(lab.ask({"do": "counts"})["models"]) - {lab.model}
    lab.ask({"do": "destroy-model", "model": model, "disconnect": True})
    done = ended(process, lab)
    # then every lease is lost, nobody gets in again, and the run says so at its end
    measured = only_run(tmp_path / "runs")
    expect_missed(done, measured, "extend", "lost_rate")
    assert measured.manifest.status == "cut"
    assert measured.manifest.reason == MODEL_GONE
    (stage,) = measured.stages
    assert stage.count("extend", "lost") == LEASES
    assert stage.count("connect") == EVERYONE
    assert stage.count("connect", "error") >= EVERYONE
    assert held(measured.directory) == 0
    assert "extend lost rate" in run("report", measured.directory).stdout
    assert contents(lab) == before


def test_a_model_destroyed_while_its_units_stay(new_juju: Labs, tmp_path: Path) -> None:
    # given a model that is destroyed in mid-stage on a controller that keeps its agents' connections, as Juju
    # 4.0.15 was seen to do
    lab = new_juju()
    process = start_on(lab, "run", lasting_plan(tmp_path, LOOKED_AT), "--out", tmp_path / "runs")
    wait_for_hold(tmp_path / "runs")
    (model,) = set(lab.ask({"do": "counts"})["models"]) - {lab.model}
    lab.ask({"do": "destroy-model", "model": model})
    # when the run has ended
    done = ended(process, lab)
    # then nobody had to connect again, what was lost is counted, and there is nothing to clean
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "cut"
    assert measured.manifest.reason == MODEL_GONE
    assert [event["event"] for event in measured.events].count("model-gone") == 1
    (stage,) = measured.stages
    assert (stage.count("connect"), stage.count("connect", "error")) == (EVERYONE, 0)
    # and what held there is no verdict on the controller, as the report says; nor what was lost there, where we were
    # late ourselves
    assert done.returncode in ((1, 4) if stage.count("extend", "lost") else (4,))
    assert MODEL_GONE in " ".join(run("report", measured.directory).stdout.split())
    assert not [event for event in measured.events if event["event"] in ("cleaned", "left-behind")]
    assert list(contents(lab)) == ["controller"]


def test_leases_of_a_version_we_do_not_speak(new_juju: Labs, tmp_path: Path) -> None:
    # given a controller that offers a LeadershipService from the future
    lab = new_juju()
    lab.ask({"do": "facades", "versions": {"LeadershipService": [99]}})
    plan = lasting_plan(tmp_path, "2s", thresholds=[{"operation": "claim", "error_rate": 0}])
    # when leases are claimed
    done = run_on(lab, "run", plan, "--out", tmp_path / "runs")
    # then each claim is an error that says what is offered and what would be spoken, and the target has failed
    assert done.returncode == 3, done.stdout + done.stderr
    assert "none of" in done.stdout
    measured = only_run(tmp_path / "runs")
    (stage,) = measured.stages
    assert (stage.count("connect"), stage.count("claim")) == (EVERYONE, 0)
    assert stage.count("claim", "error") >= EVERYONE
    (said,) = counted(measured, "claim", "error")
    assert re.search(r"facade LeadershipService: .* offers version 99: expected .*2", said), said
    assert list(contents(lab)) == ["controller"]


def test_machines_of_a_version_we_do_not_speak(new_juju: Labs, tmp_path: Path) -> None:
    """Given a controller on which no fleet can be made, then the run fails with a report, and leaves nothing."""
    lab = new_juju()
    lab.ask({"do": "facades", "versions": {"MachineManager": [99]}})
    done = run_on(lab, "run", juju_plan(tmp_path), "--out", tmp_path / "runs")
    assert done.returncode == 3, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "failed"
    assert re.search(r"facade MachineManager: .* offers version 99", measured.manifest.reason)
    assert "MachineManager" in done.stdout
    assert (measured.directory / "report.html").exists()
    assert list(contents(lab)) == ["controller"]


def test_a_stalled_store_is_counted_and_survived(new_juju: Labs, tmp_path: Path) -> None:
    # given leases that are held
    lab = new_juju()
    # (that is longer than a busy machine stands still)
    work = {**LASTING, "claim_time": "15s", "timeout": "1s"}
    plan = lasting_plan(tmp_path, LONG_HOLD, workload=work)
    process = start_on(lab, "run", plan, "--out", tmp_path / "runs")
    with going(process):
        directory = wait_for(tmp_path / "runs", process, "stage", 2, phase="hold")
        # when the controller's store commits nothing for longer than they last
        lab.ask({"do": "store", "state": "stalled"})
        until(lambda: '"lost"' in journals(tmp_path / "runs"))
        lab.ask({"do": "store", "state": "normal"})
        until(lambda: held_now(directory) == LEASES, "all leases are held again")
        process.send_signal(signal.SIGINT)
        done = ended(process, lab)
    # then their extensions time out and they are lost, without a connection being lost, and held again at the end
    measured = only_run(tmp_path / "runs")
    expect_missed(done, measured, "extend", "lost_rate")
    (stage,) = measured.stages
    assert stage.count("extend", "timeout") > 0
    assert stage.count("extend", "lost") > 0
    assert counted(measured, "connection", "lost") == {}
    # (at what they cost, in tables and charts as for thresholds)
    told = assert_one_maximum(measured, "extend", "claim", "connect")
    assert told["stages"][0]["operations"]["extend"]["cost"]["max"] >= 1_000_000
    assert held(measured.directory) == LEASES


def journals(out: Path) -> str:
    """The single events that workers have written so far."""
    return "".join(path.read_text() for path in out.glob("*/worker-*.jsonl"))


def test_connections_that_are_half_open(half_open: Background | None) -> None:
    # given a run half of whose connections are never answered and never closed
    assert half_open is not None
    # when all have connected again, and it is ended
    until_back(half_open.out)
    half_open.process.send_signal(signal.SIGINT)
    done = ended(half_open.process, half_open.lab)
    # then it has counted what was not answered, noticed it by the pings, and connected again
    measured = only_run(half_open.out)
    (stage,) = measured.stages
    muted = counted(measured, "connection", "lost")
    assert list(muted) == [f"{half_open.lab.addresses[0]}: no answer to a ping within 30 s"]
    (number,) = muted.values()
    assert 1 <= number < EVERYONE
    assert stage.count("connect") == EVERYONE + number
    assert stage.count("extend", "timeout") > 0
    assert held(measured.directory) == LEASES
    # and leases of muted holders were lost to others, which the thresholds say, unless we were late ourselves
    assert done.returncode in ((1, INTERRUPTED) if stage.count("extend", "lost") else (INTERRUPTED,))
    assert list(contents(half_open.lab)) == ["controller"]
