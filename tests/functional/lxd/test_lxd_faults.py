"""What a run on an LXD cluster survives, and what it says of what it cannot do.

Members that are killed are real ones. What a real LXD does not do on demand, a proxy in front of a member does.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.control import ControlServer
from lab.lxd.access import make_client_certificate, write_credentials
from lab.lxd.cluster import LxdLab
from lab.lxd.proxy import Cut, Fail, FailOperation, Garble, Hold, LxdProxy
from tests.functional.lxd.lxd_runs import (
    EACH,
    GROUPS,
    MEMBERS,
    OFTEN,
    PASS_BY_THEMSELVES,
    Online,
    always_online,
    await_online,
    containers,
    counted,
    eventually,
    everything,
    goal,
    only_a_stage,
    prefix_of,
    report_of,
    run_at,
    running,
    spawn_plan,
    start_at,
    wait_for_hold,
)
from tests.functional.program import TO_THE_END, only_run, run, start, until
from tests.functional.spawn_runs import crash, ended, going, named, wait_for
from tests.unit.report.one_maximum import assert_one_maximum
from tippingpoint.targets.lxd.client import LARGEST_ANSWER

pytestmark = pytest.mark.lxd

ALL = GROUPS * EACH
CREATES, STARTS = r"^/1\.0/instances\?", r"^/1\.0/instances/.*/state"
LISTS = r"^/1\.0/instances\?.*recursion"
STEADILY = 20
"""Polls, one a second. LXD's heartbeats go round every 10 s, and the lab's members are offline after 11 s: the living
ones, too, for seconds, when a round takes longer because of a dead one."""
LONG_HOLD = "20m"
"""How long is held what the test ends."""
EVICTED_WITHIN = "2m"
"""The hold in which a dead member is evicted. Polls are slow on a busy cluster without a member."""
NONE_FAIL = [{"operation": "launch", "error_rate": 0}]
IN_TURN = {"placement": "round-robin"}


@pytest.fixture
def proxy(lxd: LxdLab) -> Iterator[LxdProxy]:
    with LxdProxy(lxd) as made:
        yield made


@dataclass
class Scene:
    """A cluster of its own whose members die, and what runs there beside other tests."""

    lab: LxdLab
    directory: Path

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start the program there."""
        return start_at(self.lab, *arguments)

    def clean(self, directory: Path) -> subprocess.CompletedProcess[str]:
        """Clean up a run."""
        return ended(start("clean", directory))


@pytest.fixture(scope="module", autouse=True)
def scenes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """Those in which members die, as far as they are wanted: begun before the other tests and played beside them.
    Most of it is waiting until LXD's heartbeats notice."""
    wanted = {item.name: SCENES[item.name] for item in request.session.items if item.name in SCENES}

    def play(scene: Callable[[Scene], None]) -> None:
        with LxdLab(members=3) as lab:
            before = everything(lab)
            scene(Scene(lab, tmp_path_factory.mktemp(scene.__name__)))
            assert everything(lab) == before

    with ThreadPoolExecutor(len(SCENES)) as pool:
        yield {name: pool.submit(play, scene) for name, scene in wanted.items()}


@pytest.fixture
def scene(request: pytest.FixtureRequest, scenes: dict[str, Future[None]]) -> Future[None]:
    """The scene of a test by its name."""
    return scenes[request.node.name]


def said(report: dict[str, Any]) -> list[str]:
    """Why things were given up."""
    return [entry["error"] for entry in report["gave_up"]]


# What an LXD answers


