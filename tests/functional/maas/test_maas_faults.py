"""What goes wrong in a MAAS while a run goes on: it is counted by its cause, survived, and nothing is left."""

from __future__ import annotations

import http.server
import json
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lab.certificates import make_certificates
from lab.maas.region import Timings
from lab.maas.simulator import MaasLab
from tests.functional.maas.maas_runs import REDFISH, counts, errors, plan_of, run_at, start_at
from tests.functional.maas.region_client import Region
from tests.functional.program import execute, no_traceback, only_run, run, start, until, workers_of
from tests.functional.spawn_runs import crash, ended, going, named, one_line, wait_for

T = TypeVar("T")
_LONG_HOLD = "1h"
_MACHINES = 6
QUICK = Timings(0.2, 0.2, 0.2, 0.2, 0.5)


@pytest.fixture
def lab() -> Iterator[MaasLab]:
    with MaasLab(machines=3, racks=2, timings=QUICK) as lab:
        yield lab


def held(directory: Path, least: int = 1) -> bool:
    """Whether so many machines were as wanted at some moment."""
    return any(tick["held"] >= least for tick in named(directory, "tick"))


def tell(lab: MaasLab, password: str = "", **changed: Any) -> None:
    """Change the lab's file of credentials."""
    known = json.loads(lab.credentials.read_text())
    power = {"power": {"power_pass": password}} if password else {}
    lab.credentials.write_text(json.dumps({**known, **power, **changed}))


# While machines are made


def test_machines_wait_for_a_rack_controller(lab: MaasLab, tmp_path: Path) -> None:
    """Given no rack controller when machines are to be commissioned, and so no image that they could boot, then that is
    tried again until one is back."""
    before = lab.counts()
    for rack in ("rack-1", "rack-2"):
        lab.kill(rack)
    with going(start_at(lab, plan_of(tmp_path), tmp_path / "runs")) as process:
        wait_for(tmp_path / "runs", process, "retry", operation="commission", kind="unreachable")
        lab.start("rack-2")
        done = ended(process)
    result = only_run(tmp_path / "runs")
    assert result.manifest.status == "complete", done.stderr
    assert counts(result)["launch.ok"] == _MACHINES
    assert errors(result, "commission") == {
        "POST machines/ID/ commission: Ephemeral operating system ubuntu jammy is unavailable. (HTTP 400)"
    }
    assert not named(result.directory, "gave-up")
    assert lab.counts() == before


