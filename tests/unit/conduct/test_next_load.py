"""A turn of a search is judged, from what all units measured, or on one machine from all that was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.digest.parts_of_units import RUN, names, shared, word, write_part
from tests.unit.made.synthetic import STARTED, MadeStage, write_run
from tippingpoint.conduct.next_load import next_load
from tippingpoint.conduct.run_state import SharedRun, Turn
from tippingpoint.conduct.search_messages import ProbeReport
from tippingpoint.digest.unit_digest import make_digest
from tippingpoint.digest.unit_reports import FromDigests
from tippingpoint.plan.read import validate_plan
from tippingpoint.play.memory_reports import FromMemory
from tippingpoint.play.turn_report import TurnReport
from tippingpoint.rundir.results import GrowingRun

PLAN: dict[str, Any] = {
    **{"name": "search", "find": {"start": 100, "limit": 800, "hold": "8s", "over": "2s"}},
    **{"workload": {"renew_time": "5s"}, "thresholds": [{"operation": "extend", "p90": "50ms"}]},
}
TURN: dict[str, Any] = {"number": 1, "stage": 1, "kind": "find", "of": 2, "load": 100, "lasts": 8.0}


@pytest.mark.parametrize(("slow", "held"), [((2, 2), True), ((2, 800), False)])
def test_a_load_holds_if_it_does_for_all_units_together(
    tmp_path: Path, slow: tuple[int, int], held: bool
) -> None:
    # given a search's first load, which two units brought, and what each measured
    turn = Turn.model_validate({**TURN, "begin": STARTED, "hold": STARTED + 2})
    run = shared(2, PLAN, over=False, shared=True, turns=[turn])
    reports = {
        name: ProbeReport(
            run=RUN,
            turn=1,
            digest=make_digest(
                write_part(tmp_path, unit, [MadeStage(50, extend_ms=slow[unit])], plan=PLAN), stage=1
            ),
        )
        for unit, name in enumerate(names(2))
    }
    # when the leader judges it
    found = next_load(FromDigests(run, dict.fromkeys(reports, word(phase="up")), reports, tmp_path))
    # then it is one probe of both, and another load follows
    assert found.probe is not None
    assert (found.stop, found.after, found.probe.size, found.probe.held) == ("", 1, 100, held)
    assert found.load is not None
    assert (found.load > 100) == held
    assert [*tmp_path.glob("judging-*")] == []


def test_a_load_of_which_a_report_is_not_known_ends_the_search_with_the_reason(tmp_path: Path) -> None:
    turn = Turn.model_validate({**TURN, "begin": STARTED, "hold": STARTED + 2})
    run = shared(2, PLAN, over=False, shared=True, turns=[turn])
    found = next_load(FromDigests(run, {}, {}, tmp_path))
    assert found.stop == "load-claimer/0: its figures of turn 1 are not known"


def test_on_one_machine_an_aborted_load_broke_and_the_next_one_begins_from_nothing(tmp_path: Path) -> None:
    # given the first load of a search, whose target was fast enough until a threshold with abort ended it
    plan = validate_plan(PLAN)
    turn = Turn.model_validate({**TURN, "of": 1, "fresh": True, "begin": STARTED, "hold": STARTED + 2})
    begun = SharedRun.in_memory(plan, "run/0", 1, STARTED)
    run = begun.model_copy(update={"turns": [turn]})
    made = write_run(tmp_path / "run", [MadeStage(100, kind="find")], plan=PLAN)
    report = TurnReport(
        turn=1,
        inside=made,
        stage=1,
        began=0.0,
        hold_began=2.0,
        ended=9.0,
        aborted="extend p99 was 2.3 s (threshold 1 s, abort)",
    )
    # when it is judged
    found = next_load(FromMemory(run, report, GrowingRun(made), STARTED, STARTED + 9.5))
    # then that is a load that broke, and a lower one follows
    assert found.probe is not None
    assert (found.probe.held, found.probe.aborted, found.probe.seconds) == (False, True, 9.5)
    assert found.probe.broken == ["aborted: extend p99 was 2.3 s (threshold 1 s, abort)"]
    assert (found.after, found.fresh, found.stop) == (1, True, "")
    assert found.load is not None
    assert found.load < 100
