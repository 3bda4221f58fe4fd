"""Whole runs on real LXD, through the command line: what they make, what they report, and what they leave: nothing."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from lab.lxd.access import make_client_certificate, write_credentials
from lab.lxd.cluster import LxdLab
from lab.lxd.proxy import Hold, LxdProxy
from tests.functional.lxd.lxd_runs import (
    EACH,
    GROUPS,
    OFTEN,
    PASS_BY_THEMSELVES,
    POLL_EVERY_S,
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
from tests.functional.program import no_traceback, only_run, run, start, until, write_plan
from tests.functional.spawn_runs import crash, ended, going, named, one_line
from tippingpoint.rundir.results import load_run
from tippingpoint.targets.lxd.plan import OBSERVATIONS

ALL = GROUPS * EACH
UNTIL_ENDED = "20m"
"""How long is held what is looked at meanwhile, and what the test ends."""


def token_file(lab: LxdLab, directory: Path) -> Path:
    file = directory / "token"
    file.touch(0o600)
    file.write_text(lab.token())
    return file


def test_a_run_fills_observes_reports_and_leaves_nothing(lxd: LxdLab, tmp_path: Path) -> None:
    # given a cluster of three, and a plan that fills it, reaches and probes what it made, and then has less
    before = everything(lxd)
    await_online(lxd)
    groups = 3
    made = groups * EACH
    plan = spawn_plan(
        tmp_path,
        workload={"until": "probed", "observe_every": "1s"},
        stages=[*only_a_stage(EACH, "2500ms", groups), *only_a_stage(1, "1s", groups)],
        thresholds=[{"operation": "launch", "p99": "10m", "error_rate": 0}],
        target={"placement": "round-robin"},
        workers=1,
    )
    # when it is run
    done = run_at(lxd, "run", plan, "--out", tmp_path / "runs", "--json")
    # then all of it was made, and what users ask for was timed
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    fill, less = report["stages"]
    assert report["verdict"]["outcome"] == "met"
    assert (fill["held"], less["kind"]) == (made, "destroy")
    retries = counted(report, "retries")
    assert {kind for _, kind in retries} <= PASS_BY_THEMSELVES
    for operation in ("create", "start", "reachable", "probe", "launch"):
        again = sum(count for (of, _), count in retries.items() if of == operation)
        assert fill["operations"][operation]["ok"] == made
        assert fill["operations"][operation]["attempts"] == made + again
    assert less["operations"]["delete"]["ok"] == made - groups
    assert {row["operation"] for row in report["timings"]["rows"]} == set(OBSERVATIONS)
    # and the report says where it was made, and how fast
    placed = {member["name"]: member["at_end"][0] for member in report["members"]}
    assert (placed.keys(), sum(placed.values())) == ({"m1", "m2", "m3"}, made)
    # (a living member is offline for a moment when its heartbeat is late)
    assert placed == {"m1": 2, "m2": 2, "m3": 2} or retries or not always_online(report)
    assert [member["name"] for member in report["members"] if member["led"]] == [lxd.leader()]
    assert report["fill"][0]["made"] == made
    assert (report["gave_up"], report["repaired"]) == ([], 0)
    # and nothing is left of it
    image = 1
    (cleaned,) = named(only_run(tmp_path / "runs").directory, "cleaned")
    assert cleaned["removed"] == groups + groups + image
    assert everything(lxd) == before
    assert run("clean", only_run(tmp_path / "runs").directory).stdout == "removed 0\n"


def test_one_list_a_group_and_poll_and_none_of_single_containers(lxd: LxdLab, tmp_path: Path) -> None:
    # given a run of two workers that is held, all of whose calls are counted
    with LxdProxy(lxd) as proxy:
        plan = spawn_plan(tmp_path, stages=only_a_stage(EACH, "3s", GROUPS), workload=OFTEN)
        done = run_at(proxy, "run", plan, "--out", tmp_path / "runs")
        assert done.returncode == 0, done.stdout + done.stderr
        measured = only_run(tmp_path / "runs")
        # then each poll is one call, of a group or of the members, however many containers there are
        lists = {
            group: proxy.count(
                "GET", rf"^/1\.0/instances\?.*project={prefix_of(measured.directory)}-{group:03d}"
            )
            for group in range(GROUPS)
        }
        members = proxy.count("GET", r"^/1\.0/cluster/members\?")
        for_clean_and_room = 4
        polls = sum(stage.attempts("poll") for stage in measured.stages)
        assert min(lists.values()) > 0
        assert sum(lists.values()) + members <= polls + GROUPS * for_clean_and_room + for_clean_and_room
        (stage,) = measured.stages
        assert stage.end is not None
        ticks = (stage.end - stage.begin) / POLL_EVERY_S + 1
        assert max(lists.values()) <= ticks + for_clean_and_room
        # and no container is asked after singly, no operation twice
        counts = proxy.counts()
        assert [
            path for method, path in counts if method == "GET" and path.startswith("/1.0/instances/")
        ] == []
        assert ("GET", "/1.0/operations/*") not in counts
        changes = sum(count for (method, _), count in counts.items() if method != "GET")
        assert 2 * ALL <= counts["GET", "/1.0/operations/*/wait"] <= changes
        assert counts["POST", "/1.0/instances"] == ALL


def test_a_run_with_a_token_is_let_in_beside_another_and_both_leave_nothing(
    lxd: LxdLab, tmp_path: Path
) -> None:
    # given a run that goes on, with credentials of its own
    before = everything(lxd)
    outs = [tmp_path / "theirs", tmp_path / "ours"]
    theirs = start_at(lxd, "run", spawn_plan(tmp_path, stages=only_a_stage(2, "20m")), "--out", outs[0])
    with going(theirs):
        other = wait_for_hold(outs[0], theirs, workers=1)
        beside = everything(lxd)
        # when one that has a trust token is run beside it, and cleaned once more
        plan = spawn_plan(tmp_path, stages=only_a_stage(2, UNTIL_ENDED, groups=2))
        token = token_file(lxd, tmp_path)
        process = start("run", plan, "--set", f"target.token={token}", "--out", outs[1])
        with going(process):
            ours = wait_for_hold(outs[1], process)
            during = everything(lxd)
            files = {path: path.read_bytes() for path in ours.rglob("*") if path.is_file()}
            process.send_signal(signal.SIGINT)
            done = ended(process)
        assert done.returncode == 4, done.stdout + done.stderr
        assert load_run(ours).manifest.status == "interrupted"
        # then it was trusted meanwhile, and is no more; what the other has made is as it was
        assert len(during["trust"]) == len(before["trust"]) + 1
        assert everything(lxd) == beside
        assert run("clean", ours).stdout == "removed 0\n"
        assert everything(lxd) == beside
        theirs_is = prefix_of(other)
        eventually(lambda: running(lxd, theirs_is) == goal(theirs_is, 1, 2), "the other's are as they were")
        # and its key was in a file for its owner only, and neither key nor token anywhere else
        keys = [path for path, content in files.items() if b"PRIVATE KEY" in content]
        assert [path.name for path in keys] == ["client.key"]
        secret = token.read_text().encode()
        files |= {path: path.read_bytes() for path in ours.rglob("*") if path.is_file()}
        assert [path for path, content in files.items() if secret in content] == []
        assert list(ours.rglob("*.key")) == []
        # and the other cannot be cleaned up while it goes on, and ends in order
        assert "still running" in one_line(run("clean", other))
        assert "still running" in one_line(run("resume", other))
        theirs.send_signal(signal.SIGINT)
        ended(theirs)
    assert load_run(other).manifest.status == "interrupted"
    assert not holds_a_key(other)
    assert everything(lxd) == before


def holds_a_key(directory: Path) -> bool:
    """Whether any file of a run has a key or a certificate in it."""
    return any(b"-----BEGIN" in path.read_bytes() for path in directory.rglob("*") if path.is_file())


class TestKilledInMidSpawn:
    """The runner and its workers killed with -9, with some containers made, some being made, and some not."""

    groups = 3  # more than are made at once

    def crashed(self, proxy: LxdProxy, tmp_path: Path) -> Path:
        """The directory of such a run."""
        hold = Hold()  # two of four are made, and how the others end is not heard
        proxy.add("GET", r"^/1\.0/operations/.*/wait", hold, skip=2)
        out = tmp_path / "runs"
        plan = spawn_plan(tmp_path, stages=only_a_stage(EACH, UNTIL_ENDED, self.groups))
        process = start_at(proxy, "run", plan, "--out", out)
        with going(process):
            until(hold.met.is_set, "two containers were made")
            crash(process)
        proxy.clear()
        hold.released.set()
        (directory,) = out.iterdir()
        return directory

    def test_taken_up_again_it_reaches_its_goal_with_no_duplicate_and_no_orphan(
        self, lxd: LxdLab, tmp_path: Path
    ) -> None:
        before = everything(lxd)
        with LxdProxy(lxd) as proxy:
            cut = self.crashed(proxy, tmp_path)
            # when it is taken up
            out = tmp_path / "again"
            process = start("resume", cut, "--out", out)
            with going(process):
                directory = wait_for_hold(out, process)
                # then what was made is used, under the names it has, and the rest is made
                wanted = goal(prefix_of(cut), self.groups)
                assert containers(lxd).keys() == wanted
                eventually(lambda: running(lxd) == wanted, "all of it runs")
                process.send_signal(signal.SIGINT)
                done = ended(process)
            assert done.returncode == 4, done.stdout + done.stderr
            assert load_run(directory).manifest.status == "interrupted"
            report = report_of(directory)
            assert report["stages"][0]["held"] == len(wanted)
            assert 0 < report["stages"][0]["operations"]["create"]["ok"] < len(wanted)
            # and nothing is left, neither of the one nor of the other
            assert everything(lxd) == before
            assert run("clean", cut).stdout == "removed 0\n"
        assert load_run(cut).manifest.status == "cut"

    def test_taken_up_and_ended_before_it_found_anything_it_removes_what_was_made(
        self, lxd: LxdLab, tmp_path: Path
    ) -> None:
        before = everything(lxd)
        with LxdProxy(lxd) as proxy:
            cut = self.crashed(proxy, tmp_path)
            # given one that goes on with it, which LXD has not answered a word yet
            hold, out = Hold(), tmp_path / "again"
            proxy.add("GET", r"^/1\.0$", hold)
            process = start("resume", cut, "--out", out)
            with going(process):
                until(hold.met.is_set, "it asked LXD for a first word")
                # when it is ended
                process.send_signal(signal.SIGINT)
                (directory,) = out.iterdir()
                until(lambda: bool(named(directory, "interrupted")), "it heard of that")
                proxy.clear()
                hold.released.set()
                done = ended(process)
            # then nothing is left
            assert named(directory, "left-behind") == [], done.stderr
            assert everything(lxd) == before

    def test_cleaned_up_it_leaves_nothing(self, lxd: LxdLab, tmp_path: Path) -> None:
        before = everything(lxd)
        with LxdProxy(lxd) as proxy:
            cut = self.crashed(proxy, tmp_path)
            done = run("clean", cut)
            assert re.fullmatch(r"removed ([5-9]|1[0-9])\n", done.stdout), done.stderr
            assert everything(lxd) == before
            assert run("clean", cut).stdout == "removed 0\n"


def test_interrupted_in_mid_fill_it_reports_and_leaves_nothing(lxd: LxdLab, tmp_path: Path) -> None:
    # given a run that waits for some of its containers to be made
    before = everything(lxd)
    hold = Hold()
    with LxdProxy(lxd) as proxy:
        proxy.add("POST", r"^/1\.0/instances\?", hold, skip=2)
        process = start_at(proxy, "run", spawn_plan(tmp_path), "--out", tmp_path / "runs")
        with going(process):
            until(hold.met.is_set, "a third container is being made")
            # when it is interrupted
            process.send_signal(signal.SIGINT)
            hold.released.set()
            done = ended(process)
    # then it ends in order, with a report
    measured = only_run(tmp_path / "runs")
    assert done.returncode == 4, done.stdout + done.stderr
    assert measured.manifest.status == "interrupted"
    assert (measured.directory / "report.html").exists()
    assert {worker.status for worker in measured.manifest.workers} == {"complete"}
    assert everything(lxd) == before


class TestOneServer:
    """An LXD that is no cluster."""

    def test_by_its_socket(self, lxd_single: LxdLab, tmp_path: Path) -> None:
        before = everything(lxd_single)
        plan = spawn_plan(tmp_path, stages=only_a_stage(3, "1s"), workload={"observe_every": "500ms"})
        socket = f"target.socket={lxd_single.unix_socket()}"
        done = run("run", plan, "--set", socket, "--out", tmp_path / "runs", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert no_traceback(done.stdout, done.stderr)
        report = json.loads(done.stdout)
        assert report["stages"][0]["held"] == 3
        assert len(report["members"]) == 1
        assert report["members"][0]["at_end"] == [3]
        assert everything(lxd_single) == before

    def test_by_the_name_that_the_lxc_client_has_for_it_and_by_force(
        self, lxd_single: LxdLab, tmp_path: Path
    ) -> None:
        # given a plan of more than there is room for
        before = everything(lxd_single)
        store = {"LXD_CONF": str(lxd_single.remote_directory())}
        plan = spawn_plan(tmp_path, stages=only_a_stage(1, "500ms"), workload={"memory": 1 << 20})
        command = ("run", plan, "--remote", "lab", "--out", tmp_path / "runs")
        refused = ended(start(*command, **store))
        assert refused.returncode == 2
        assert "1 more container: expected at most 0 more" in one_line(refused)
        # when it is tried by force
        done = ended(start(*command, "--force", **store))
        assert done.returncode == 0, done.stdout + done.stderr
        assert only_run(tmp_path / "runs").stages[0].gauges["held"] == 1
        assert not holds_a_key(only_run(tmp_path / "runs").directory)
        assert everything(lxd_single) == before


class TestRoom:
    """A plan's demand is held against what the members report before anything is made."""

    HUGE = "workload.memory=1000000"

    def test_what_does_not_fit_is_refused_with_the_number_that_does(
        self, lxd: LxdLab, tmp_path: Path
    ) -> None:
        with LxdProxy(lxd) as proxy:
            done = run_at(proxy, "run", spawn_plan(tmp_path), "--set", self.HUGE, "--out", tmp_path / "runs")
            assert done.returncode == 2
            assert re.fullmatch(
                rf"tippingpoint: stages\.0\.instances: {ALL} more containers: expected at most 0 more, for which the "
                r"members have enough memory; --force skips this check",
                one_line(done),
            )
            assert {method for method, _ in proxy.counts()} == {"GET"}
        assert list(tmp_path.glob("runs/*")) == []

    def test_a_later_stage_that_does_not_fit_is_not_begun(self, lxd: LxdLab, tmp_path: Path) -> None:
        before = everything(lxd)
        stages = [*only_a_stage(1, "500ms"), *only_a_stage(1_000_000, "500ms")]
        done = run_at(lxd, "run", spawn_plan(tmp_path, stages=stages), "--out", tmp_path / "runs")
        assert done.returncode == 4, done.stdout + done.stderr
        measured = only_run(tmp_path / "runs")
        assert measured.manifest.status == "cut"
        assert re.match(
            r"stage 2 was not begun: stages\.1\.instances: 999,999 more containers: expected at most [1-9][0-9,]* ",
            measured.manifest.reason,
        )
        assert [stage.gauges["held"] for stage in measured.stages] == [1]
        assert everything(lxd) == before