def test_a_slow_database_is_in_every_operation(lab: MaasLab, tmp_path: Path) -> None:
    """Given a region whose answers are 300 ms late, then each operation took at least that, and nothing failed."""
    before = lab.counts()
    lab.slow("region", 0.3)
    plan = plan_of(tmp_path, workload={"until": "created", "observe_every": "1s"}, stages=[{"instances": 2}])
    done = run_at(lab, plan, tmp_path / "runs", "--set", "stages.0.hold=3s")
    result = only_run(tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    for operation in ("enlist", "machine-list", "tag-list"):
        assert result.stages[0].response(operation).min >= 300_000, operation
    assert counts(result)["enlist.ok"] == 2
    lab.slow("region", 0.0)
    assert lab.counts() == before


def test_a_boot_that_never_comes_is_a_timeout_that_is_tried_again(lab: MaasLab, tmp_path: Path) -> None:
    """Given machines that never boot, then commissioning fails in MAAS's words, until they do."""
    before = lab.counts()
    lab.ask({"do": "boots", "lost": 1.0})
    plan = plan_of(tmp_path, workload={"retries": {"timeout": 100}})
    with going(start_at(lab, plan, tmp_path / "runs")) as process:
        wait_for(tmp_path / "runs", process, "retry", operation="commission", kind="timeout")
        lab.ask({"do": "boots", "lost": 0.0})
        done = ended(process)
    result = only_run(tmp_path / "runs")
    assert result.manifest.status == "complete", done.stderr
    assert counts(result)["launch.ok"] == _MACHINES
    assert counts(result)["commission.error"] >= 1
    assert all(said.startswith("Failed commissioning: ") for said in errors(result, "commission"))
    assert any("timed out after" in said for said in errors(result, "commission"))
    assert lab.counts() == before


def test_a_boot_that_never_comes_is_given_up_after_its_retries(lab: MaasLab, tmp_path: Path) -> None:
    before = lab.counts()
    lab.ask({"do": "boots", "lost": 1.0})
    plan = plan_of(tmp_path, workload={"retries": {"timeout": 1}})
    done = run_at(lab, plan, tmp_path / "runs")
    result = only_run(tmp_path / "runs")
    assert result.manifest.status == "complete", done.stderr
    assert counts(result)["launch.error"] == _MACHINES
    assert counts(result)["commission.error"] == 2 * _MACHINES
    assert sum(event["count"] for event in named(result.directory, "gave-up", kind="timeout")) == _MACHINES
    assert lab.counts() == before


@pytest.mark.parametrize("state", ["silent", "failing"])
def test_power_that_does_not_answer_is_counted_and_tried_again(
    lab: MaasLab, tmp_path: Path, state: str
) -> None:
    before = lab.counts()
    tell(lab, "hush")
    lab.ask({"do": "power", "state": state})
    plan = plan_of(tmp_path, target={"made": REDFISH}, workload={"retries": {"timeout": 100, "other": 100}})
    with going(start_at(lab, plan, tmp_path / "runs")) as process:
        wait_for(tmp_path / "runs", process, "retry", operation="commission")
        lab.ask({"do": "power", "state": "normal"})
        done = ended(process)
    result = only_run(tmp_path / "runs")
    assert result.manifest.status == "complete", done.stderr
    assert counts(result)["launch.ok"] == _MACHINES
    assert any(
        said.startswith("Failed commissioning: Failed to power on node")
        for said in errors(result, "commission")
    )
    assert lab.counts() == before


def test_deployed_machines_are_switched_and_a_silent_controller_is_survived(
    lab: MaasLab, tmp_path: Path
) -> None:
    """Given machines that are deployed and then switched off and on, when their power does not answer for a while, then
    all are switched in the end, and released before they are removed."""
    before = lab.counts()
    tell(lab, "hush")
    plan = plan_of(
        tmp_path,
        target={"made": REDFISH},
        workload={"until": "switched", "retries": {"timeout": 100, "other": 100}},
        stages=[{"instances": 12, "hold": "1s"}, {"instances": 0, "hold": "1s"}],
    )
    with going(start_at(lab, plan, tmp_path / "runs", "--set", "workload.concurrency=2")) as process:
        directory = wait_for(tmp_path / "runs", process, "tick")
        until(lambda: held(directory), "a first machine")
        lab.ask({"do": "power", "state": "silent"})
        wait_for(tmp_path / "runs", process, "retry")
        lab.ask({"do": "power", "state": "normal"})
        done = ended(process)
    result = only_run(tmp_path / "runs")
    assert result.manifest.status == "complete", done.stderr
    made = counts(result)
    assert {name: made[f"{name}.ok"] for name in ("power-off", "power-on", "launch")} == {
        "power-off": 12,
        "power-on": 12,
        "launch": 12,
    }
    removed = counts(result, 2)
    assert (removed["release.ok"], removed["remove.ok"]) == (12, 12)
    assert lab.counts() == before


def on_region(lab: MaasLab, act: Callable[[Region], Any]) -> Any:
    """What an administrator does at the region, beside the run."""
    import asyncio

    async def work() -> Any:
        async with Region(lab) as region:
            return await act(region)

    return asyncio.run(work())


@pytest.fixture
def hosts() -> Iterator[MaasLab]:
    """A lab with two VM hosts, host-1 and host-2."""
    with MaasLab(timings=QUICK, hosts=2) as lab:
        yield lab


@pytest.mark.parametrize(("state", "kind"), [("full", "full"), ("unreachable", "unreachable")])
def test_machines_go_to_the_next_vm_host_and_leave_both(
    hosts: MaasLab, tmp_path: Path, state: str, kind: str
) -> None:
    """Given a VM host that takes nothing, then its machines are composed on the other, and the failures are counted."""
    hosts.ask({"do": "vm-host", "name": "host-1", "state": state})
    before = hosts.counts()
    plan = plan_of(tmp_path, target={"made": {"kind": "composed"}}, workload={"retries": {"full": 10}})
    done = run_at(hosts, plan, tmp_path / "runs", "--force")
    result = only_run(tmp_path / "runs")
    assert result.manifest.status == "complete", done.stderr
    assert counts(result)["launch.ok"] == _MACHINES
    assert counts(result)["enlist.error"] >= 1
    assert named(result.directory, "retry", operation="enlist", kind=kind)
    assert hosts.counts() == before


def test_a_stage_for_which_vm_hosts_have_no_room_is_refused(hosts: MaasLab, tmp_path: Path) -> None:
    """Given hosts of 64 cores, then a plan of more is refused before anything is made."""
    before = hosts.counts()
    size = {"large": {"count": 50, "cpu": 16, "memory": "1GiB"}}
    plan = plan_of(
        tmp_path, target={"made": {"kind": "composed"}, "machines": size}, stages=[{"instances": 9}]
    )
    done = run_at(hosts, plan, tmp_path / "runs")
    assert done.returncode == 2
    assert "stages.0.instances: 9 more machines: expected at most 8 more, by cores of VM hosts" in done.stderr
    assert hosts.counts() == before


def test_a_region_that_is_killed_and_back_has_all_machines_in_the_end(lab: MaasLab, tmp_path: Path) -> None:
    before = lab.counts()
    # (two at a time, so that many are still to be made once a first one was seen)
    workload = {"until": "probed", "concurrency": 2}
    plan = plan_of(tmp_path, workload=workload, stages=[{"instances": 20, "hold": "2s"}])
    with going(start_at(lab, plan, tmp_path / "runs")) as process:
        directory = wait_for(tmp_path / "runs", process, "tick")
        until(lambda: held(directory), "a first machine")
        lab.kill("region")
        wait_for(tmp_path / "runs", process, "error", 3, operation="poll")
        lab.start("region")
        done = ended(process)
    result = only_run(tmp_path / "runs")
    assert result.manifest.status == "complete", done.stderr
    assert counts(result)["launch.ok"] == 20
    assert not named(result.directory, "gave-up")
    assert lab.counts() == before


def test_a_key_that_is_revoked_in_mid_run_is_told_and_what_was_made_goes_later(
    lab: MaasLab, tmp_path: Path
) -> None:
    """Given a key that is refused from some moment, then machines are given up by that cause, and the removal fails in
    one line; with the key it succeeds."""
    before = lab.counts()
    plan = plan_of(tmp_path, workload={"concurrency": 2}, stages=[{"instances": 400, "hold": "1s"}])
    with going(start_at(lab, plan, tmp_path / "runs")) as process:
        directory = wait_for(tmp_path / "runs", process, "tick")
        until(lambda: held(directory), "a first machine")
        lab.ask({"do": "revoke-keys"})
        done = ended(process)
    assert done.returncode == 4, done.stderr  # something is left behind
    assert named(directory, "gave-up", kind="trust")
    assert any("HTTP 401" in said for said in errors(only_run(tmp_path / "runs"), "enlist"))
    refused = run("clean", directory)
    assert refused.returncode == 3
    assert no_traceback(refused.stdout, refused.stderr)
    assert "Invalid API key" in refused.stderr.strip().splitlines()[-1]
    lab.ask({"do": "restore-keys"})
    cleaned = run("clean", directory)
    assert cleaned.returncode == 0, cleaned.stderr
    assert lab.counts() == before


# After a crash


def test_a_crashed_run_leaves_what_clean_removes_and_nothing_of_others(lab: MaasLab, tmp_path: Path) -> None:
    """Given a run with deployed machines and a tag, when it and its workers are killed, then `clean` removes its
    machines, pools and tag."""
    before = lab.counts()
    plan = plan_of(
        tmp_path,
        workload={"until": "probed", "observe_every": "500ms"},
        stages=[{"instances": 4, "hold": _LONG_HOLD}],
    )
    process = start_at(lab, plan, tmp_path / "runs")
    directory = wait_for(tmp_path / "runs", process, "stage", phase="hold", stage=1)
    until(lambda: lab.counts()["tags"] > before["tags"], "the run's tag")
    crash(process)
    assert lab.counts()["machines"] == before["machines"] + 4
    cleaned = run("clean", directory)
    assert cleaned.returncode == 0, cleaned.stderr
    assert lab.counts() == before


def test_a_crashed_run_is_resumed_with_what_it_made(lab: MaasLab, tmp_path: Path) -> None:
    before = lab.counts()
    plan = plan_of(tmp_path, workload={"until": "probed"}, stages=[{"instances": 4, "hold": _LONG_HOLD}])
    process = start_at(lab, plan, tmp_path / "runs")
    directory = wait_for(tmp_path / "runs", process, "stage", phase="hold", stage=1)
    crash(process)
    process = start("resume", directory, "--out", tmp_path / "resumed")
    with going(process):
        resumed = wait_for(tmp_path / "resumed", process, "stage", phase="hold", stage=1)
        assert lab.counts()["machines"] == before["machines"] + 4
        process.send_signal(signal.SIGINT)
        ended(process)
    assert only_run(tmp_path / "resumed").stages[0].attempts("enlist") == 0
    assert named(resumed, "cleaned")
    assert lab.counts() == before


def test_what_somebody_takes_away_is_lost_and_made_again(lab: MaasLab, tmp_path: Path) -> None:
    """Given a machine of the run that an administrator deletes, and one that is released, then both are lost, and are
    as wanted again."""
    before = lab.counts()
    plan = plan_of(tmp_path, workload={"until": "probed"}, stages=[{"instances": 4, "hold": _LONG_HOLD}])
    plan_sets = ("--set", "workload.observe_every=500ms")
    with going(start_at(lab, plan, tmp_path / "runs", *plan_sets)) as process:
        directory = wait_for(tmp_path / "runs", process, "stage", phase="hold", stage=1)

        async def interfere(region: Region) -> None:
            found = [
                each for each in await region.ok("GET", "machines/") if each["status_name"] == "Deployed"
            ]
            await region.ok("DELETE", f"machines/{found[0]['system_id']}/")
            await region.ok("POST", f"machines/{found[1]['system_id']}/?op=release")

        on_region(lab, interfere)
        wait_for(tmp_path / "runs", process, "lost")
        until(lambda: sum(each["count"] for each in named(directory, "repaired")) >= 1, "a repair")
        process.send_signal(signal.SIGINT)
        ended(process)
    assert lab.counts() == before


# What is refused before anything is made


@contextmanager
def answering(status: int, body: bytes) -> Generator[str]:
    """Something that is no region, and answers everything with this."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/MAAS"
        finally:
            server.shutdown()
            thread.join()


def refused(directory: Path, **known: Any) -> str:
    """The one line with which a run at a region is refused."""
    path = directory / "credentials.yaml"
    path.touch(0o600)
    path.write_text(json.dumps({"api_key": "hush:hush:hush", **known}))
    done = run("run", plan_of(directory), "--set", f"target.credentials={path}", "--out", directory / "runs")
    assert done.returncode == 3, done.stderr
    assert no_traceback(done.stdout, done.stderr)
    line = one_line(done)
    assert "hush" not in line
    return line


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<!DOCTYPE html><title>Welcome</title>", "an HTML page instead of JSON"),
        (200, b"", "an empty answer"),
        (200, b"3.3 or so", "an answer instead of JSON"),
        (404, b"Not Found", "no MAAS here: expected http(s)://HOST:PORT/MAAS"),
        (200, b'{"version": "2.9.2"}', "MAAS 2.9.2: expected MAAS 3.3 or newer"),
        (502, b"<html>Bad Gateway</html>", "HTTP 502"),
    ],
)
def test_what_is_no_maas_of_ours_is_refused_in_one_line(
    tmp_path: Path, status: int, body: bytes, said: str
) -> None:
    with answering(status, body) as url:
        assert said in refused(tmp_path, url=url)


def test_a_wrong_key_is_refused_in_one_line_without_the_key(lab: MaasLab, tmp_path: Path) -> None:
    assert "HTTP 401" in refused(tmp_path, url=lab.url)


def test_another_authority_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other", "other").ca.read_text()
    with MaasLab(tls=True) as lab:
        assert "not signed by a trusted authority" in refused(tmp_path, url=lab.url, ca=other)
        assert "not signed by a trusted authority" in refused(tmp_path, url=lab.url)
        assert run_at(lab, plan_of(tmp_path), tmp_path / "verified").returncode == 0


# Secrets


def test_no_secret_is_on_a_command_line_or_in_what_is_kept(lab: MaasLab, tmp_path: Path) -> None:
    """Given a run with a key and a password of power controllers, then neither is on a command line, in an environment,
    in what it says, or in its directory."""
    tell(lab, "hush-of-power")
    secrets = [lab.key, *lab.key.split(":")[1:], "hush-of-power"]
    lab.ask({"do": "power", "state": "failing"})
    plan = plan_of(
        tmp_path,
        target={"made": REDFISH},
        workload={"until": "probed", "observe_every": "500ms", "retries": {"other": 100}},
        stages=[{"instances": 2, "hold": _LONG_HOLD}],
    )
    with going(start_at(lab, plan, tmp_path / "runs", begin=execute)) as process:
        wait_for(tmp_path / "runs", process, "retry")
        lab.ask({"do": "power", "state": "normal"})
        directory = wait_for(tmp_path / "runs", process, "stage", phase="hold", stage=1)
        of_run = [process.pid, *workers_of(process.pid)]
        assert len(of_run) == 2
        shown = "".join(
            Path(f"/proc/{pid}/{what}").read_text() for pid in of_run for what in ("cmdline", "environ")
        )
        process.send_signal(signal.SIGINT)
        done = ended(process)
    kept = [path.read_text(errors="replace") for path in directory.rglob("*") if path.is_file()]
    for secret in secrets:
        assert secret not in "".join([*kept, shown, done.stdout, done.stderr])
