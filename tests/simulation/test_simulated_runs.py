"""Whole runs that are drawn from seeds, in virtual time. `./scripts/simulate` plays any number of them."""

from __future__ import annotations

import asyncio
import contextvars
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.draws import Drawn, DrawnService, Event, draw
from tests.simulation.planted import PLANTED, found_after
from tests.simulation.questions import ask_all, ask_together
from tests.simulation.runs import play
from tests.simulation.seeds import play_and_ask
from tests.simulation.together import DrawnTogether, LeaderKill, play_together
from tests.simulation.virtual_time import BOOTED, Crashed, NothingDue, virtual_time
from tippingpoint.plan.claim import CLAIM_OPERATIONS
from tippingpoint.play.stages import Stages
from tippingpoint.rundir.results import load_run
from tippingpoint.util import timing

pytestmark = [
    # Coroutines of what was killed never end; Python complains when it collects them.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <coroutine object:pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

_SEARCH = {
    **{name: value for name, value in draw(0).plan.items() if name not in ("stages", "after", "faults")},
    "workload": {"units": 1, "claim_time": "10s", "renew_time": "1s"},
    "find": {"start": 4, "limit": 200, "over": "1s", "hold": "6s", "within": "5m", "resolution": 0.3},
    "thresholds": [{"operation": "extend", "p99": "500ms"}],
    "workers": 1,
}
BLOCKS = 50
EACH = 10


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_run_ends_and_says_what_is_true(block: int, tmp_path: Path) -> None:
    for seed in range(block * EACH, (block + 1) * EACH):
        out = tmp_path / str(seed)
        try:
            play_and_ask(seed, out)
            shutil.rmtree(out)  # all that was found to be true
        except Exception as found:
            raise AssertionError(f"./scripts/simulate --seed {seed} --runs 1: {found}") from found


@pytest.mark.parametrize("seed", [1, 7])
def test_the_same_seed_is_the_same_run(seed: int, tmp_path: Path) -> None:
    def journals(out: Path) -> dict[str, bytes]:
        play_and_ask(seed, out)
        files = [*out.rglob("worker-*.hlog"), *out.rglob("*.jsonl")]
        # The process' memory, and its name, are this machine's.
        mine = re.compile(rb'"rss":[\d.]+|' + str(out).encode())
        return {str(file.relative_to(out)): mine.sub(b"", file.read_bytes()) for file in files}

    first = journals(tmp_path / "first")
    assert first
    assert journals(tmp_path / "second") == first


@pytest.mark.parametrize("killed", ["crash", "power cut"])
def test_a_search_whose_runner_is_killed_goes_on_where_it_was(killed: str, tmp_path: Path) -> None:
    """Given a search whose runner is killed in mid-run, when it is resumed half a minute later, then it ends with an
    answer, which rests on the probes of both."""
    plan = {
        name: value for name, value in draw(0).plan.items() if name not in ("stages", "after", "faults")
    } | {
        "workload": {"units": 1, "claim_time": "10s", "renew_time": "1s"},
        "find": {"start": 4, "limit": 200, "over": "1s", "hold": "4s", "within": "3m", "resolution": 0.3},
        "thresholds": [{"operation": "extend", "p99": "200ms"}],
        "workers": 1,
    }
    drawn = Drawn(0, plan, DrawnService(40.0, 0.002, 1e9, []), [Event(25.0, killed, 30.0)])
    played = play(drawn, tmp_path)
    ask_all(played)
    assert played.directory is not None
    first, second = load_run(played.cut[0]), load_run(played.directory)
    tried = [[event for event in run.events if event["event"] == "probe"] for run in (first, second)]
    assert first.manifest.status == "cut"
    assert second.manifest.status == "complete"
    assert 0 < len(tried[0]) < len(tried[1])
    assert [probe["size"] for probe in tried[1]][: len(tried[0])] == [probe["size"] for probe in tried[0]]
    assert any(event["event"] == "found" for event in second.events)


@pytest.mark.parametrize(
    "what",
    [
        "a turn played twice",
        "a hold cut short",
        "a ledger written at the end",
        "a lost lease not counted",
        "a stage's begin counted in the one before",
        "an event counted twice",
        "an event that a watcher misses",
    ],
)
def test_a_planted_defect_is_found(what: str) -> None:
    assert found_after(PLANTED[what], 20) is not None


def test_a_crash_of_what_is_planted_is_no_answer_to_a_question() -> None:
    def plant(patched: pytest.MonkeyPatch) -> None:
        patched.setattr(Stages, "begin_hold", lambda *_: 1 / 0)

    with pytest.raises(Crashed, match="ZeroDivisionError"):
        found_after(plant, 10)


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("between", [0.0, 1.0, 4.0])
def test_what_a_second_ctrl_c_cuts_is_no_failure_of_the_target(
    between: float, silent: bool, tmp_path: Path
) -> None:
    """Given claims under way, and a target that answers or has just fallen silent, when Ctrl-C is pressed twice before
    an answer is owed, then no call has failed."""
    plan = draw(0).plan | {
        "workload": {"units": 1, "claim_time": "30s", "renew_time": "1s"},
        "stages": [{"leases": 4000, "over": "4s", "hold": "10m"}],
        "thresholds": [],
        "workers": 2,
    }
    service = DrawnService(2000.0, 0.002, 1e9, [("silent", 2.0, 500.0)] if silent else [])
    drawn = Drawn(0, plan, service, [
        Event(2.5, "interrupt"), Event(2.5 + between, "interrupt"),
    ])  # fmt: skip
    played = play(drawn, tmp_path)
    ask_all(played)
    assert played.directory is not None
    measured = load_run(played.directory)
    assert measured.manifest.status == "interrupted"
    assert measured.stages[0].attempts("claim") > 0
    assert [measured.stages[0].failures(operation) for operation in CLAIM_OPERATIONS] == [0] * len(
        CLAIM_OPERATIONS
    )
    assert [event for event in measured.events if event["event"] == "error"] == []


def test_what_a_standstill_delays_later_is_the_generators_too(tmp_path: Path) -> None:
    """Given a target that is idle and far away, when the generator stands still for several renewals of each lease,
    then the extensions that it catches up with one after the other are not blamed on the target."""
    plan = draw(0).plan | {
        "workload": {"units": 1, "claim_time": "30s", "renew_time": "1s", "timeout": "5s"},
        "stages": [{"leases": 10, "over": "1s", "hold": "20s"}],
        "thresholds": [{"operation": "extend", "p99": "700ms"}],
        "workers": 1,
    }
    for name in ("find", "after", "faults"):
        plan.pop(name, None)
    service = DrawnService(1000.0, 0.3, 1e9, [])
    calm = ask_all(play(Drawn(0, plan, service, []), tmp_path / "calm"))
    stood_still = ask_all(play(Drawn(0, plan, service, [Event(8.0, "stand still", 6.0)]), tmp_path / "still"))
    assert calm is not None
    assert stood_still is not None
    assert calm.verdict.outcome == "met"
    assert stood_still.verdict.outcome == "withheld"


def test_a_search_whose_judgement_takes_long_has_its_answer(tmp_path: Path) -> None:
    """Given a search on a machine on which it takes minutes to judge a load, then it ends with what it found."""
    plan = {
        name: value for name, value in draw(0).plan.items() if name not in ("stages", "after", "faults")
    } | {
        "workload": {"units": 1, "claim_time": "30m", "renew_time": "1s"},
        "find": {"start": 4, "limit": 200, "over": "1s", "hold": "4s", "within": "30m", "resolution": 0.3},
        "thresholds": [{"operation": "extend", "p99": "200ms"}],
        "workers": 1,
    }
    drawn = Drawn(0, plan, DrawnService(40.0, 0.002, 1e9, []), [Event(3.0, "slow work", 200.0)])
    played = play(drawn, tmp_path)
    assert played.directory is not None
    run = load_run(played.directory)
    assert run.manifest.status == "complete"
    assert [event["event"] for event in run.events if event["event"] in ("probe", "found")][-2:] == [
        "probe",
        "found",
    ]


def test_a_search_that_ends_with_an_aborted_load_ends_with_it(tmp_path: Path) -> None:
    """Given a search whose load is aborted early in its hold, when no time is left for another, then nobody waits for
    the rest of that hold."""
    plan = {
        name: value for name, value in draw(0).plan.items() if name not in ("stages", "after", "faults")
    } | {
        "workload": {"units": 1, "claim_time": "30m", "renew_time": "1s", "timeout": "2s"},
        "find": {"start": 1, "limit": 200, "over": "1s", "hold": "10m", "within": "12m"},
        "thresholds": [{"operation": "extend", "p99": "200ms", "abort": True}],
        "workers": 1,
    }
    played = play(Drawn(0, plan, DrawnService(40.0, 0.002, 1e9, [("silent", 10.0, 5000.0)]), []), tmp_path)
    assert played.directory is not None
    run = load_run(played.directory)
    found = [event["t"] for event in run.events if event["event"] in ("probe", "found")]
    assert len(found) == 2
    assert max(event["t"] for event in run.events) < found[-1] + 60


def test_a_probe_that_missed_beside_foreign_work_is_repeated_when_the_work_has_gone(tmp_path: Path) -> None:
    """Given other programs that take half of the target's processor for a while in the middle of a search, then a load
    that is missed meanwhile says nothing and is tried again after the run has waited, and the answer is that of the
    target alone."""
    played = play(Drawn(0, _SEARCH, DrawnService(40.0, 0.002, 1e9, [], [(12.0, 90.0, 0.5)]), []), tmp_path)
    analysis = ask_all(played)
    assert analysis is not None
    assert analysis.found is not None
    probes, answer = analysis.found.probes, analysis.found.answer
    silent = [place for place, probe in enumerate(probes) if probe.foreign]
    waits = [event for event in analysis.run.events if event["event"] == "waited"]
    assert len(silent) == 1
    assert "other programs used" in probes[silent[0]].foreign
    assert probes[silent[0]].held is None
    assert [wait["gone"] for wait in waits] == [True]
    after = probes[silent[0] + 1]
    assert after.fresh
    assert after.began > 85.0
    assert after.size == probes[silent[0]].size
    assert answer.ended == "resolution"
    assert answer.low <= 40.0 <= answer.high
    assert analysis.verdict.outcome == "met"


def test_a_search_beside_foreign_work_that_does_not_go_is_withheld_and_says_so(tmp_path: Path) -> None:
    """Given other programs that take half of the target's processor and stay, then a load below what they leave holds,
    and the answer is withheld, which names them."""
    played = play(Drawn(0, _SEARCH, DrawnService(40.0, 0.002, 1e9, [], [(0.0, 1e9, 0.5)]), []), tmp_path)
    analysis = ask_all(played)
    assert analysis is not None
    assert analysis.found is not None
    assert analysis.found.answer.ended == "foreign"
    assert analysis.found.answer.limit is None
    assert 0 < analysis.found.answer.low <= 20.0
    assert analysis.verdict.outcome == "withheld"
    assert "other programs used 50 % of the target's processor" in analysis.verdict.sentence
    assert played.seconds < 60 * (5 + 1) + 120
    assert [event["gone"] for event in analysis.run.events if event["event"] == "waited"] == [False]


def test_a_lower_load_ends_on_all_units_once_thresholds_hold_again(tmp_path: Path) -> None:
    """Given two units that hold a load together, and a target that is silent for long enough that this load was too
    much, then both hold lower loads, each its share, until thresholds hold, and that hold ends early on both."""
    hold = 60.0
    plan = draw(0).plan | {
        "workload": {"units": 1, "claim_time": "60s", "renew_time": "500ms", "timeout": "15s"},
        "stages": [{"leases": 20, "over": "500ms", "hold": f"{hold:g}s"}],
        "thresholds": [{"operation": "extend", "p99": "2s"}],
        "after": "recover",
        "workers": 1,
    }
    service = DrawnService(2000.0, 0.002, 1e9, [("silent", 30.0, 75.0)])
    drawn = DrawnTogether(
        seed=0, plan=plan, service=service, units=2, hooks="swift", twice=False, clocks=[0.0] * 5, events=[]
    )
    played = play_together(drawn, tmp_path)
    ask_together(played)
    assert played.run is not None
    recovery = played.run.recovery
    assert recovery is not None
    assert (recovery.broken, recovery.over) == (20, True)
    assert [(shown.lowers, shown.load) for shown in recovery.loads[:1]] == [(True, 18)]
    assert recovery.loads[-1].held
    parts = [load_run(part) for part in played.parts]
    lower = [[stage for stage in part.stages if stage.kind == "recover"] for part in parts]
    assert [stages[0].size for stages in lower] == [9, 9]
    for stages in zip(*lower, strict=True):
        held = [stage.end - stage.hold_begin for stage in stages if stage.end and stage.hold_begin]
        assert len(held) == len(parts)
        assert max(held) - min(held) < 1
    assert [part.manifest.status for part in parts] == ["complete"] * 2


def test_what_a_busy_target_does_for_a_cut_run_is_removed_with_the_run_that_resumes_it(
    tmp_path: Path,
) -> None:
    """Given claims that wait at a target when the power is cut, when the search is resumed before they are carried out,
    then they are gone at its end."""
    plan = _SEARCH | {
        "workload": {"units": 3, "claim_time": "10s", "renew_time": "2s", "timeout": "1s"},
        "find": _SEARCH["find"] | {"start": 123, "limit": 246, "within": "2m", "resolution": 0.1},
        "thresholds": [{"operation": "extend", "p99": "200ms"}],
    }
    drawn = Drawn(4156, plan, DrawnService(30.7, 0.002, 1e9, []), [Event(33.0, "power cut", 10.3)])
    played = play(drawn, tmp_path)
    ask_all(played)
    assert len(played.cut) == 1
    assert not played.at_the_end


_LISTED = {
    **{name: value for name, value in _SEARCH.items() if name != "find"},
    "stages": [{"leases": 10, "over": "4s", "hold": "10s"}, {"leases": 20, "over": "4s", "hold": "10s"}],
}
_KILLED_IN: dict[str, tuple[dict[str, Any], DrawnService]] = {
    "ramp": (_LISTED, DrawnService(2000.0, 0.002, 1e9, [])),
    "find": (
        _SEARCH | {"find": _SEARCH["find"] | {"limit": 40, "within": "1m"}},
        DrawnService(50.0, 0.002, 1e9, []),
    ),
    "storm": (
        _LISTED | {"faults": [{"do": "drop-claims", "stage": 1, "at": "5s"}]},
        DrawnService(2000.0, 0.002, 1e9, []),
    ),
    "recover": (
        _LISTED | {"stages": [{"leases": 20, "over": "500ms", "hold": "20s"}], "after": "recover"},
        DrawnService(2000.0, 0.002, 1e9, [("silent", 30.0, 75.0)]),
    ),
    "destroy": (
        {
            **{name: _LISTED[name] for name in ("name", "target", "workers")},
            "thresholds": [{"operation": "create", "p90": "1s"}],
            "workload": {"kind": "spawn", "until": "created", "rate": 2, "observe_every": "0s"},
            "stages": [
                {"groups": 1, "instances": 12, "hold": "5s"},
                {"groups": 1, "instances": 2, "hold": "5s"},
            ],
        },
        DrawnService(20.0, 0.002, 1e9, []),
    ),
}


@pytest.mark.parametrize("held", [False, True], ids=["coming up, leads on", "held, deposed"])
@pytest.mark.parametrize("kind", _KILLED_IN)
def test_a_run_goes_on_when_the_leaders_agent_is_killed(kind: str, held: bool, tmp_path: Path) -> None:
    """In each kind of turn, whether that unit leads on or another one does, and nothing is played twice."""
    plan, service = _KILLED_IN[kind]
    drawn = DrawnTogether(
        seed=0,
        plan=plan,
        service=service,
        units=2,
        hooks="swift",
        twice=False,
        clocks=[0.0] * 5,
        events=[],
        leader_kill=LeaderKill(kind, held, after=0.3, back=5.0, deposed=held),
    )
    played = play_together(drawn, tmp_path)
    assert played.leader_killed == [f"{kind} {'held' if held else 'coming up'}"]
    ask_together(played)


def test_an_hour_passes_at_once_on_every_clock() -> None:
    with virtual_time() as loop:
        before = timing.monotonic(), timing.wall()
        loop.run_until_complete(asyncio.sleep(3600))
        assert timing.monotonic() - before[0] == pytest.approx(3600, abs=1e-3)
        assert timing.wall() - before[1] == pytest.approx(3600, abs=1e-3)
        assert loop.time() - BOOTED == pytest.approx(3600, abs=1e-3)


def test_an_exception_in_a_callback_ends_a_simulation() -> None:
    with virtual_time() as loop:
        loop.call_later(1, lambda: 1 / 0)
        with pytest.raises(Crashed, match="ZeroDivisionError"):
            loop.run_until_complete(asyncio.sleep(2))


def test_an_exception_in_a_task_that_nobody_waits_for_ends_a_simulation() -> None:
    async def fail() -> None:
        raise OSError

    with virtual_time() as loop:
        loop.start(fail(), contextvars.copy_context())
        with pytest.raises(Crashed, match="OSError"):
            loop.run_until_complete(asyncio.sleep(2))


def test_those_who_wait_for_each_other_are_found() -> None:
    with virtual_time() as loop, pytest.raises(NothingDue):
        loop.run_until_complete(loop.create_future())