def test_what_passes_by_itself_is_tried_again_and_counted(
    lxd: LxdLab, proxy: LxdProxy, tmp_path: Path
) -> None:
    # given a database that is locked for some, and that has no leader for others, also for those who only look
    before = everything(lxd)
    proxy.add("POST", CREATES, FailOperation("database is locked"), times=3)
    proxy.add("GET", MEMBERS, Online())
    proxy.add("PUT", STARTS, Fail("failed to begin transaction: context deadline exceeded"), times=2)
    proxy.add("GET", MEMBERS, Fail("no available dqlite leader server found"), skip=4, times=3)
    proxy.add("GET", LISTS, Fail("no available dqlite leader server found"), skip=4, times=3)
    plan = spawn_plan(tmp_path, thresholds=NONE_FAIL, workload={**OFTEN, "offline_polls": 1})
    # when a run meets them
    done = run_at(proxy, "run", plan, "--out", tmp_path / "runs", "--json")
    # then they are tried again, the goal is reached, and none of it is hidden
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    (stage,) = report["stages"]
    assert stage["held"] == ALL
    assert counted(report, "retries") == {("create", "locked"): 3, ("start", "quorum"): 2}
    assert (report["gave_up"], report["repaired"]) == ([], 0)
    assert (stage["operations"]["create"]["error"], stage["operations"]["start"]["error"]) == (3, 2)
    assert (stage["operations"]["launch"]["ok"], stage["operations"]["launch"]["error"]) == (ALL, 0)
    assert stage["operations"]["poll"]["error"] >= 1
    # and nobody is taken to be gone
    assert {change["status"] for member in report["members"] for change in member["changes"]} == {"online"}
    assert [member["lost"] for member in report["members"]] == [0, 0, 0]
    assert everything(lxd) == before


def test_a_slow_operation_holds_up_no_other_and_its_whole_time_counts(
    lxd: LxdLab, proxy: LxdProxy, tmp_path: Path
) -> None:
    # given an open loop, and one creation that takes its time
    hold = Hold()
    proxy.add("POST", CREATES, hold, times=1)
    workload = {"concurrency": None, "rate": 4}
    plan = spawn_plan(tmp_path, workload=workload)
    process = start_at(proxy, "run", plan, "--out", tmp_path / "runs")
    with going(process):
        until(hold.met.is_set, "a container is being made")
        since = time.monotonic()
        # when all others are there meanwhile
        eventually(lambda: len(running(lxd)) == ALL - 1, "all others run")
        took = time.monotonic() - since
        hold.released.set()
        done = ended(process)
    # then the run makes them all and reports what took so long (a slow LXD may miss the rate)
    assert done.returncode in TO_THE_END, done.stdout + done.stderr
    (stage,) = report_of(only_run(tmp_path / "runs").directory)["stages"]
    assert stage["held"] == ALL
    for operation in ("create", "launch"):
        assert stage["operations"][operation]["ok"] == ALL
        assert stage["operations"][operation]["response"]["max"] >= took * 1e6
    assert stage["operations"]["create"]["response"]["p50"] < took * 1e6


def test_what_had_no_answer_in_time_counts_at_what_it_cost(
    lxd: LxdLab, proxy: LxdProxy, tmp_path: Path
) -> None:
    # given a creation that LXD never answers
    hold = Hold()
    proxy.add("POST", CREATES, hold, times=1)
    plan = spawn_plan(tmp_path, workload={"timeout": "15s"})
    try:
        # when a run gives it up, and tries it again
        done = run_at(proxy, "run", plan, "--out", tmp_path / "runs")
    finally:
        hold.released.set()
    # then its 15 s are in tables and charts as for thresholds (a slow LXD may hold less)
    assert done.returncode in TO_THE_END, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    assert measured.stage(1).count("create", "timeout") >= 1
    told = assert_one_maximum(measured, "create", "start", "launch")
    create = told["stages"][0]["operations"]["create"]
    assert create["cost"]["max"] >= 14_900_000
    assert create["cost"] != create["response"]


