"""The pieces of the agent: what it keeps, removes and closes, and how it speaks to systemd and the charm."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from tippingpoint.agent import removal
from tippingpoint.agent.closing import close_cut, cut_in
from tippingpoint.agent.part import plan_of
from tippingpoint.agent.probing import probe
from tippingpoint.agent.removal import Removal
from tippingpoint.agent.run_store import MOST_RUNS, RunStore, StoredRun, furthest
from tippingpoint.agent.state import PartState, State, lock
from tippingpoint.agent.tasks import Outcome, Tasks
from tippingpoint.agent.wake import wake
from tippingpoint.conduct.director import begin_run
from tippingpoint.conduct.run_state import SharedRun, Turn
from tippingpoint.errors import UserError
from tippingpoint.plan.read import parse_plan
from tippingpoint.rundir.ledger import remember
from tippingpoint.rundir.manifest import Manifest, TargetEntry
from tippingpoint.targets.registry import target_of
from tippingpoint.util.systemd_notify import notify, watchdog_every

NOWHERE = "target: {endpoints: ['http://127.0.0.1:1']}"
PLAN = parse_plan(f"{{name: small, stages: [{{leases: 10}}], {NOWHERE}}}")


def a_run(made: float = 1000.0, **changes: Any) -> SharedRun:
    return begin_run(PLAN, ["load-claimer/0", "load-claimer/1"], made).model_copy(update=changes)


def a_part(
    keeping: RunStore, run: SharedRun, *, status: str = "complete", made_something: bool = True
) -> str:
    """A part's directory, as its runner leaves it."""
    name = f"{run.id}.0"
    directory = keeping.parts / name
    directory.mkdir()
    manifest = Manifest(id=name, title="small", target=TargetEntry(kind="etcd"), started=run.made)
    manifest.model_copy(update={"status": status, "pid": 2**30, "pid_started": 1}).save(directory)
    if made_something:
        remember(directory, target_of(PLAN.target.kind).new_entry(PLAN, name, directory))
    keeping.save(StoredRun(run=run, parts=[name]))
    return name


# -- the state ---------------------------------------------------------------------------------------


def test_a_state_is_read_as_it_was_saved_and_by_its_owner_only(tmp_path: Path) -> None:
    part = PartState(run="r-1f3a", directories=["r-1f3a.0"], phase="up", turn=2, offset=0.5)
    state = State(
        unit="load-claimer/0", run=a_run(), target={"kind": "etcd"}, reference="10.0.0.1:5", part=part
    )
    state.save(tmp_path)
    assert State.load(tmp_path) == state
    assert [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()] == [0o600]


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"version": 2}', b'{"run": 3}', b"\xff"])
def test_a_state_that_cannot_be_understood_is_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "agent.json").write_bytes(content)
    assert State.load(tmp_path) == State()


def test_a_state_directory_has_one_agent(tmp_path: Path) -> None:
    with lock(tmp_path), pytest.raises(UserError, match="a directory that no other agent uses now"):
        lock(tmp_path)
    lock(tmp_path).close()


# -- what is kept --------------------------------------------------------------------------------------


def test_runs_are_kept_newest_first_with_their_digests_for_all_to_read(tmp_path: Path) -> None:
    os.umask(0o022)
    keeping = RunStore(tmp_path)
    runs = [a_run(made) for made in (2000.0, 1000.0, 3000.0)]
    for run in runs:
        keeping.save(StoredRun(run=run, verdict="met"))
    keeping.keep_digest(runs[0].id, "load-claimer-big/12", "abc")
    assert [kept.run.made for kept in keeping.all()] == [3000.0, 2000.0, 1000.0]
    assert keeping.digests(runs[0].id) == {"load-claimer-big/12": "abc"}
    assert keeping.digests(runs[1].id) == {}
    assert keeping.load("none-1f3a") is None
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}


def test_the_oldest_runs_go_unless_something_of_them_is_left(tmp_path: Path) -> None:
    keeping = RunStore(tmp_path)
    runs = [a_run(float(1000 + n)) for n in range(MOST_RUNS + 4)]
    for run in runs[4:]:
        keeping.save(StoredRun(run=run))
    left, removed, named, nothing_made = runs[:4]
    parts = {run.id: a_part(keeping, run, made_something=run is not nothing_made) for run in runs[:4]}
    keeping.set_removed(parts[removed.id])
    keeping.set_removed(parts[named.id])
    keeping.prune([named.id])
    assert {kept.run.id for kept in keeping.all()} == {run.id for run in (left, named, *runs[4:])}
    assert {path.name for path in keeping.parts.iterdir()} == {parts[left.id], parts[named.id]}


