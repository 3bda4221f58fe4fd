"""Whole runs on a simulated Juju controller, through the command line; what a run leaves there: nothing."""

from __future__ import annotations

import base64
import json
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from lab.juju.simulator import JujuLab
from tests.functional.juju.juju_runs import (
    LEASES,
    LONG,
    MODEL_OF_OURS,
    UNITS,
    as_admin,
    contents,
    ended,
    juju_plan,
    make_theirs,
    run_on,
    start_on,
)
from tests.functional.juju.wiretap import Wiretap
from tests.functional.program import (
    CHECKOUT,
    WITHIN_S,
    command,
    execute,
    only_run,
    run,
    start,
    until,
    wait_for_hold,
    workers_of,
)
from tests.functional.spawn_runs import crash, going, named, wait_for
from tests.functional.standstills import await_ticks
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.search.rebuilt import searcher_of
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.read import recorded_plan
from tippingpoint.report import RunFormat, write_report
from tippingpoint.rundir.probe_events import probe_events
from tippingpoint.rundir.results import load_run
from tippingpoint.targets.juju.api.access import from_store
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.hollow import HollowFleet, application_name, make_model


def test_a_run_claims_extends_reports_and_leaves_nothing(juju: JujuLab, tmp_path: Path) -> None:
    # given a controller, and a plan of 10 leases of 2 units each
    before = contents(juju)
    plan = juju_plan(tmp_path)
    # when it is run on the controller by its name
    done = run_on(juju, "run", plan, "--controller", juju.controller, "--out", tmp_path / "runs", "--json")
    # then its thresholds are met, and the report says on what
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"]["outcome"] == "met"
    assert report["run"]["target"]["kind"] == "juju"
    assert report["run"]["target"]["controller"] == juju.controller
    assert report["run"]["target"]["members"] == juju.addresses
    assert "simulator" in report["run"]["target"]["version"]
    assert report["outcomes"] == ["ok", "denied", "lost", "timeout", "error"]
    # and every unit connected once, one of each lease holds it, the others were denied
    (stage,) = report["stages"]
    assert stage["held"] == LEASES
    connect, claim, extend = (stage["operations"][name] for name in ("connect", "claim", "extend"))
    assert (connect["ok"], connect["attempts"]) == (LEASES * UNITS, LEASES * UNITS)
    assert (claim["ok"], claim["denied"]) == (LEASES, LEASES * (UNITS - 1))
    # and each holder extended each second
    measured = only_run(tmp_path / "runs")
    (took,) = [each.end - each.begin for each in measured.stages if each.end is not None]
    assert LEASES <= extend["ok"] == extend["attempts"] <= LEASES * took
    assert 0 < extend["service"]["p50"] <= extend["response"]["max"]
    # and the making of the fleet was told, is no part of the stage, and was undone
    assert f"preparing passwords: {LEASES * UNITS} of {LEASES * UNITS}" in done.stderr
    assert measured.notes == []
    (cleaned,) = [event for event in measured.events if event["event"] == "cleaned"]
    machines, model = 2, 1
    assert cleaned["removed"] == LEASES * UNITS + LEASES + machines + model
    assert contents(juju) == before
    until(lambda: juju.ask({"do": "counts"})["connections"] == 0, "no connection is left")


def test_in_a_model_that_is_there_only_what_is_ours_is_removed(juju: JujuLab, tmp_path: Path) -> None:
    # given a model with an application and a machine in it
    make_theirs(juju, "theirs")
    before = contents(juju)
    # when a run makes its units there
    plan = juju_plan(tmp_path, stages=LONG)
    process = start_on(juju, "run", plan, "--set", "target.model=theirs", "--out", tmp_path / "runs")
    wait_for_hold(tmp_path / "runs")
    during = contents(juju)
    process.send_signal(signal.SIGINT)
    ended(process, juju)
    # then they were there, in that model and no other, and nothing else was touched
    assert only_run(tmp_path / "runs").manifest.status == "interrupted"
    units, machines = during["theirs"]
    assert units.items() >= before["theirs"][0].items()
    assert sorted(units.values()) == [UNITS] * (LEASES + 2)
    assert len(machines) == 1 + 2
    assert {**during, "theirs": before["theirs"]} == before
    assert contents(juju) == before