def test_a_quota_that_is_reached_is_told_in_lxds_words(lxd: LxdLab, tmp_path: Path) -> None:
    # given projects that may have one container less than is wanted of each
    before = everything(lxd)
    target = {**IN_TURN, "project": {"limits.instances": EACH - 1}}
    # and one thing after the other: LXD 5.0.2 lets two pass its check that come at once
    plan = spawn_plan(tmp_path, target=target, workload={"concurrency": 1}, thresholds=NONE_FAIL)
    done = run_at(lxd, "run", plan, "--out", tmp_path / "runs", "--json")
    # then all others are made, those are given up at once, and the run misses its threshold
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads(done.stdout)
    (stage,) = report["stages"]
    assert stage["held"] == GROUPS * (EACH - 1)
    assert counted(report, "gave_up") == {("create", "quota"): GROUPS}
    assert {kind for _, kind in counted(report, "retries")} <= PASS_BY_THEMSELVES
    assert all("Reached maximum number of instances" in error for error in said(report))
    assert stage["operations"]["launch"]["error"] == GROUPS
    assert everything(lxd) == before


def test_an_image_that_somebody_removes_meanwhile(lxd: LxdLab, proxy: LxdProxy, tmp_path: Path) -> None:
    # given a run that has reached its first stage, and is about to make what its second wants
    before = everything(lxd)
    hold = Hold()
    proxy.add("POST", CREATES, hold, skip=1)
    stages = [*only_a_stage(1, "500ms"), *only_a_stage(3, "500ms")]
    plan = spawn_plan(tmp_path, stages=stages, thresholds=NONE_FAIL)
    process = start_at(proxy, "run", plan, "--out", tmp_path / "runs")
    with going(process):
        until(hold.met.is_set, "a second container is being made")
        # when its image is removed
        (image,) = set(everything(lxd)["images"]) - set(before["images"])
        lxd.lxc("image", "delete", image)
        hold.released.set()
        done = ended(process)
    # then what was there stays there, and the rest is given up
    assert done.returncode == 1, done.stdout + done.stderr
    report = report_of(only_run(tmp_path / "runs").directory)
    assert [stage["held"] for stage in report["stages"]] == [1, 1]
    assert counted(report, "gave_up") == {("create", "image"): 2}
    assert everything(lxd) == before


def test_a_full_storage_pool_is_told(lxd: LxdLab, tmp_path: Path) -> None:
    before = everything(lxd)
    with lxd.full_pool() as pool:
        plan = spawn_plan(tmp_path, target={"pool": pool}, stages=only_a_stage(2, "500ms"))
        done = run_at(lxd, "run", plan, "--out", tmp_path / "runs", "--json")
    report = json.loads(done.stdout)
    assert counted(report, "gave_up") == {("create", "full"): 2}
    assert all("run out of disk space" in error for error in said(report))
    assert report["stages"][0]["held"] == 0
    assert done.returncode == report["verdict"]["exit_code"] == 3
    assert everything(lxd) == before


def test_connections_that_break_and_answers_that_are_none(
    lxd: LxdLab, proxy: LxdProxy, tmp_path: Path
) -> None:
    # given a way to LXD on which answers are lost, among them of what was done all the same, or are garbage
    before = everything(lxd)
    proxy.add("POST", CREATES, Cut(after=True), times=1)
    proxy.add("PUT", STARTS, Garble(b"\xff\x00 no JSON"), times=2)
    proxy.add("GET", LISTS, Garble(b"<html>Bad gateway</html>", 502), skip=3, times=1)
    proxy.add("GET", LISTS, Garble(b'{"type": "sync", "metadata": [1, {}]}'), skip=5, times=1)
    proxy.add(
        "GET", LISTS, Garble(b'{"type": "sync", "metadata": [' + b" " * LARGEST_ANSWER), skip=7, times=1
    )
    proxy.add("GET", MEMBERS, Garble(b'{"type": "sync", "metadata": {"a": "b"}}'), skip=4, times=1)
    plan = spawn_plan(tmp_path, stages=only_a_stage(EACH, "3s", GROUPS), workload=OFTEN)
    socket = f"target.socket={proxy.socket}"
    done = ended(start("run", plan, "--set", socket, "--out", tmp_path / "runs", "--json"))
    # then each thing is there once, and what went wrong is counted
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    (stage,) = report["stages"]
    assert stage["held"] == ALL
    assert (report["gave_up"], report["repaired"]) == ([], 0)
    assert stage["operations"]["create"]["error"] >= 1
    assert stage["operations"]["start"]["error"] >= 2
    assert stage["operations"]["poll"]["error"] >= 4
    told = {error["message"].partition(":")[0] for error in report["events"]["errors"]}
    assert {f"an invalid list of {what}" for what in ("instances", "members")} <= told
    assert all(worker["status"] == "complete" for worker in report["run"]["workers"])
    assert everything(lxd) == before


