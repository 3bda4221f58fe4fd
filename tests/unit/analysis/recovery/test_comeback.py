"""Whether a target came back when the load that was too much for it was gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.unit.made.synthetic import MadeStage, write_run
from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.analysis.recovery.comeback import Comeback
from tippingpoint.report import write_report
from tippingpoint.rundir.results import load_run

PLAN: dict[str, Any] = {
    "name": "comes-back",
    "workload": {"renew_time": "1s"},
    "stages": [{"leases": size, "hold": "8s", "over": "2s"} for size in (500, 1000)],
    "thresholds": [{"operation": "extend", "p99": "100ms"}],
    "after": "recover",
}


def good(size: int, kind: Any = "recover") -> MadeStage:
    return MadeStage(size, extends_per_second=size, kind=kind)


def bad(size: int, kind: Any = "recover", served: float = 0.2, **more: Any) -> MadeStage:
    return MadeStage(size, extend_ms=800, extends_per_second=size * served, kind=kind, **more)


def step(stage: int, size: int, held: bool | None, after: float | None = None) -> dict[str, Any]:
    return {
        **{"t": 10.0 * stage, "event": "recovering", "stage": stage, "size": size, "held": held},
        **{"after": after, "seconds": 10.0, "broken": 1000, "before": 500},
    }


def analysed(path: Path, stages: Sequence[MadeStage], events: Sequence[dict[str, Any]]) -> Analysis:
    whole = [good(500, "ramp"), bad(1000, "ramp"), *stages]
    return analyse(load_run(write_run(path / "run", whole, plan=PLAN, events=events)))


def comeback(path: Path, stages: Sequence[MadeStage], events: Sequence[dict[str, Any]]) -> Comeback:
    found = analysed(path, stages, events).comeback
    assert found is not None
    return found


def test_a_plain_overload_comes_back(tmp_path: Path) -> None:
    found = comeback(tmp_path, [bad(900), good(750)], [step(3, 900, False), step(4, 750, True, 12.5)])

    assert not found.metastable
    assert (found.back_at, found.back_after) == (750, 12.5)
    assert found.sentence == (
        "Comes back: thresholds were met again at 750 leases, 12.5s after the load went down from 1,000 leases."
    )


def test_a_step_that_said_nothing_counts_no_more_once_it_was_repeated(tmp_path: Path) -> None:
    # given a step in which the generator was the limit, which was tried again
    strained = bad(500, cpu=1.0)
    events = [step(3, 500, False), step(4, 500, False), step(5, 0, None), step(6, 500, True, 44.0)]
    # when the repeated step stayed broken
    found = comeback(tmp_path, [strained, bad(500), good(0), good(500)], events)
    # then that is what counts
    assert [bool(each.why) for each in found.steps] == [True, False, False, False]
    assert [each.repeated for each in found.steps] == [True, False, False, False]
    assert found.metastable
    assert not found.doubt


def test_a_doubt_at_a_load_that_held_before_is_said(tmp_path: Path) -> None:
    strained = bad(500, cpu=1.0)
    events = [step(3, 500, False), step(4, 250, True, 12.5)]
    found = comeback(tmp_path, [strained, good(250)], events)

    assert found.doubt
    assert found.sentence.startswith("Comes back: ")
    assert "whether it stayed broken before that is not known" in found.sentence


def test_a_doubt_at_a_load_that_never_held_does_not_matter(tmp_path: Path) -> None:
    strained = bad(900, cpu=1.0)
    found = comeback(tmp_path, [strained, good(500)], [step(3, 900, False), step(4, 500, True, 12.5)])

    assert not found.doubt
    assert "not known" not in found.sentence


def test_a_load_that_held_before_and_stays_broken_is_a_metastable_failure(tmp_path: Path) -> None:
    stages = [bad(900), bad(500), bad(250), good(0), good(500)]
    events = [
        *(step(number, size, False) for number, size in enumerate((900, 500, 250), start=3)),
        step(6, 0, None),
        step(7, 500, True, 44.0),
    ]
    analysis = analysed(tmp_path, stages, events)
    found = analysis.comeback

    assert found is not None
    assert found.stays_broken_at == 500
    assert "a metastable failure" in found.sentence
    assert "only after a time without any load" in found.sentence
    # and the verdict says so, but is that of the loads of the plan
    assert found.sentence in analysis.verdict.reasons
    assert {check.stage for check in analysis.verdict.checks} == {1, 2}
    assert analysis.tipping.point is not None
    assert analysis.tipping.point.first_beyond == 1000
    for form in ("md", "html"):
        assert "a metastable failure" in write_report(analysis, form)


def test_a_step_that_the_generator_spoiled_breaks_nothing(tmp_path: Path) -> None:
    # given a step at a load that held before, in which the generator itself had no free core
    stages = [bad(900), bad(500, cpu=1.0)]
    found = comeback(tmp_path, stages, [step(3, 900, False), step(4, 500, False)])

    assert not found.metastable
    assert found.steps[1].held is None
    assert "not known" in found.sentence


def test_a_backlog_that_goes_down_is_no_failure_that_stays(tmp_path: Path) -> None:
    # given a target that serves all that falls due at a lower load, although late
    stages = [bad(900), bad(500, served=1.2)]
    found = comeback(tmp_path, stages, [step(3, 900, False), step(4, 500, False)])

    assert not found.metastable
    assert found.steps[1].catching_up
    assert "catching up" in found.sentence


def test_steps_that_were_left_out_are_told_with_their_reason(tmp_path: Path) -> None:
    skipped = {"t": 21.0, "event": "recovering", "skipped": "the last load passed"}
    found = comeback(tmp_path, [], [skipped])

    assert found.sentence == "No lower loads were tried: the last load passed."


def test_things_that_pile_up_leave_it_open_whether_a_failure_stays(tmp_path: Path) -> None:
    # given rates of things that stay, and a step at a rate that held before, with all that was made meanwhile
    plan = {
        "name": "piles-up",
        "target": {"kind": "lxd"},
        "workload": {"kind": "spawn", "until": "started"},
        "stages": [{"instances": 10, "rate": 500}, {"instances": 20, "rate": 1000}],
        "thresholds": [{"operation": "launch", "p99": "1s"}],
        "after": "recover",
    }
    events = [step(3, 500, False), step(4, 250, True, 12.5)]
    stages = [MadeStage(size, kind="recover") for size in (500, 250)]
    whole = [MadeStage(500), MadeStage(1000), *stages]
    # when the step stayed broken
    run = load_run(write_run(tmp_path / "run", whole, plan=plan, events=events, workload="spawn"))
    found = analyse(run).comeback
    # then it may be their number
    assert found is not None
    assert not found.metastable
    assert found.doubt == "there were more containers than when it held"
    assert (found.back_at, found.back_after) == (250, 12.5)


def test_a_load_that_could_not_be_lowered_is_not_known_to_be_held(tmp_path: Path) -> None:
    # given things that the target did not remove
    why = "90 containers of the load before could not be removed"
    found = comeback(tmp_path, [bad(900)], [{**step(3, 900, None), "why": why}])
    # then the steps ended with that
    assert found.sentence == f"It is not known whether it comes back: {why}."
