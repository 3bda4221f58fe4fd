"""A lab that was asked to has its target on processors of its own, and a run with it keeps off them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab.ask import ask
from lab.etcd.cluster import EtcdLab
from lab.juju.simulator import JujuLab
from lab.maas.simulator import MaasLab
from lab.places import Places, split
from tests.functional.program import only_run, settings, start, wait_for_hold, workers_of, write_plan

USABLE = sorted(os.sched_getaffinity(0))
CHECKOUT = Path(__file__).parents[3]


def threads_run_on(pid: int) -> set[int]:
    """The processors on which any thread of a process may run."""
    tasks = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    return {processor for task in tasks for processor in os.sched_getaffinity(task)}


@pytest.fixture(scope="module")
def places() -> Places:
    return split(USABLE, members=3)


@pytest.fixture(scope="module")
def placed(places: Places) -> Iterator[EtcdLab]:
    with EtcdLab(3, places=places) as lab:
        yield lab


def test_each_member_runs_there_also_when_it_is_started_again(placed: EtcdLab, places: Places) -> None:
    placed.kill("m2")
    placed.start("m2")
    runs_on = [threads_run_on(placed.pids[name]) for name in placed.names]
    assert runs_on == [set(places.of_member(number)) for number in range(3)]
    assert ask(placed.socket, {"do": "places"}) == {
        "target": [*places.target],
        "members": {name: [*places.of_member(number)] for number, name in enumerate(placed.names)},
        "others": [*places.others],
    }


def test_a_search_with_the_lab_has_a_worker_on_each_of_the_others(
    placed: EtcdLab, places: Places, tmp_path: Path
) -> None:
    # given a search, which has as many workers as there are processors for them
    plan = yaml.safe_load(write_plan(tmp_path).read_text())
    del plan["stages"], plan["workers"]
    plan["find"] = {"start": 2, "limit": 4, "over": "1s", "hold": "600s", "within": "1h"}
    searched = tmp_path / "search.yaml"
    searched.write_text(yaml.safe_dump(plan))
    running = start("run", searched, *settings(placed), "--out", tmp_path / "runs")
    # when it holds its first load
    wait_for_hold(tmp_path / "runs")
    workers = workers_of(running.pid)
    runs_on = [os.sched_getaffinity(pid) for pid in (running.pid, *workers)]
    running.send_signal(signal.SIGINT)
    running.communicate()
    # then it and they are on those, and its record says so
    assert len(workers) == len(places.others)
    assert runs_on == [set(places.others)] * (1 + len(workers))
    manifest = only_run(tmp_path / "runs").manifest
    assert manifest.places is not None
    assert (manifest.places.target, manifest.places.workers) == ([*places.target], [*places.others])


@pytest.mark.parametrize("lab", [JujuLab, MaasLab])
def test_simulators_run_there_too(lab: type[JujuLab] | type[MaasLab]) -> None:
    places = split(USABLE)
    with lab(places=places) as running:
        assert threads_run_on(running.pid) == set(places.target)
        answer = ask(running.socket, {"do": "places"})
    assert (answer["target"], answer["others"]) == ([*places.target], [*places.others])
    assert all(where == [*places.target] for where in answer["members"].values())


def test_a_lab_that_nobody_asked_to_be_placed_is_on_all_of_them() -> None:
    with EtcdLab(1) as lab:
        answer = ask(lab.socket, {"do": "places"})
    assert answer == {"target": USABLE, "members": {"m1": USABLE}, "others": USABLE}


def test_a_user_is_told_where_the_target_runs_and_may_say_it() -> None:
    last = USABLE[-1]
    command = [sys.executable, "-m", "lab.etcd.cluster", "--members=1", "--how-to", f"--cpus={last}"]
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        lines = [program.stdout.readline() for _ in range(2)]
        program.send_signal(signal.SIGTERM)
    apart = f"the target runs on processor {last}, and what loads it on processor"
    assert lines[1].startswith(apart if len(USABLE) > 1 else "nothing is placed: there is one processor only")


def test_processors_that_the_machine_lacks_are_refused_in_one_line() -> None:
    command = [sys.executable, "-m", "lab.etcd.cluster", "--cpus=4711"]
    done = subprocess.run(
        command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("--cpus: 4711: expected some of processor")
    assert done.stderr.count("\n") == 1
