"""What becomes of a run's figures when Prometheus is away, and what is refused before a run begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.made.synthetic import MadeStage, write_run
from tippingpoint.errors import TargetError, UserError
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.plan.read import Plan, parse_plan
from tippingpoint.play.record import Record
from tippingpoint.play.run_figures import RunFigures
from tippingpoint.play.runner import Runner
from tippingpoint.play.watcher import RunnerEvents
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.results import load_run

NOBODY = "http://127.0.0.1:1"


def plan(**fields: str) -> Plan:
    threshold = ", ".join(f"{name}: {value}" for name, value in fields.items())
    return parse_plan(
        f"name: x\nstages: [{{leases: 10}}]\nthresholds: [{{operation: claim, p99: 1s}}, {{{threshold}}}]"
    )


MEMORY = plan(figure="etcd-memory", role="leader", at_most="300MB", abort="true")


async def test_a_plan_with_figures_needs_a_prometheus(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"^thresholds\.1\.figure: etcd-memory: expected --prometheus with the URL"
    ):
        await Runner(MEMORY, tmp_path).run()
    assert [*tmp_path.iterdir()] == []


async def test_a_figure_that_the_target_does_not_have_is_refused() -> None:
    with pytest.raises(UserError, match=r"^thresholds\.1\.figure: etcd-memoy: expected one of etcd-memory"):
        RunFigures(plan(figure="etcd-memoy", at_most="1"), Prometheus(NOBODY))


async def test_a_prometheus_that_is_away_at_the_begin_is_refused(tmp_path: Path) -> None:
    async with Prometheus(NOBODY) as prometheus:
        figures = RunFigures(MEMORY, prometheus)
        with pytest.raises(
            TargetError, match=r"^http://127\.0\.0\.1:1: .*: expected a Prometheus that answers"
        ):
            await Runner(MEMORY, tmp_path, figures=figures).run()
    assert [*tmp_path.iterdir()] == []


async def test_figures_that_nobody_answers_for_are_written_down_as_not_known(tmp_path: Path) -> None:
    # given a run of two stages, and a Prometheus that has gone since it began
    made = write_run(tmp_path / "gone", [MadeStage(10), MadeStage(20)])
    manifest = Manifest.load(made)
    (made / "events.jsonl").unlink()
    record = Record("x", tmp_path, made.name, RunnerEvents())
    record.open(manifest)
    # when the run ends
    async with Prometheus(NOBODY) as prometheus:
        await RunFigures(MEMORY, prometheus).complete(record)
    record.close([])
    # then it says so of each stage
    stages = load_run(made).stages
    assert len(stages) == 2
    for stage in stages:
        (found,) = stage.figures.values()
        assert (found.name, found.value) == ("etcd-memory of the leader", None)
        assert found.why.startswith("http://127.0.0.1:1: ")
