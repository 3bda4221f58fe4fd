"""The leader judges a turn of a search by many units, from what all units measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.made.synthetic import STARTED, MadeStage
from tests.unit.units.parts_of_units import RUN, names, shared, word, write_part
from tippingpoint.run.next_load import next_load
from tippingpoint.run.reported import FromDigests
from tippingpoint.units.digest import make_digest
from tippingpoint.units.search_words import ProbeReport
from tippingpoint.units.shared_run import Turn

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