# What is refused


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["target.project={limits.foo: 2}"], "target.project: limits.foo: 2: expected "),
        (["target.image=jammy"], "target.image: jammy: expected an alias or fingerprint on the server"),
        (["target.pool=fast"], "target.pool: fast: expected one of default"),
        (["target.network=wide"], "target.network: wide: expected one of lxdbr0"),
        (["stages.0.instances=-1"], "stages.0.instances: -1: expected "),
        (["stages.0.groups=-1"], "stages.0.groups: -1: expected "),
        (["stages.0.members=4"], "stages.0.members: 4: expected at most 3, the number that are online"),
    ],
)
def test_what_lxd_cannot_do_is_refused_in_one_line(
    lxd: LxdLab, tmp_path: Path, settings: list[str], line: str
) -> None:
    before = everything(lxd)
    sets = [part for setting in settings for part in ("--set", setting)]
    credentials = f"target.credentials={lxd.credentials}"
    plan = spawn_plan(tmp_path)
    done = run("run", plan, "--set", credentials, *sets, "--out", tmp_path / "runs")
    assert done.returncode == 2, done.stderr
    assert one_line(done).startswith(f"tippingpoint: {line}")
    assert list(tmp_path.glob("runs/*")) == []
    assert everything(lxd) == before


def test_remotes_that_are_not_ours_are_refused(lxd: LxdLab, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(lxd.remote_directory(), store)
    config = yaml.safe_load((store / "config.yml").read_text())
    config["remotes"]["theirs"] = {"addr": "https://127.0.0.1:9", "protocol": "simplestreams", "public": True}
    (store / "config.yml").write_text(yaml.safe_dump(config))
    for name, told in {
        "nowhere": r"tippingpoint: target\.remote: nowhere: expected one of lab, .*",
        "theirs": r"tippingpoint: target\.remote: theirs: expected a remote that runs containers.*image server",
    }.items():
        plan = spawn_plan(tmp_path)
        out = tmp_path / "runs"
        done = ended(start("run", plan, "--remote", name, "--out", out, LXD_CONF=str(store)))
        assert done.returncode == 2
        assert re.fullmatch(told, one_line(done)), done.stderr
        assert list(out.glob("*")) == []
    done = run("run", write_plan(tmp_path), "--remote", "lab")
    assert done.returncode == 2
    assert one_line(done).startswith("tippingpoint: --remote: lab: expected a plan whose target is lxd")


def test_certificates_that_do_not_let_us_in(lxd: LxdLab, tmp_path: Path) -> None:
    before = everything(lxd)
    known = yaml.safe_load(lxd.credentials.read_text())
    ended_at = datetime.datetime(2020, 2, 1, tzinfo=datetime.UTC)
    for name, ends, code, told in (
        (
            "expired",
            ended_at,
            2,
            "expected a valid certificate: this one expired on 2020-02-01 00:00 UTC",
        ),
        (
            "stranger",
            None,
            3,
            "it does not trust the client certificate: expected one that is in `lxc config trust list`",
        ),
    ):
        file = tmp_path / f"{name}.yaml"
        write_credentials(file, known["addresses"], known["certificate"], make_client_certificate(ends))
        plan = spawn_plan(tmp_path)
        done = run("run", plan, "--set", f"target.credentials={file}", "--out", tmp_path / name / "runs")
        assert done.returncode == code, done.stderr
        assert told in one_line(done)
    assert everything(lxd) == before


@pytest.mark.parametrize(
    ("mode", "text", "line"),
    [
        (0o644, "e30=", r"target\.token: .*/token: expected .*0600"),
        (0o600, "not a token at all", r"target\.token: \(not shown\): expected a trust token, .*base64.*"),
    ],
)
def test_tokens_that_are_none_are_refused(tmp_path: Path, mode: int, text: str, line: str) -> None:
    token = tmp_path / "token"
    token.write_text(text)
    token.chmod(mode)
    done = run("run", spawn_plan(tmp_path), "--set", f"target.token={token}", "--out", tmp_path / "runs")
    assert done.returncode == 2
    assert re.match(f"tippingpoint: {line}", one_line(done)), done.stderr
    assert list(tmp_path.glob("runs/*")) == []


def test_only_a_run_that_left_something_on_lxd_is_taken_up(tmp_path: Path) -> None:
    # given a run of the claim workload, of a log
    out, log = tmp_path / "runs", tmp_path / "claims.log"
    log.write_text(" 93.596s extended a0702/0 held for 1m30s in 47ms\n")
    done = run("import", log, "--stage", "1@1", "--out", out)
    assert done.returncode == 0, done.stderr
    (directory,) = out.iterdir()
    # when it is to be taken up
    refused = run("resume", directory, "--out", out)
    # then that is refused
    assert refused.returncode == 2
    assert "expected a search (find) or a run of the workload spawn" in one_line(refused)
    assert run("resume", tmp_path, "--out", out).returncode == 2
    assert [*out.iterdir()] == [directory]