def test_of_two_tellings_the_one_that_is_further_counts() -> None:
    run = a_run()
    turn = Turn(number=1, stage=1, kind="ramp", of=2, begin=5.0, lasts=30.0)
    begun = run.model_copy(update={"turns": [turn], "started": 5.0})
    over = run.model_copy(update={"over": True})
    held = begun.model_copy(update={"turns": [turn.model_copy(update={"hold": 9.0})]})
    assert furthest(run, begun) is begun
    assert furthest(begun, run) is begun
    assert furthest(begun, held) is held
    assert furthest(begun, over) is over
    assert furthest(begun, None) is begun
    assert furthest(begun, a_run(2000.0, over=True)) is begun


# -- what is left in targets ---------------------------------------------------------------------------


async def test_what_cannot_be_removed_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a part whose target cannot be reached
    keeping = RunStore(tmp_path)
    part = a_part(keeping, a_run())
    monkeypatch.setattr(removal, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(removal, "LONGEST_WAIT", 0.01)

    told = asyncio.Event()
    removing = Removal(keeping, list, told.set, lambda: "load-claimer/0")
    # when it is removed
    removing.begin()
    await asyncio.wait_for(told.wait(), 600)
    # then that is told, and it stays known as left
    line = removing.problem(part.rpartition(".")[0])
    tomorrow = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400))
    assert line.startswith(f"not all removed from the target, retried until {tomorrow} ")
    assert "127.0.0.1:1" in line
    assert "\n" not in line
    assert removing.problem("another") == ""
    assert keeping.left() == [part]
    # and once it is gone nothing is told any more
    told.clear()
    (keeping.parts / part / "ledger.jsonl").unlink()
    await asyncio.wait_for(told.wait(), 600)
    assert removing.problem(part.rpartition(".")[0]) == ""
    await removing.close()
    assert keeping.left() == []


async def test_a_removal_is_given_up_after_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeping = RunStore(tmp_path)
    part = a_part(keeping, a_run())
    monkeypatch.setattr(removal, "GIVEN_UP_AFTER", 0.0)

    run = part.rpartition(".")[0]
    told = asyncio.Event()
    removing = Removal(keeping, list, told.set, lambda: "load-claimer/0")
    removing.begin()
    await asyncio.wait_for(told.wait(), 600)
    await removing.close()
    assert removing.problem(part.rpartition(".")[0]).startswith(
        f"juju run load-claimer/0 clean run={run}: not all removed from the target: "
    )


async def test_a_part_that_goes_on_keeps_what_it_made(tmp_path: Path) -> None:
    keeping = RunStore(tmp_path)
    part = a_part(keeping, a_run())

    removing = Removal(keeping, lambda: [part], lambda: pytest.fail("it was touched"), str)
    removing.begin()
    await asyncio.sleep(0)
    await removing.close()
    assert keeping.left() == [part]


# -- a part that was cut -------------------------------------------------------------------------------


def test_a_cut_part_is_closed_with_what_it_has(tmp_path: Path) -> None:
    keeping = RunStore(tmp_path)
    directory = keeping.parts / a_part(keeping, a_run(), status="running")
    problem = cut_in(2)
    assert close_cut(directory, problem) == ("failed", problem)
    manifest = Manifest.load(directory)
    assert (manifest.status, manifest.pid) == ("cut", None)
    assert manifest.reason == "the unit's machine or agent was restarted in turn 2"
    assert manifest.ended is not None
    # and once more says the same
    assert close_cut(directory, problem) == ("failed", problem)


def test_a_part_that_had_ended_stays_as_it_ended(tmp_path: Path) -> None:
    keeping = RunStore(tmp_path)
    directory = keeping.parts / a_part(keeping, a_run(), status="complete")
    assert close_cut(directory, cut_in(0)) == ("over", "")


def test_a_part_that_has_not_begun_is_cut_too(tmp_path: Path) -> None:
    assert close_cut(tmp_path / "none", cut_in(0)) == (
        "failed",
        "the unit's machine or agent was restarted before its first turn",
    )