class Distrusting:
    """The members of a lab for a plan's faults. To go on with any of them ends the trust in a client instead: a hold
    lasts at least until its faults are played, however slow the machine is."""

    def __init__(self, lab: LxdLab, client: str) -> None:
        self.names, self.members, self.places = lab.names, lab.members, lab.places
        self.kill, self.stop, self.start = lab.kill, lab.stop, lab.start
        self._lab = lab
        self._client = client

    def resume(self, name: str) -> None:
        self._lab.lxc("config", "trust", "remove", self._client)


def test_who_is_no_longer_trusted_ends_with_a_report_and_cleans_up_once_he_is_again(
    lxd: LxdLab, tmp_path: Path
) -> None:
    # given a run with a certificate of its own
    before = everything(lxd)
    known = yaml.safe_load(lxd.credentials.read_text())
    client, file = make_client_certificate(), tmp_path / "mine"
    write_credentials(file, known["addresses"], known["certificate"], client)
    (tmp_path / "mine.crt").write_text(client.certificate)
    lxd.lxc("config", "trust", "add", str(tmp_path / "mine.crt"))
    (ours,) = set(everything(lxd)["trust"]) - set(before["trust"])
    plan = spawn_plan(
        tmp_path,
        stages=[*only_a_stage(2, "5s"), *only_a_stage(3, "500ms")],
        workload={"timeout": "10s"},
        thresholds=NONE_FAIL,
        lab=str(tmp_path / "lab.sock"),
        # when that is trusted no more from its first hold on
        faults=[{"do": "continue", "member": "m1", "stage": 1, "at": "0s"}],
    )
    with ControlServer(Distrusting(lxd, ours), tmp_path / "lab.sock"):
        settings = ("--set", f"target.credentials={file}")
        done = ended(start("run", plan, *settings, "--out", tmp_path / "runs"))
    measured = only_run(tmp_path / "runs")
    directory = measured.directory
    first, second = measured.stages
    (fault,) = named(directory, "fault")
    assert first.begin < fault["t"] < second.begin
    # then the run ends with a report that says so, and what to do about what is left
    report = report_of(directory)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "1 of the 3 containers of stage 2 was missing while it was held" in done.stdout
    assert (directory / "report.html").exists()
    assert f"tippingpoint clean {directory}" in done.stderr
    assert any("not authorized" in str(event.get("error", "")) for event in named(directory, "error"))
    assert report["stages"][0]["held"] == 2
    assert containers(lxd).keys() == goal(prefix_of(directory), 1, 2)
    refused = run("clean", directory)
    assert refused.returncode == 3
    *said_meanwhile, why = refused.stderr.splitlines()  # a clean that takes its time says what it is at
    assert "does not trust the client certificate" in why
    assert all(line.startswith("tippingpoint: removing the projects") for line in said_meanwhile)
    # and once it is trusted again all of it can be removed
    lxd.lxc("config", "trust", "add", str(tmp_path / "mine.crt"))
    assert run("clean", directory).stdout == "removed 4\n"
    lxd.lxc("config", "trust", "remove", ours)
    assert everything(lxd) == before


# Members that die


