"""Whether a controller comes back. A planted retry loop is told from a plain overload, and a model becomes smaller.

Both profiles of the simulator have the same capacity.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.juju.simulator import JujuLab
from tests.functional.juju.juju_runs import juju_plan, run_on
from tests.functional.program import only_run, settings_without_lab
from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.analysis.recovery.comeback import Comeback

PROFILES = pytest.mark.parametrize(("profile", "metastable"), [("plain", False), ("retry-loop", True)])
TRIES = 3
"""The most runs of one test: where this machine is the limit, a report says that it cannot tell."""


def told(tmp_path: Path, profile: str, **plan: Any) -> tuple[Analysis, Comeback]:
    """The first run of a plan on a controller of this profile that says whether the target comes back."""
    doubts: list[str] = []
    for number in range(TRIES):
        place = tmp_path / str(number)
        place.mkdir()
        path = juju_plan(place, after="recover", workers=1, **plan)
        with JujuLab(profile=profile, patched=True) as lab:
            settings = settings_without_lab(lab)
            done = run_on(lab, "run", path, *settings, "--out", place / "runs")
        analysis = analyse(only_run(place / "runs"))
        assert analysis.comeback is not None, done.stdout + done.stderr
        if not analysis.comeback.doubt:
            return analysis, analysis.comeback
        doubts.append(analysis.comeback.doubt)
    raise AssertionError(f"no run of {TRIES} could tell: {doubts}")


@PROFILES
def test_a_retry_loop_is_told_from_an_overload(tmp_path: Path, profile: str, metastable: bool) -> None:
    # given a controller that makes 250 commits a second, clients that wait for half a second, and twice as many of them
    # as it serves, after a load that it holds
    # when the load goes down again
    _, comeback = told(
        tmp_path,
        profile,
        workload={"units": 1, "claim_time": "60s", "renew_time": "500ms", "timeout": "500ms"},
        stages=[{"leases": leases, "over": "1s", "hold": "6s"} for leases in (80, 200)],
        thresholds=[{"operation": "extend", "error_rate": 0.05}],
    )
    # then it is known whether what is left of the failure keeps itself up
    assert comeback.before == 80, comeback
    assert comeback.metastable == metastable, comeback
    if metastable:
        assert comeback.stays_broken_at == 80
    else:
        assert comeback.sentence.startswith("Comes back")


@PROFILES
def test_a_search_tells_them_apart_too(tmp_path: Path, profile: str, metastable: bool) -> None:
    # given the same controllers, and a search for the load that they hold
    # when the search has ended
    analysis, comeback = told(
        tmp_path,
        profile,
        workload={"units": 1, "claim_time": "10s", "renew_time": "500ms", "timeout": "500ms"},
        stages=[],
        find={"start": 60, "limit": 400, "over": "1s", "hold": "3s", "resolution": 0.5, "within": "40s"},
        thresholds=[{"operation": "extend", "error_rate": 0.05}],
    )
    # then a load that broke was tried again, and it is known whether the failure keeps itself up
    assert comeback.before is not None
    assert comeback.broken is not None
    assert comeback.before < comeback.broken
    assert comeback.metastable == metastable, comeback
    # and the verdict says the same
    assert comeback.sentence in analysis.verdict.reasons


def test_a_model_becomes_smaller_in_steps(tmp_path: Path) -> None:
    # given a model of eight units, whose status cannot be had as often as is asked for, and no other threshold
    for number in range(TRIES):
        place = tmp_path / str(number)
        place.mkdir()
        plan = juju_plan(
            place,
            workload={"kind": "grow", "observe_every": "250ms", "timeout": "30s"},
            stages=[{"applications": 2, "units": 4, "machines": 1, "over": "0s", "hold": "1s"}],
            thresholds=[{"operation": "full-status", "throughput": 1000}],
            after="recover",
            workers=1,
        )
        # when its units are removed step by step
        with JujuLab() as lab:
            settings = [part for setting in lab.settings() for part in ("--set", setting)]
            done = run_on(lab, "run", plan, *settings, "--out", place / "runs")
        measured = only_run(place / "runs")
        comeback = analyse(measured).comeback
        assert comeback is not None, done.stdout + done.stderr
        if all(step.held is not None for step in comeback.steps if not step.repeated):
            break
    # then the last stage is known to have missed it, each step has as many as it says, and none was of any use
    # (a load that says nothing of the controller, as this machine was late, comes again)
    assert [step.size for step in comeback.steps if not step.repeated] == [6, 4, 2, 0]
    steps = [stage for stage in measured.stages if stage.kind == "recover" and stage.size < 8]
    assert [stage.gauges["held"] for stage in steps] == [step.size for step in comeback.steps]
    assert not any(step.held for step in comeback.steps)
    assert comeback.sentence.startswith("Did not come back within")