# -- the plan of a unit --------------------------------------------------------------------------------


def test_the_target_is_reached_as_the_unit_says() -> None:
    plan = plan_of(a_run(), "load-claimer/0", {"kind": "etcd", "credentials": "/c/etcd.yaml"})
    assert plan.target.kind == "etcd"
    assert plan.target.endpoints == ["http://127.0.0.1:1"]
    assert plan.target.credentials == Path("/c/etcd.yaml")


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ({"kind": "juju"}, "target.kind: juju: expected etcd, as the plan has"),
        ({"endpoint": "x"}, "target.endpoint: x: expected one of kind, endpoints"),
        ({"endpoints": 3}, "target.endpoints: 3: expected"),
    ],
)
def test_a_target_that_does_not_fit_is_refused_in_one_line(target: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError) as refused:
        plan_of(a_run(), "load-claimer/0", target)
    assert str(refused.value).startswith(problem)


def test_units_begin_with_different_projects() -> None:
    spawn = parse_plan(
        "{name: fill, target: {kind: lxd}, workload: {kind: spawn, rate: 1}, stages: [{groups: 2, instances: 1}]}"
    )
    run = begin_run(spawn, ["cs/0", "cs/1", "cs/2"], 1000.0)
    begin_with: list[str] = []
    for unit in ("cs/0", "cs/1", "cs/2", "cs/7"):
        plan = plan_of(run, unit, {"kind": "lxd", "projects": ["a", "b"]})
        assert plan.target.kind == "lxd"
        assert sorted(plan.target.projects) == ["a", "b"]
        begin_with.append(plan.target.projects[0])
    assert begin_with == ["a", "b", "a", "b"]


# -- tasks ---------------------------------------------------------------------------------------------


async def turns() -> None:
    """Let what can go on go on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_task_is_asked_for_by_its_id_until_it_is_forgotten() -> None:
    tasks, release = Tasks(), asyncio.Event()

    async def work() -> str:
        await release.wait()
        return "removed 3"

    async def fail() -> str:
        raise UserError("member", "m9", "one of m1, m2")

    slow, failing = tasks.begin(work()), tasks.begin(fail())
    await turns()
    assert tasks.ask(slow) is None
    release.set()
    await turns()
    assert tasks.ask(slow) == Outcome("removed 3", failed=False)
    assert tasks.ask(failing) == Outcome("member: m9: expected one of m1, m2", failed=True)
    for _ in range(200):
        tasks.begin(work())
        await turns()
    with pytest.raises(UserError, match="expected the id of a task"):
        tasks.ask(slow)
    tasks.begin(asyncio.sleep(3600, "never"))
    await tasks.close()


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ({}, "target.kind: missing: expected one of juju, lxd, maas, openstack"),
        ({"kind": "etcd"}, "target.kind: etcd: expected one of juju, lxd, maas, openstack"),
        ({"kind": "lxd", "nonsense": "secret"}, "target.nonsense: given: expected"),
        ({"kind": "lxd", "credentials": "/none"}, "target.credentials: /none: expected"),
        ({"kind": "openstack", "credentials": "/none"}, "target.credentials: /none: expected a clouds.yaml"),
    ],
)
async def test_a_probe_of_no_target_is_refused(target: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError) as refused:
        await probe(target)
    assert str(refused.value).startswith(problem)
    assert "secret" not in str(refused.value)


# -- systemd and the charm -----------------------------------------------------------------------------


def test_waking_makes_the_file_or_touches_it(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    wake(path)
    assert path.read_bytes() == b""
    os.utime(path, (1, 1))
    wake(path)
    assert path.stat().st_mtime > time.time() - 60
    wake(tmp_path / "none" / "wake")  # nobody to wake is no error
    os.symlink(tmp_path / "elsewhere", tmp_path / "link")
    wake(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


def test_systemd_is_told_where_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify("READY=1")
        assert systemd.recv(100) == b"READY=1"
    notify("STOPPING=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")


def test_the_watchdog_hears_from_us_twice_as_often_as_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    assert watchdog_every() == 30.0
    for none in ("", "0", "x"):
        monkeypatch.setenv("WATCHDOG_USEC", none)
        assert watchdog_every() is None