def eviction(scene: Scene) -> None:
    # given a plan that kills a member while its first stage is held, then wants more, and then all members back
    lab, out = scene.lab, scene.directory / "runs"
    groups, each = 3, 2
    plan = spawn_plan(
        scene.directory,
        target=IN_TURN,
        workload={"evict": True, "offline_polls": STEADILY},
        stages=[
            {"groups": groups, "instances": each, "hold": "2s"},
            {"groups": groups, "instances": 3, "hold": EVICTED_WITHIN},
            {"groups": groups, "instances": 4, "members": 3, "hold": LONG_HOLD},
        ],
        faults=[{"do": "kill", "member": "m3", "stage": 1, "at": "500ms"}],
        workers=1,
    )
    await_online(lab)
    with going(scene.start("run", plan, "--out", out)) as process:
        # when it is run
        directory = wait_for_hold(out, process, stage=2, workers=1)
        # then in the second stage all is there, on the members that are left: its hold may begin before that, as what
        # is on a member counts until it was offline for so many polls
        prefix = prefix_of(directory)
        eventually(lambda: "m3" not in containers(lab, prefix).values(), "nothing is on m3")
        eventually(
            lambda: containers(lab, prefix).keys() == goal(prefix, groups, 3), "what was on it is elsewhere"
        )
        without = set(containers(lab, prefix).values())
        # and in the third the member that joined blank has its share
        wait_for_hold(out, process, stage=3, workers=1)
        eventually(lambda: running(lab) == goal(prefix, groups, 4), "all of it runs")
        there = containers(lab)
        assert there.keys() == goal(prefix, groups, 4)
        process.send_signal(signal.SIGINT)
        ended(process)
    # and the report says what was lost with it, and what became of it
    report = report_of(directory)
    # (a living member is offline for a moment when its heartbeat is late, and is given nothing then)
    assert without == {"m1", "m2"} or not always_online(report, "m1", "m2")
    since_it_joined = changes(report, "m3")[changes(report, "m3").index("joined") :]
    assert sum(member == "m3" for member in there.values()) == groups or "offline" in since_it_joined
    lost = {member["name"]: member["lost"] for member in report["members"]}
    assert (lost["m1"], lost["m2"]) == (0, 0)
    assert report["repaired"] == lost["m3"] >= 2
    assert [was for was in changes(report, "m3") if was != "offline"] == [
        "online",
        "lost",
        "evicted",
        "joined",
    ]
    assert named(directory, "fault-failed") == []
    fill, *later = [stage["held"] for stage in report["stages"]]
    assert later == [groups * 3, groups * 4]
    # (the first stage lasts until LXD has said what room there is without the dead one)
    assert fill in (groups * each, groups * each - lost["m3"])
    assert sum(stage["operations"].get("evict", {}).get("ok", 0) for stage in report["stages"]) == 1


def coming_back(scene: Scene) -> None:
    # given what a run left that was killed, and a run that holds its stage
    lab = scene.lab
    plan = spawn_plan(scene.directory, target=IN_TURN, stages=only_a_stage(3, LONG_HOLD))
    await_online(lab)
    with going(scene.start("run", plan, "--out", scene.directory / "killed")) as process:
        killed = wait_for_hold(scene.directory / "killed", process, workers=1)
        crash(process)
    left = Counter(containers(lab, prefix_of(killed)).values())
    out = scene.directory / "runs"
    stages = only_a_stage(EACH, LONG_HOLD, GROUPS)
    plan = spawn_plan(scene.directory, target=IN_TURN, workload={"offline_polls": STEADILY}, stages=stages)
    await_online(lab)
    with going(scene.start("run", plan, "--out", out)) as process:
        directory = wait_for_hold(out, process)
        prefix = prefix_of(directory)
        placed = containers(lab, prefix)
        # (one that was offline for a moment has nothing of one of them)
        name = max(left.keys() & set(placed.values()))
        on_it = sum(member == name for member in placed.values())
        # when a member dies that has something of both
        lab.kill(name)
        # then what was on it is counted lost, once it was offline for several polls
        wait_for(out, process, "member", 2, member=name, status="lost")
        assert total(directory, "lost", member=name) == on_it
        # and what the other has on it cannot be cleaned up meanwhile
        refused = scene.clean(killed)
        assert refused.returncode == 3, refused.stderr
        kept = f"{name} is offline with {left[name]} of this run's containers"
        assert kept in refused.stderr.splitlines()[-1]
        # when it comes back
        lab.start(name)
        # then what was on it is started again, where it is, and there is nothing twice
        until(lambda: total(directory, "repaired") == on_it, "what was lost is back")
        assert containers(lab, prefix) == placed
        assert placed.keys() == goal(prefix)
        eventually(lambda: running(lab, prefix) == placed.keys(), "all of it runs again")
        # and what could not be cleaned up can be now
        cleaned = scene.clean(killed)
        assert cleaned.returncode == 0, cleaned.stderr
        process.send_signal(signal.SIGINT)
        ended(process)
    report = report_of(directory)
    assert {member["name"]: member["lost"] for member in report["members"]} == {
        **dict.fromkeys(lab.pids, 0),
        name: on_it,
    }
    assert [was for was in changes(report, name) if was != "offline"] == ["online", "lost", "back"]
    assert scene.clean(killed).stdout == "removed 0\n"


