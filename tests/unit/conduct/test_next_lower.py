"""The leader judges the loads that follow the last one of a run by many units, from what all units measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.digest.parts_of_units import RUN, names, shared, word, write_part
from tests.unit.made.synthetic import STARTED, MadeStage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.conduct.next_load import next_load
from tippingpoint.conduct.recovery_messages import LoadShown, Recovery
from tippingpoint.conduct.run_state import SharedRun, Turn
from tippingpoint.conduct.search_messages import NextLoad, ProbeReport, SearchEnd
from tippingpoint.digest.merge import gather
from tippingpoint.digest.unit_digest import make_digest
from tippingpoint.digest.unit_reports import FromDigests
from tippingpoint.rundir.probe_events import ProbeEvent
from tippingpoint.rundir.results import load_run

PLAN: dict[str, Any] = {
    "name": "etcd-leases",
    "stages": [{"leases": size, "hold": "8s", "over": "2s"} for size in (500, 1000)],
    "thresholds": [{"operation": "extend", "p90": "50ms"}],
    "after": "recover",
}
TEN = 10.0
"""Seconds of each made stage."""


def turn(number: int, load: float | None = None, **fields: Any) -> Turn:
    begin = STARTED + TEN * (number - 1)
    kind = "ramp" if load is None else "recover"
    of = {"number": number, "stage": min(number, 2), "kind": kind, "of": 2, "load": load}
    return Turn.model_validate({**of, "begin": begin, "hold": begin + 2, "lasts": 8.0, **fields})


def a_run(*turns: Turn, **fields: Any) -> SharedRun:
    return shared(2, PLAN, over=False, turns=list(turns), **fields)


def reports(
    folder: Path, stages: Sequence[Sequence[MadeStage]], number: int, *, alone: bool = True
) -> dict[str, ProbeReport]:
    """What units with these stages report on the turn with that number."""
    parts = [write_part(folder, unit, of_unit, plan=PLAN) for unit, of_unit in enumerate(stages)]
    return {
        name: ProbeReport(run=RUN, turn=number, digest=make_digest(part, stage=number if alone else None))
        for name, part in zip(names(len(parts)), parts, strict=True)
    }


def stages(*last: MadeStage, slow: bool = True) -> list[MadeStage]:
    """What one of two units measured: its share of 500, of 1000, and of what followed."""
    return [MadeStage(250), MadeStage(500, extend_ms=800 if slow else 2), *last]


def following(run: SharedRun, told: dict[str, ProbeReport], folder: Path) -> NextLoad:
    return next_load(FromDigests(run, dict.fromkeys(told, word(phase="up")), told, folder))


def lowering(**fields: Any) -> Recovery:
    return Recovery(stages=[(500, True), (1000, False)], broken=1000, before=500, **fields)


def test_after_a_last_stage_that_broke_on_all_units_together_the_load_goes_down(tmp_path: Path) -> None:
    # given two units, and a last stage in which one of them was slow enough for both
    told = reports(tmp_path, [stages(), stages()], 2, alone=False)
    # when the leader judges it
    found = following(a_run(turn(1), turn(2)), told, tmp_path)
    # then it knows which loads held, and the first lower load is next, for as long as the last stage
    assert (found.after, found.load, found.fresh, found.hold, found.stop) == (2, 900, False, 8, "")
    assert found.recovery == lowering()
    assert [*tmp_path.glob("judging-*")] == []


def test_nothing_follows_a_last_stage_that_held(tmp_path: Path) -> None:
    told = reports(tmp_path, [stages(slow=False)] * 2, 2, alone=False)
    found = following(a_run(turn(1), turn(2)), told, tmp_path)
    assert found.load is None
    assert found.recovery is not None
    assert (found.recovery.skipped, found.recovery.over) == ("the last load passed", True)


def test_a_load_that_only_one_unit_measured_is_not_known_to_have_held(tmp_path: Path) -> None:
    # given a unit whose report has no more than the last stage
    whole = reports(tmp_path, [stages(), stages()], 2, alone=False)
    last = reports(tmp_path / "again", [stages(), stages()], 2)
    told = {**whole, names(2)[1]: last[names(2)[1]]}
    found = following(a_run(turn(1), turn(2)), told, tmp_path)
    # then the load before it does not count as held
    assert found.recovery is not None
    assert (found.recovery.stages, found.recovery.before) == ([(500, None), (1000, False)], None)


def test_a_lower_load_at_which_thresholds_hold_again_is_the_last_one(tmp_path: Path) -> None:
    # given a first lower load that both units answered in time, and a new leader that knows the run alone
    told = reports(tmp_path, [stages(MadeStage(450, kind="recover"))] * 2, 3)
    run = SharedRun.model_validate_json(
        a_run(turn(2), turn(3, 900), recovery=lowering()).model_dump_json(exclude_none=True)
    )
    # when it judges that
    found = following(run, told, tmp_path)
    # then the recovery is over, and has when thresholds were met again
    assert found.load is None
    assert found.recovery is not None
    assert found.recovery.over
    (shown,) = found.recovery.loads
    assert (shown.stage, shown.load, shown.held, shown.seconds) == (3, 900, True, 10)
    assert shown.after is not None
    assert 0 <= shown.after <= 3


def test_thresholds_hold_again_only_if_they_do_for_all_units_together(tmp_path: Path) -> None:
    # given a lower load whose share one of two units still has answered late
    slow = stages(MadeStage(450, kind="recover", extend_ms=800))
    told = reports(tmp_path, [stages(MadeStage(450, kind="recover")), slow], 3)
    found = following(a_run(turn(2), turn(3, 900), recovery=lowering()), told, tmp_path)
    # then the next one follows, and the first is known to have stayed broken
    assert (found.after, found.load) == (3, 750)
    assert found.recovery is not None
    assert [(shown.load, shown.held) for shown in found.recovery.loads] == [(900, False)]
    assert found.recovery.lowered == turn(3).begin


def test_a_step_that_ended_early_and_did_not_hold_on_all_units_at_once_comes_again(tmp_path: Path) -> None:
    # given an early end, and a unit whose share was answered late all the time
    slow = stages(MadeStage(450, kind="recover", extend_ms=800))
    told = reports(tmp_path, [stages(MadeStage(450, kind="recover")), slow], 3)
    lower = turn(3, 900)
    assert lower.hold is not None
    ended = turn(3, 900, ends=lower.hold + 8.0, lasts=20.0)
    found = following(a_run(turn(2), ended, recovery=lowering()), told, tmp_path)
    # then that step says nothing, and the same load follows
    assert (found.load, found.fresh) == (900, False)
    assert found.recovery is not None
    (shown,) = found.recovery.loads
    assert (shown.held, shown.after, shown.seconds) == (None, None, 10)
    assert shown.nothing == "thresholds held on each unit for a while, but not on all of them at once"


@pytest.mark.parametrize("lost", [True, False])
def test_a_unit_that_is_lost_or_cannot_lower_its_share_ends_it_with_the_reason(
    tmp_path: Path, lost: bool
) -> None:
    told = reports(tmp_path, [stages(MadeStage(450, kind="recover"))] * 2, 3)
    run = a_run(turn(2), turn(3, 900), recovery=lowering())
    if lost:
        run = run.model_copy(update={"missing": {names(2)[1]: "the unit was removed"}})
        why = "load-claimer/1 is missing: the unit was removed"
    else:
        why = "90 leases of the load before could not be removed"
        told[names(2)[0]] = told[names(2)[0]].model_copy(update={"missing": why})
    found = following(run, told, tmp_path)
    assert (found.load, found.stop) == (None, "")
    assert found.recovery is not None
    assert found.recovery.over
    assert [(shown.held, shown.missing) for shown in found.recovery.loads] == [(None, why)]


def test_a_unit_that_is_lost_in_the_last_stage_leaves_no_load_to_lower(tmp_path: Path) -> None:
    run = a_run(turn(1), turn(2), missing={names(2)[1]: "the unit was removed"})
    found = following(run, {}, tmp_path)
    assert found.recovery is not None
    assert found.recovery.skipped == "load-claimer/1 is missing: the unit was removed"
    assert found.recovery.over


def test_after_a_search_a_load_that_broke_comes_again_from_nothing(tmp_path: Path) -> None:
    # given a search that ended with loads that broke
    plan = {
        **{"name": "search", "find": {"start": 100, "limit": 800, "hold": "8s", "over": "2s"}},
        **{"workload": {"renew_time": "5s"}, "after": "recover"},
        "thresholds": [{"operation": "extend", "p90": "50ms"}],
    }

    def probe(number: int, size: float, held: bool) -> ProbeEvent:
        fresh = {"fresh": False, "margins": [], "broken": [], "began": 10.0 * number, "seconds": 10.0}
        return ProbeEvent.model_validate({"stage": number, "size": size, "held": held, **fresh})

    probes = [probe(1, 300, True), probe(2, 400, False), probe(3, 360, False), probe(4, 360, False)]
    again = turn(5, 360, stage=1, fresh=True)
    run = shared(2, plan, over=False, shared=True, turns=[again], probes=probes).model_copy(
        update={"found": SearchEnd(ended="resolution", limit=340, low=320), "recovery": Recovery()}
    )
    # when the load that broke has broken once more
    told = reports(tmp_path, [[MadeStage(180, extend_ms=800)] * 5] * 2, 5)
    found = following(run, told, tmp_path)
    # then the load goes down from there, to what held before at the latest
    assert (found.load, found.fresh) == (324, False)
    assert found.recovery is not None
    assert (found.recovery.broken, found.recovery.before, found.recovery.lowered) == (360, 300, None)


def test_the_report_of_the_run_says_whether_the_target_came_back(tmp_path: Path) -> None:
    # given a run over two listed stages and two lower loads, of which the second held
    last = [MadeStage(450, kind="recover", extend_ms=800), MadeStage(375, kind="recover")]
    parts = [write_part(tmp_path, unit, stages(*last), plan=PLAN) for unit in range(2)]
    shown = [
        LoadShown(stage=3, load=900, lowers=True, held=False, seconds=10),
        LoadShown(stage=4, load=750, lowers=True, held=True, after=12.5, seconds=10),
    ]
    run = a_run(turn(4, 750), recovery=lowering(loads=shown, over=True)).model_copy(update={"over": True})
    digests = {name: make_digest(part) for name, part in zip(names(2), parts, strict=True)}
    # when it is gathered from the units
    whole = load_run(gather(run, digests, dict.fromkeys(digests, word()), tmp_path / "out"))
    # then each load is that of all units, and the recovery is that of one machine
    assert [(stage.kind, stage.size) for stage in whole.stages] == [
        ("ramp", 500),
        ("ramp", 1000),
        ("recover", 900),
        ("recover", 750),
    ]
    comeback = analyse(whole).comeback
    assert comeback is not None
    assert (comeback.broken, comeback.before, comeback.back_at, comeback.back_after) == (1000, 500, 750, 12.5)
    assert comeback.sentence.startswith("Comes back: thresholds were met again at 750 leases, 12.5s after")
