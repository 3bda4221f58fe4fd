"""When figures of Prometheus are asked for in a run by many units, and for which part of a turn."""

from __future__ import annotations

from typing import Any

import pytest

from tippingpoint.conduct.director import begin_run
from tippingpoint.conduct.figure_messages import FiguresTold
from tippingpoint.conduct.run_state import SharedRun, Turn
from tippingpoint.plan.read import Plan, parse_plan
from tippingpoint.play.shared_figures import Due, due, loaded_since

LIMIT = "thresholds: [{operation: claim, p99: 1s}, {figure: etcd-memory, at_most: 1GB, abort: true}]"
LISTED = parse_plan(f"name: x\nstages: [{{leases: 10, hold: 30s}}, {{leases: 20, hold: 40s}}]\n{LIMIT}")
SEARCH = parse_plan(
    f"name: x\nfind: {{start: 10, limit: 1000}}\nworkload: {{renew_time: 5s}}\n{LIMIT.replace('claim', 'extend')}"
)
FIRST = Turn(number=1, stage=1, kind="ramp", of=2, begin=1000, hold=1010, lasts=30)
SECOND = Turn(number=2, stage=2, kind="ramp", of=2, begin=1040, hold=1050, lasts=40)


def run_of(plan: Plan, *turns: Turn, **fields: Any) -> SharedRun:
    run = begin_run(plan, ["load-claimer/0", "load-claimer/1"], 900.0)
    return run.model_copy(update={"turns": [*turns], "started": 1000.0, **fields})


def test_a_turn_is_measured_in_its_hold_once_that_is_over() -> None:
    run = run_of(LISTED, FIRST, SECOND.model_copy(update={"hold": None}))
    assert due(run, LISTED, 1039.9) == []
    # it may be asked for once more later, if Prometheus is away
    assert due(run, LISTED, 1041) == [Due(1, 1010, 1040, last_try=False)]
    known = FiguresTold(values=[(1, 0, 5e8, 0, None, 0)])
    assert due(run.model_copy(update={"figures": known}), LISTED, 1041) == []
    # and the last one is asked for at the end of the run, together with what is not known yet
    assert due(run_of(LISTED, FIRST, SECOND), LISTED, 1095) == [
        Due(1, 1010, 1040, last_try=True),
        Due(2, 1050, 1090, last_try=True),
    ]


def test_a_storm_ends_the_turn_that_it_is_in() -> None:
    storm = Turn(number=2, stage=1, kind="storm", of=2, begin=1025, lasts=30)
    assert due(run_of(LISTED, FIRST, storm), LISTED, 1026) == [Due(1, 1010, 1025, last_try=False)]


def test_a_run_that_is_stopped_ends_its_turn_now() -> None:
    run = run_of(LISTED, FIRST, SECOND.model_copy(update={"begin": 1100}), stopped="asked to stop")
    assert due(run, LISTED, 1020) == [Due(1, 1010, 1020, last_try=True)]
    up = run_of(LISTED, FIRST.model_copy(update={"hold": None}), stopped="asked to stop")
    assert due(up, LISTED, 1020) == [Due(1, None, 1020, last_try=True)]
    # so does one whose hold is named, and would have begun later
    assert due(run, LISTED, 1005) == [Due(1, None, 1005, last_try=True)]


def test_a_load_of_a_search_is_asked_for_once_as_the_next_one_waits_for_it() -> None:
    turn = FIRST.model_copy(update={"kind": "find", "load": 10, "ends": 1030})
    assert due(run_of(SEARCH, turn), SEARCH, 1031) == [Due(1, 1010, 1030, last_try=True)]


def test_a_load_that_is_only_there_while_it_comes_up_is_measured_in_all_of_its_turn() -> None:
    plan = parse_plan(
        "name: x\ntarget: {kind: lxd}\nworkload: {kind: spawn, until: started, cycle: true, rate: 5}\n"
        "stages: [{groups: 3, instances: 5, hold: 30s}]\n"
        "thresholds: [{operation: launch, p99: 1s}, {figure: lxd-memory, at_most: 1GB}]"
    )
    assert due(run_of(plan, FIRST), plan, 1050) == [Due(1, 1000, 1040, last_try=True)]


@pytest.mark.parametrize("kind", ["destroy", "recover"])
def test_nothing_is_measured_while_the_load_is_taken_away(kind: Any) -> None:
    run = run_of(LISTED, FIRST.model_copy(update={"kind": kind}))
    assert due(run, LISTED, 2000) == []
    assert loaded_since(run, 1020) is None


def test_a_figure_with_abort_is_watched_while_there_is_a_load() -> None:
    run = run_of(LISTED, FIRST, SECOND)
    assert loaded_since(run, 999) is None
    assert loaded_since(run, 1045) == 1000
    assert loaded_since(run, 1091) is None
    assert loaded_since(run.model_copy(update={"stopped": "asked to stop"}), 1045) is None
    # and in a search, what the load before did does not count
    probes = [turn.model_copy(update={"kind": "find"}) for turn in (FIRST, SECOND)]
    assert loaded_since(run_of(SEARCH, *probes), 1045) == 1040