def no_quorum(scene: Scene) -> None:
    # given a run that holds its stage, and would evict who is gone
    lab, out = scene.lab, scene.directory / "runs"
    # (what runs into the timeout more often than three times is not what this is about)
    retries = {"timeout": 20}
    workload = {"evict": True, "offline_polls": STEADILY, "timeout": "5s", "retries": retries}
    stages = only_a_stage(EACH, LONG_HOLD, GROUPS)
    plan = spawn_plan(scene.directory, target=IN_TURN, workload=workload, stages=stages)
    with going(scene.start("run", plan, "--out", out)) as process:
        directory = wait_for_hold(out, process)
        # (where things are slower than the timeout, the hold begins without them)
        eventually(lambda: running(lab) == goal(prefix_of(directory)), "all of it runs")
        placed = containers(lab)
        # when all members but one die
        others = [name for name in ("m1", "m2", "m3") if name != lab.leader()]
        for name in others:
            lab.kill(name)
        # then what is asked of it fails and is counted
        until(lambda: total(directory, "error", operation="poll") >= 4, "polls fail")
        # when they are back
        for name in others:
            lab.start(name)
        # then the run goes on: what died with them is started again, where it was
        eventually(lambda: running(lab) == placed.keys(), "all of it runs again")
        assert containers(lab) == placed
        process.send_signal(signal.SIGINT)
        ended(process)
    # and nobody was taken to be gone, although LXD shows all members offline when it has its quorum again
    assert named(directory, "member", status="lost") == named(directory, "lost") == []
    report = report_of(directory)
    polls = report["stages"][0]["operations"]["poll"]
    assert polls["error"] + polls["timeout"] >= 4
    assert report["gave_up"] == []
    assert "evict" not in report["operations"]
    assert (directory / "report.html").exists()


def total(directory: Path, name: str, **fields: Any) -> int:
    """The counts of such events, added up."""
    return sum(event["count"] for event in named(directory, name, **fields))


def changes(report: dict[str, Any], member: str) -> list[str]:
    """What became of a member."""
    (found,) = [each for each in report["members"] if each["name"] == member]
    return [change["status"] for change in found["changes"]]


def test_a_member_that_dies_is_evicted_and_has_its_share_when_it_joins_again(scene: Future[None]) -> None:
    scene.result()


def test_a_member_that_comes_back_has_its_containers_started_again(scene: Future[None]) -> None:
    scene.result()


def test_a_cluster_that_loses_its_quorum_loses_nothing_by_that(scene: Future[None]) -> None:
    scene.result()


SCENES: dict[str, Callable[[Scene], None]] = {
    "test_a_member_that_dies_is_evicted_and_has_its_share_when_it_joins_again": eviction,
    "test_a_member_that_comes_back_has_its_containers_started_again": coming_back,
    "test_a_cluster_that_loses_its_quorum_loses_nothing_by_that": no_quorum,
}
