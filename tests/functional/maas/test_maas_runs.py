"""Runs against the simulated region, as a user runs them: machines are made, reported and removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.maas.region import Timings
from lab.maas.simulator import MaasLab
from tests.functional.program import no_traceback, only_run, run
from tippingpoint.plan.shipped import shipped_plans


@pytest.fixture
def lab() -> Iterator[MaasLab]:
    with MaasLab(machines=5, timings=Timings(0.2, 0.2, 0.2, 0.2, 0.5)) as lab:
        yield lab


def shipped(name: str, lab: MaasLab, directory: Path, sizes: Sequence[int] = ()) -> Path:
    """A shipped plan on the lab, with shorter stages, with `sizes` in place of its own, and with limits that no machine
    is too slow for."""
    plan: dict[str, Any] = yaml.safe_load(shipped_plans()[name])
    plan["stages"] = [{"instances": size} for size in sizes] or plan["stages"]
    plan["target"]["credentials"] = str(lab.credentials)
    plan["workload"] |= {"poll_every": "200ms", "observe_every": "1s"}
    plan["stages"] = [{**stage, "hold": "2s"} for stage in plan["stages"]]
    limits = {"p95": "20m", "p99": "20m"}
    plan["thresholds"] = [
        each | {name: limits[name] for name in limits.keys() & each} for each in plan["thresholds"]
    ]
    path = directory / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))
    return path


@pytest.mark.parametrize(
    ("name", "sizes", "operations"),
    [
        ("maas-register-small", [], {"enlist", "launch", "poll", "machine-list"}),
        ("maas-deploy-small", [], {"enlist", "commission", "deploy", "launch", "poll", "event-list"}),
        ("maas-register", [10, 200], {"enlist", "launch", "poll", "machine-list"}),
        ("maas-commission", [8, 16], {"enlist", "commission", "launch", "poll", "machine", "machine-list"}),
        ("maas-deploy", [], {"enlist", "commission", "deploy", "launch", "poll", "machine", "machine-list"}),
    ],
)
def test_a_run_reports_its_steps_and_leaves_nothing(
    lab: MaasLab, tmp_path: Path, name: str, sizes: list[int], operations: set[str]
) -> None:
    """Given a shipped plan, then its thresholds are met, its steps are in the report, and only others' machines stay;
    the key is nowhere in the run's directory."""
    before = lab.counts()
    done = run("run", shipped(name, lab, tmp_path, sizes), "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert no_traceback(done.stdout, done.stderr)
    assert lab.counts() == before
    # and wherever it is reported one sees that no machine was there
    assert "on maas 3.3.11-simulated, 1 rack controller" in done.stderr
    (page,) = (tmp_path / "run").glob("*/report.html")
    head = page.read_text().partition("</header>")[0]
    assert "on a simulator, not on a real MAAS region" in head
    # and no machine is said to be on a rack controller
    text = run("report", page.parent, "--format", "md").stdout
    assert "| rack controller | led from | status changes |" in text
    last = only_run(tmp_path / "run").stages[-1]
    assert {operation for operation in operations if not last.attempts(operation)} == set()
    secret = lab.key.rpartition(":")[2].encode()
    assert [
        path for path in (tmp_path / "run").rglob("*") if path.is_file() and secret in path.read_bytes()
    ] == []


@pytest.mark.parametrize(
    ("what", "exit_code", "said"),
    [
        ({"do": "revoke-keys"}, 3, "Invalid API key"),
        ({"do": "kill", "member": "region"}, 3, "Connection refused"),
    ],
)
def test_a_region_that_does_not_take_us_ends_a_run_in_one_line(
    lab: MaasLab, tmp_path: Path, what: dict[str, Any], exit_code: int, said: str
) -> None:
    plan = shipped("maas-register-small", lab, tmp_path)
    lab.ask(what)
    done = run("run", plan, "--out", tmp_path / "run")
    assert done.returncode == exit_code
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
