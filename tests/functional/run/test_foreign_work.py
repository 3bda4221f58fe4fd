"""Other programs beside a real etcd, and what a run says of them. Nothing here is about speed: only about who ran."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.etcd.cluster import EtcdLab
from lab.places import on_processors
from tests.functional.program import (
    only_run,
    settings,
    settings_without_lab,
    start,
    until,
    wait_for_hold,
    write_plan,
)
from tests.functional.spawn_runs import ended, going
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.foreign_work import foreign_work, foreign_work_in
from tippingpoint.report.sections.cautions import build_cautions
from tippingpoint.rundir.journal import read_events
from tippingpoint.rundir.machine import FILE, Used, used_of

FIRST = sorted(os.sched_getaffinity(0))[:1]
SECONDS = 8
"""So many seconds of the loop are looked at."""
FAIR = 0.15
"""A program that always wants to run has at least this share of a processor beside a few others that do."""


@pytest.fixture
def loop() -> Iterator[subprocess.Popen[bytes]]:
    """A program that does nothing else than run, on the first core, from its first line on."""
    with on_processors(FIRST):
        process = subprocess.Popen([sys.executable, "-c", "input()\nwhile True: pass"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


def seconds(directory: Path) -> list[Used]:
    return used_of(read_events(directory / FILE).events)


def test_a_busy_loop_on_the_targets_core_is_named(
    new_etcd: Callable[..., EtcdLab], loop: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    # given an etcd on one core, and a run that holds a few leases there
    with on_processors(FIRST):
        etcd = new_etcd(members=1)
    assert len(os.sched_getaffinity(etcd.pids["m1"])) == 1
    plan = write_plan(tmp_path, stages=[{"leases": 20, "over": "200ms", "hold": "20m"}])
    process = start("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    with going(process):
        directory = wait_for_hold(tmp_path / "runs")
        until(lambda: len(seconds(directory)) >= 2, "somebody has looked who runs")
        # when another program uses that core for all it gets
        assert loop.stdin is not None
        began = len(seconds(directory)) + 1
        loop.stdin.write(b"\n")
        loop.stdin.close()
        until(lambda: len(seconds(directory)) >= began + SECONDS, "it has run for a while")
        beside = seconds(directory)[began:]
        process.terminate()
        ended(process)
    # then the run has counted its share of that core, and not the etcd's
    counted = foreign_work(beside)
    assert counted is not None
    assert counted.cpus == 1
    assert counted.others >= FAIR
    assert 0 < sum(used.target or 0.0 for used in beside) < sum(used.busy for used in beside)
    assert all(used.waited is not None for used in beside)
    assert {name for used in beside for name in used.stalled} <= {"cpu", "io", "memory"}
    # and the report names other programs
    analysis = analyse(only_run(tmp_path / "runs"))
    (stage,) = analysis.run.stages
    of_stage = foreign_work_in(analysis.run, stage.begin, stage.end or 0.0)
    assert of_stage is not None
    assert of_stage.explains
    (line,) = [line for line in build_cautions(analysis) if "other programs used" in line]
    assert "of the target's processor in stage 1" in line


def test_without_a_lab_it_is_not_known_what_else_ran(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a run that knows only the addresses of its target
    plan = write_plan(tmp_path, stages=[{"leases": 20, "over": "200ms", "hold": "20m"}])
    process = start("run", plan, *settings_without_lab(etcd), "--out", tmp_path / "runs")
    with going(process):
        directory = wait_for_hold(tmp_path / "runs")
        until(lambda: len(seconds(directory)) >= 2, "somebody has looked who runs")
        process.terminate()
        ended(process)
    # then its machine's processors are known, and nobody's share of them is the target's
    measured = only_run(tmp_path / "runs")
    assert measured.machine
    assert {(used.target, used.others) for used in measured.machine} == {(None, None)}
    assert sum(used.ours for used in measured.machine) > 0