@pytest.mark.parametrize("made_model", [True, False])
def test_after_a_crash_clean_removes_exactly_what_was_made(
    juju: JujuLab, tmp_path: Path, made_model: bool
) -> None:
    # given somebody else's model
    uuid = make_theirs(juju, f"theirs-{made_model}".lower())
    before = contents(juju)
    # and a run that is killed with its workers while it holds leases, its store named relative to where it was
    where = tmp_path / "where"
    shutil.copytree(juju.data, where / "store")
    model = [] if made_model else ["--set", f"target.model={uuid}"]
    out = tmp_path / "runs"
    crashing = subprocess.Popen(
        command("run", juju_plan(tmp_path, stages=LONG), *model, "--out", out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=where,
        env={**os.environ, "JUJU_DATA": "store", "PYTHONPATH": str(CHECKOUT)},
    )
    directory = wait_for_hold(out)
    crash(crashing)
    left = contents(juju)
    assert left != before
    # when it is cleaned, twice, from another directory and without JUJU_DATA
    removed = LEASES * UNITS + LEASES + 2 + made_model
    for count in (removed, 0):
        done = run("clean", directory)
        assert (done.returncode, done.stdout) == (0, f"removed {count}\n"), done.stderr
        # then all of it is gone, and nothing else
        assert contents(juju) == before
    # and what was measured until then can be reported
    assert load_run(directory).manifest.status == "cut"
    assert load_run(directory).stages[0].count("claim") == LEASES


def test_workers_whose_runner_is_gone_end_and_clean_removes_what_they_made(
    juju: JujuLab, tmp_path: Path
) -> None:
    before = contents(juju)
    process = start_on(juju, "run", juju_plan(tmp_path, stages=LONG), "--out", tmp_path / "runs")
    directory = wait_for_hold(tmp_path / "runs")
    workers = workers_of(process.pid)
    process.kill()
    process.communicate(timeout=WITHIN_S)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    until(lambda: juju.ask({"do": "counts"})["connections"] == 0, "no connection is left")
    assert run("clean", directory).returncode == 0
    assert contents(juju) == before


def test_two_runs_at_once_do_not_meet(juju: JujuLab, tmp_path: Path) -> None:
    # given two runs of the same plan, begun at the same time, one of them shorter
    before = contents(juju)
    plan = juju_plan(tmp_path)
    outs = [tmp_path / "one", tmp_path / "two"]
    first, second = (
        start_on(juju, "run", plan, "--set", f"stages.0.hold={hold}", "--out", out)
        for out, hold in zip(outs, ("2s", "20m"), strict=True)
    )
    wait_for_hold(outs[1])
    # when the first has ended, and has been cleaned up once more
    done = ended(first, juju)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run("clean", only_run(outs[0]).directory).stdout == "removed 0\n"
    # then the second goes on, cannot be cleaned up meanwhile, and has held all of its leases all the time
    refused = run("clean", only_run(outs[1]).directory)
    assert refused.returncode == 2
    assert "still running" in refused.stderr
    second.send_signal(signal.SIGINT)
    ended(second, juju)
    for out in outs:
        (stage,) = only_run(out).stages
        assert (stage.count("claim"), stage.count("claim", "denied")) == (LEASES, LEASES * (UNITS - 1))
        assert (stage.gauges["held"], stage.failures("extend")) == (LEASES, 0)
    assert contents(juju) == before


def test_more_units_than_a_worker_may_connect_are_refused_with_the_number_that_fits(
    juju: JujuLab, tmp_path: Path
) -> None:
    before = contents(juju)
    leases = 10_000_000  # more connections than Linux lets any process have (fs.nr_open)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    plan = juju_plan(tmp_path)
    done = run_on(juju, "run", plan, "--set", f"stages.0.leases={leases}", "--out", tmp_path / "runs")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    said = re.match(
        r"tippingpoint: stages\.0\.leases: 10000000: expected at most (\d+): each of the run's workers \((\d+)\) ",
        done.stderr,
    )
    assert said, done.stderr
    assert 0 < int(said[1]) * UNITS <= int(said[2]) * hard
    assert contents(juju) == before
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize(
    ("find", "low"),
    [
        pytest.param({"start": 5, "limit": 5, "over": 0}, 5, id="leases"),
        pytest.param({"load": "arrivals", "leases": 5, "start": 40, "limit": 40}, 40, id="arrivals"),
    ],
)
def test_a_search_for_what_a_ramp_costs_begins_every_load_from_nothing(
    juju: JujuLab, tmp_path: Path, find: dict[str, Any], low: float
) -> None:
    # given a threshold on claims that any load up to the limit meets
    plan = juju_plan(
        tmp_path,
        workload={"units": UNITS, "claim_time": "5s", "renew_time": "1s", "timeout": "30s"},
        stages=[],
        find={"hold": "2s", **find},
        thresholds=[{"operation": "claim", "p99": "60s"}],
    )
    # when the load is looked for that misses it
    done = run_on(juju, "run", plan, "--out", tmp_path / "runs")
    # then it is beyond the limit
    assert done.returncode == 0, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    (found,) = [event for event in measured.events if event["event"] == "found"]
    assert (found["ended"], found["low"]) == ("limit", low)
    # and each time every unit connected again, and every lease had run out before it was claimed again
    probes = probe_events(measured.events)
    assert all(probe.fresh for probe in probes)
    assert [stage.count("connect") for stage in measured.stages] == [5 * UNITS] * len(probes)
    assert [stage.count("claim") for stage in measured.stages] == [5] * len(probes)


def test_a_search_finds_the_limit_that_its_target_has(
    new_juju: Callable[..., JujuLab], tmp_path: Path
) -> None:
    # given a store that takes 24 ms for a commit, whatever machine it is simulated on: 41.7 renewals a second
    lab = new_juju(profile="4.0", scale=20)
    plan = juju_plan(
        tmp_path,
        workload={"units": 1, "claim_time": "20s", "renew_time": "1s", "timeout": "10s"},
        stages=[],
        find={"start": 10, "limit": 400, "over": "2s", "hold": "8s", "resolution": 0.2, "within": "90s"},
        thresholds=[{"operation": "extend", "p99": "500ms", "lost_rate": 0}],
    )
    # when its limit is looked for
    run_on(lab, "run", plan, "--out", tmp_path / "runs")
    # then it is found: a queue that grows by 7 % a second is half a second late at the end of a hold
    measured = only_run(tmp_path / "runs")
    read = recorded_plan(measured.manifest.plan)
    assert isinstance(read, ClaimPlan)
    assert read.find is not None
    answer = searcher_of(read, read.find, measured.events).answer
    assert answer.low <= 45, answer
    if answer.ended == "generator":  # on a machine that is too slow for it
        assert any(probe.held is None for probe in probe_events(measured.events)), answer
        return
    assert answer.high >= 41, answer
    if answer.limit is None:
        assert answer.ended == "within", answer
        return
    assert answer.binds == "extend p99"


def test_a_restart_storm_connects_and_claims_all_at_once(juju: JujuLab, tmp_path: Path) -> None:
    plan = juju_plan(
        tmp_path,
        stages=[{"leases": LEASES, "over": "200ms", "hold": "2s"}],
        faults=[{"do": "drop-claims", "stage": 1, "at": "1s"}],
    )
    done = run_on(juju, "run", plan, "--out", tmp_path / "runs")
    assert done.returncode == 0, done.stdout + done.stderr
    ramp, storm = only_run(tmp_path / "runs").stages
    assert (ramp.kind, storm.kind) == ("ramp", "storm")
    assert [stage.count("connect") for stage in (ramp, storm)] == [LEASES * UNITS] * 2
    assert [stage.gauges["held"] for stage in (ramp, storm)] == [LEASES] * 2
    # as Juju's agents, a unit that comes back in time has its lease again, and the others are denied it
    assert [stage.count("claim") for stage in (ramp, storm)] == [LEASES] * 2
    # and no worker complains of the waits that ended with their connections
    assert list(tmp_path.glob("runs/*/worker-*.stderr")) == []


def test_a_smaller_stage_disconnects_the_surplus(juju: JujuLab, tmp_path: Path) -> None:
    def sessions() -> int:
        number: int = juju.ask({"do": "counts"})["sessions"]
        return number

    until(lambda: sessions() == 0, "nobody is left of runs before this one")
    plan = juju_plan(
        tmp_path, stages=[{"leases": LEASES, "over": 0, "hold": "1500ms"}, {**LONG[0], "leases": LEASES // 2}]
    )
    process = start_on(juju, "run", plan, "--out", tmp_path / "runs")
    with going(process):
        wait_for(tmp_path / "runs", process, "stage", 2, phase="hold", stage=2)
        ours = 2  # the run's own: at the controller, and in the model that it made
        until(lambda: sessions() == LEASES // 2 * UNITS + ours, "the surplus is disconnected")
        process.send_signal(signal.SIGINT)
        ended(process, juju)
    first, second = only_run(tmp_path / "runs").stages
    assert (first.count("connect"), second.count("connect")) == (LEASES * UNITS, 0)
    assert [stage.gauges["held"] for stage in (first, second)] == [LEASES, LEASES // 2]


class TestAgent:
    """All holders as one unit's agent, as the published test does it."""

    def test_a_patched_controller_grants_leases_of_applications_that_are_not_there(
        self, new_juju: Callable[..., JujuLab], tmp_path: Path
    ) -> None:
        # given a controller patched as the published test's, and the agent.conf of a unit
        lab = new_juju(patched=True)
        conf, _ = agent_conf(lab, tmp_path)
        before = contents(lab)
        kept = conf.read_bytes()
        # when a plan is run as that agent, without a juju client's store
        plan = juju_plan(tmp_path, target={"kind": "juju", "identity": "agent", "agent": str(conf)})
        done = ended(start("run", plan, "--out", tmp_path / "runs", JUJU_DATA=str(tmp_path / "none")), lab)
        # then it holds its leases, and nothing was made, nor is there anything to clean
        assert done.returncode == 0, done.stdout + done.stderr
        (stage,) = only_run(tmp_path / "runs").stages
        assert stage.gauges["held"] == LEASES
        assert (stage.count("connect"), stage.count("claim")) == (LEASES * UNITS, LEASES)
        assert contents(lab) == before
        assert conf.read_bytes() == kept
        cleaned = run("clean", only_run(tmp_path / "runs").directory)
        assert (cleaned.returncode, cleaned.stdout) == (0, "removed 0\n")

    def test_a_stock_controller_is_named_as_what_it_is(self, juju: JujuLab, tmp_path: Path) -> None:
        # given a stock controller
        conf, model = agent_conf(juju, tmp_path)
        # when a plan is run as a unit's agent
        plan = juju_plan(tmp_path, target={"kind": "juju", "identity": "agent", "agent": str(conf)})
        done = run_on(juju, "run", plan, "--out", tmp_path / "runs")
        # then one line says that it is not patched, and what would do without a patch
        assert done.returncode == 3
        assert done.stderr.count("\n") == 1
        assert re.fullmatch(
            r"tippingpoint: unit-\S+: permission denied: the controller is not patched .*"
            r"target\.identity=hollow, which needs no patch\n",
            done.stderr,
        ), done.stderr
        assert [*(tmp_path / "runs").iterdir()] == []
        remove(juju, model)


def agent_conf(lab: JujuLab, directory: Path) -> tuple[Path, str]:
    """The agent.conf of a unit in a model that is made for it, as an agent has it, and the model's UUID."""
    access = from_store(lab.controller, lab.data)

    async def make(client: ApiClient) -> tuple[str, str, str]:
        model = await make_model(access, f"agents-{directory.name}")
        fleet = HollowFleet(client, access, model, "other", "0")
        await fleet.grow([application_name("other", 0)], 1, lambda what, done, goal: None)
        identity = fleet.identity(f"{application_name('other', 0)}/0")
        return model, identity.tag, identity.password

    model, tag, password = as_admin(lab, make)
    conf = {
        "tag": tag,
        "controller": f"controller-{lab.controller_uuid}",
        "model": f"model-{model}",
        "apiaddresses": lab.addresses,
        "apipassword": password,
        "cacert": lab.ca,
        "oldpassword": "",
    }
    path = directory / "agent.conf"
    path.touch(0o600)
    path.write_text("# format 2.0\n" + yaml.safe_dump(conf))
    return path, model


def remove(lab: JujuLab, model: str) -> None:
    lab.ask({"do": "destroy-model", "model": model, "disconnect": True})


class TestRefusals:
    """Who we are and where: what is wrong with it is one line, and nothing is made or kept."""

    @pytest.fixture(autouse=True)
    def _as_before(self, juju: JujuLab, tmp_path: Path) -> Iterator[None]:
        before = contents(juju)
        yield
        assert contents(juju) == before
        assert not list(tmp_path.glob("runs/*"))

    def refused(self, lab: JujuLab, tmp_path: Path, store: Path, *arguments: str | Path) -> str:
        done = ended(
            start("run", juju_plan(tmp_path), *arguments, "--out", tmp_path / "runs", JUJU_DATA=str(store)),
            lab,
        )
        assert done.returncode == 2, done.stdout + done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def test_an_unknown_controller(self, juju: JujuLab, tmp_path: Path) -> None:
        said = self.refused(juju, tmp_path, juju.data, "--controller", "production")
        assert "target.controller: production: expected one of simulator" in said

    def test_no_store(self, juju: JujuLab, tmp_path: Path) -> None:
        said = self.refused(juju, tmp_path, tmp_path / "none", "--controller", "simulator")
        assert "target.controller" in said
        assert "JUJU_DATA" in said

    def test_no_password_in_the_store(self, juju: JujuLab, tmp_path: Path) -> None:
        store = tmp_path / "store"
        shutil.copytree(juju.data, store)
        accounts = yaml.safe_load((store / "accounts.yaml").read_text())
        del accounts["controllers"]["simulator"]["password"]
        (store / "accounts.yaml").write_text(yaml.safe_dump(accounts))
        said = self.refused(juju, tmp_path, store, "--controller", "simulator")
        assert "juju change-user-password" in said
        assert "target.credentials" in said

    def test_credentials_that_others_can_read(self, juju: JujuLab, tmp_path: Path) -> None:
        path = credentials(juju, tmp_path, 0o644)
        said = self.refused(juju, tmp_path, tmp_path, "--set", f"target.credentials={path}")
        assert re.search(r"target\.credentials: .*mode 0600", said), said
        assert juju.password not in said

    def test_a_model_that_is_not_there(self, juju: JujuLab, tmp_path: Path) -> None:
        said = self.refused(juju, tmp_path, juju.data, "--set", "target.model=nowhere")
        assert re.search(r"target\.model: nowhere: expected one of .*controller", said), said


def test_credentials_in_a_file_need_no_store(juju: JujuLab, tmp_path: Path) -> None:
    # given a file of mode 0600, named relative to where the run is started, and no juju client
    before = contents(juju)
    credentials(juju, tmp_path, 0o600)
    quick = [{"leases": 2, "over": 0, "hold": "1500ms"}]
    plan = juju_plan(tmp_path, target={"kind": "juju", "credentials": "who.yaml"}, stages=quick)
    # when a plan is run with it
    process = subprocess.Popen(
        command("run", plan, "--out", tmp_path / "runs"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "JUJU_DATA": str(tmp_path / "none"), "PYTHONPATH": str(CHECKOUT)},
    )
    done = ended(process, juju)
    # then it holds leases and cleans up
    assert done.returncode == 0, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.target.controller == juju.addresses[0]
    assert measured.stages[0].gauges["held"] == 2
    assert contents(juju) == before


def credentials(lab: JujuLab, directory: Path, mode: int) -> Path:
    """A file that says where the lab is and who its administrator is."""
    path = directory / "who.yaml"
    path.touch(mode)
    path.chmod(mode)
    fields = {"addresses": lab.addresses, "ca": lab.ca, "user": lab.user, "password": lab.password}
    path.write_text(yaml.safe_dump(fields))
    return path


def test_passwords_are_nowhere_but_where_they_belong(juju: JujuLab, tmp_path: Path) -> None:
    # given a run whose every word to the controller is heard
    out = tmp_path / "runs"
    plan = juju_plan(tmp_path, stages=LONG)
    with Wiretap(juju, tmp_path) as tap:
        process = execute("run", plan, "--out", out, JUJU_DATA=str(tap.data))
        # when it is looked at while it holds its leases, and after its end
        directory = wait_for_hold(out)
        seen = {
            f"{name} of {pid}": Path(f"/proc/{pid}/{name}").read_bytes()
            for pid in [process.pid, *workers_of(process.pid)]
            for name in ("cmdline", "environ")
        }
        seen |= files(directory)
        process.send_signal(signal.SIGINT)
        done = ended(process, juju)
    assert load_run(directory).manifest.status == "interrupted", done.stdout + done.stderr
    seen |= {f"{name} in the end": content for name, content in files(directory).items()}
    seen |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    for form in get_args(RunFormat):
        seen[form] = write_report(analyse(load_run(directory)), form).encode()
    # then what it said had the user's password in it, and one for each machine and unit, and the upload's own
    machines, upload = 2, 1
    assert juju.password in tap.secrets
    assert len(tap.secrets) >= 1 + machines + LEASES * UNITS + upload
    # and none of them is anywhere else
    assert len(seen) > 20
    assert leaks(tap.secrets, seen) == []
    assert leaks({juju.password}, {"the store": (tap.data / "accounts.yaml").read_bytes()}) == ["the store"]


def files(directory: Path) -> dict[str, bytes]:
    """Every file of a run."""
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def leaks(secrets: set[str], seen: dict[str, bytes]) -> list[str]:
    """Where any of these is, as it is or in base64."""
    words = [form for text in secrets for form in (text.encode(), base64.b64encode(text.encode()))]
    return sorted(where for where, content in seen.items() if any(word in content for word in words))


class TestInterrupted:
    """A user who has seen enough: the run ends in order, and nothing of it is left."""

    def test_while_the_fleet_is_made(self, juju: JujuLab, tmp_path: Path) -> None:
        # given a run whose fleet is half made, as the controller lets nobody else log in for a while
        before = contents(juju)
        juju.ask({"do": "rate-limit", "max": 1, "rate": 1000})
        process = start_on(juju, "run", juju_plan(tmp_path, stages=LONG), "--out", tmp_path / "runs")
        until(lambda: any(len(contents(juju)[model][0]) == LEASES for model in ours(juju)))
        # when it is interrupted
        process.send_signal(signal.SIGINT)
        done = ended(process, juju)
        juju.ask({"do": "rate-limit", "max": 0})
        # then it ends in order, says so, has a report, and what was made so far is removed
        measured = only_run(tmp_path / "runs")
        assert measured.manifest.status == "interrupted"
        assert [worker.status for worker in measured.manifest.workers] == ["complete", "complete"]
        assert measured.stages == []
        assert "report.html" in done.stdout
        assert contents(juju) == before

    def test_while_leases_are_held(self, juju: JujuLab, tmp_path: Path) -> None:
        before = contents(juju)
        process = start_on(juju, "run", juju_plan(tmp_path, stages=LONG), "--out", tmp_path / "runs")
        directory = wait_for_hold(tmp_path / "runs")
        await_ticks(directory, 4)
        process.send_signal(signal.SIGINT)
        done = ended(process, juju)
        measured = load_run(directory)
        assert measured.manifest.status == "interrupted"
        assert measured.stages[0].count("extend") >= LEASES
        assert measured.stages[0].failures("extend") == 0
        assert "report.html" in done.stdout
        assert contents(juju) == before

    def test_twice_leaves_everything_and_says_how_to_remove_it(self, juju: JujuLab, tmp_path: Path) -> None:
        before = contents(juju)
        process = start_on(juju, "run", juju_plan(tmp_path, stages=LONG), "--out", tmp_path / "runs")
        directory = wait_for_hold(tmp_path / "runs")
        juju.stop("s1")
        try:
            process.send_signal(signal.SIGINT)
            until(lambda: named(directory, "interrupted"), "it heard of that")
            process.send_signal(signal.SIGINT)
            done = ended(process, juju)
        finally:
            juju.resume("s1")
        assert f"tippingpoint clean {directory}" in done.stderr
        (left,) = [event for event in load_run(directory).events if event["event"] == "left-behind"]
        assert (
            left["problem"] == "removal stopped on request"
        )  # and not that the controller was waited for in vain
        assert load_run(directory).manifest.status == "interrupted"
        assert run("clean", directory).stdout == f"removed {LEASES * UNITS + LEASES + 2 + 1}\n"
        assert contents(juju) == before


def ours(lab: JujuLab) -> list[str]:
    """The models on a controller that runs have made."""
    return [name for name in contents(lab) if name.startswith(MODEL_OF_OURS)]
