"""A planted retry loop is told from a plain overload. Both profiles of the simulator have the same capacity."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.juju.simulator import JujuLab
from tests.functional.juju.juju_runs import juju_plan, run_on
from tests.functional.program import only_run
from tippingpoint.analysis.analyse import analyse


@pytest.mark.parametrize(("profile", "metastable"), [("plain", False), ("retry-loop", True)])
def test_a_retry_loop_is_told_from_an_overload(tmp_path: Path, profile: str, metastable: bool) -> None:
    # given a controller that makes 250 commits a second, clients that wait for half a second, and twice as many of them
    # as it serves, after a load that it holds
    plan = juju_plan(
        tmp_path,
        workload={"units": 1, "claim_time": "60s", "renew_time": "500ms", "timeout": "500ms"},
        stages=[{"leases": leases, "over": "1s", "hold": "6s"} for leases in (80, 200)],
        thresholds=[{"operation": "extend", "error_rate": 0.05}],
        after="recover",
        workers=1,
    )
    # when the load goes down again
    with JujuLab(profile=profile, patched=True) as lab:
        settings = [part for setting in lab.settings() for part in ("--set", setting)]
        done = run_on(lab, "run", plan, *settings, "--out", tmp_path / "runs")
    # then it is known whether what is left of the failure keeps itself up
    comeback = analyse(only_run(tmp_path / "runs")).comeback
    assert comeback is not None, done.stdout + done.stderr
    if any(step.why for step in comeback.steps) or "the generator itself" in comeback.sentence:
        assert comeback.stays_broken_at is None or metastable, (
            comeback
        )  # where this machine is the limit, it says so
        return
    assert comeback.before == 80, comeback
    assert comeback.metastable == metastable, comeback
    if metastable:
        assert comeback.stays_broken_at == 80
    else:
        assert comeback.sentence.startswith("Comes back")
