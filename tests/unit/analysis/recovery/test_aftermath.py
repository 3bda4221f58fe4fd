"""When clients noticed a fault, when the target was back, and what it cost meanwhile."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.disturbed_runs import HOLD_BEGAN, Done, outage, steady, write_disturbed
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.recovery.aftermath import Aftermath
from tippingpoint.analysis.recovery.level import more_than_chance

LATE = [{"operation": "extend", "p99": "100ms"}]


def fault(t: float, do: str = "kill", member: str = "m1") -> dict[str, Any]:
    return {"t": t, "event": "fault", "do": do, "member": member}


def found(path: Path, operations: list[Done], **options: Any) -> list[Aftermath]:
    options = {"until": 60.0, "thresholds": LATE, **options}
    return analyse(write_disturbed(path / "run", operations, **options)).aftermaths


def only(path: Path, operations: list[Done], **options: Any) -> Aftermath:
    (after,) = found(path, operations, **options)
    return after


@settings(max_examples=40, deadline=None)
@given(
    begin=st.floats(15, 25),
    seconds=st.floats(0.6, 12),
    offset=st.integers(0, 990).map(lambda ms: ms / 1000),
    thresholds=st.sampled_from([LATE, []]),
    gave_up=st.sampled_from([1e9, 2.0, 0.5]),
)
def test_an_outage_is_noticed_and_over_within_a_second_of_what_was(
    begin: float, seconds: float, offset: float, thresholds: list[dict[str, Any]], gave_up: float
) -> None:
    # given a target that does not answer for a while; what is due then ends late, or is given up
    with tempfile.TemporaryDirectory() as directory:
        after = only(
            Path(directory),
            outage(begin, begin + seconds, 60.0, outcome="timeout", gave_up=gave_up),
            events=[fault(begin)],
            offset=offset,
            thresholds=thresholds,
        )
    # then both moments are right to the second, and so is what it cost
    assert after.noticed is not None
    assert after.recovered is not None
    assert abs(after.noticed - 0.1) < 1
    assert abs(after.recovered - seconds) < 1
    assert after.exact_to <= 0.6
    # in half a second of 40 a second, 20 fall due; the first 0.1 s of lateness is allowed
    assert after.late + after.failed >= 40 * (seconds - 0.2) - 2
    assert after.lost == 0
    assert after.worst_us is not None
    assert after.worst_us >= (min(seconds, gave_up) - 0.05) * 1e6
    assert after.before_us is not None
    assert after.before_us < 5000
    assert not after.unwatched


def test_a_fault_without_effect_is_noticed_by_nobody(tmp_path: Path) -> None:
    after = only(tmp_path, steady(HOLD_BEGAN, 60), events=[fault(20)])

    assert after.noticed_nothing
    assert (after.noticed, after.recovered, after.noticed_by) == (None, None, "")
    assert after.ended > 1000


def test_one_late_answer_is_not_nothing(tmp_path: Path) -> None:
    # given a fault after which one answer of many is later than allowed
    after = only(tmp_path, [*steady(HOLD_BEGAN, 60), Done(30.0, 30.15)], events=[fault(20)])
    # then thresholds held all the time, but it is not said that nothing was noticed
    assert (after.late, after.broken, after.noticed_nothing) == (1, False, False)


def test_one_failure_where_none_was_before_is_noticed(tmp_path: Path) -> None:
    after = only(tmp_path, [*steady(HOLD_BEGAN, 60), Done(20.1, 20.2, "error")], events=[fault(20)])

    assert (after.failed, after.noticed_by) == (1, "extend failed")
    assert after.recovered is not None
    assert after.recovered < 1.4


def test_silence_is_not_nothing(tmp_path: Path) -> None:
    # given a target of which nothing is heard for a while, with no operation counted
    operations = [done for done in steady(HOLD_BEGAN, 60) if not 20 <= done.due < 31]
    after = only(tmp_path, operations, events=[fault(20)])
    # then that is an effect, although nothing was late, failed or lost
    assert not after.noticed_nothing
    assert after.noticed_by == "silence"
    assert after.recovered is not None
    assert abs(after.recovered - 11) < 1.5


def test_a_target_that_nobody_asked_is_not_known_to_be_well(tmp_path: Path) -> None:
    # given a load that asks every four seconds
    rare = steady(HOLD_BEGAN, 110, per_second=0.25)
    after = only(tmp_path, rare, events=[fault(90)], until=110.0)
    # then what clients would have noticed in between is not known
    assert not after.noticed_nothing
    assert "no operation ended for" in after.unwatched


def test_while_the_generator_stood_still_nothing_is_known(tmp_path: Path) -> None:
    operations = [done for done in steady(HOLD_BEGAN, 60) if not 20 <= done.due < 31]
    stall = {"t": 20.0, "event": "stall", "seconds": 11.2, "cause": "stopped"}
    after = only(tmp_path, operations, events=[fault(20)], worker_events=[stall])

    assert not after.noticed_nothing
    assert not after.broken
    assert "stood still for 11.2s" in after.unwatched


def test_a_target_that_stays_away_is_not_back(tmp_path: Path) -> None:
    after = only(tmp_path, outage(20, 58, 57.0), events=[fault(20)])

    assert after.recovered is None
    assert after.broken
    assert after.watched > 30


def test_what_is_back_before_it_was_undone_stands_alone(tmp_path: Path) -> None:
    # given a member that is killed, and started again long after clients were served by others
    operations = outage(20, 21.6, 60.0)
    kill, start = found(tmp_path, operations, events=[fault(20), fault(40, "start")])

    assert (kill.what, start.what) == ("kill m1", "start m1")
    assert kill.recovered is not None
    assert abs(kill.recovered - 1.6) < 1
    assert kill.watched == 20
    assert start.noticed_nothing


def test_what_is_back_only_when_it_was_undone_is_one_row(tmp_path: Path) -> None:
    # given a member that is stopped, and nobody is served until it goes on
    after = only(tmp_path, outage(20, 30.3, 60.0), events=[fault(20, "stop"), fault(30, "continue")])

    assert after.what == "stop m1, continue m1 10s later"
    assert after.undone == 10
    assert after.recovered is not None
    assert abs(after.recovered - 10.3) < 1


def test_a_new_leader_without_a_fault_is_a_disturbance(tmp_path: Path) -> None:
    # given a leader that goes away by itself at 20 s, as polls tell two seconds later
    leaders = [
        {"t": 1.0, "event": "leader", "member": "m1"},
        {"t": 22.4, "event": "leader", "member": "m3"},
    ]
    after = only(tmp_path, outage(20, 21.8, 60.0), worker_events=leaders)
    # then it began with the first effect
    assert (after.what, after.injected, after.noticed) == ("leader m1 to m3", False, None)
    assert abs(after.t - 20) < 0.7
    assert after.recovered is not None
    assert abs(after.recovered - 1.8) < 1
    assert after.noticed_by == "extend late"


def test_a_level_that_thresholds_missed_before_is_what_was_usual(tmp_path: Path) -> None:
    # given a target that was too slow for its threshold before the fault
    slow = [
        Done(done.due, done.due + (0.2 if done.due < 20 or done.due > 23 else 2.0)) for done in steady(2, 60)
    ]
    after = only(tmp_path, slow, events=[fault(20)])

    assert not after.by_thresholds
    assert after.recovered is not None
    assert abs(after.recovered - 5) < 1


@given(hits=st.integers(0, 3000), tries=st.integers(1, 3000), share=st.floats(0.0001, 0.5))
def test_as_many_as_expected_are_never_more_than_chance(hits: int, tries: int, share: float) -> None:
    if hits <= share * tries:
        assert not more_than_chance(hits, tries, share, 0.001)
