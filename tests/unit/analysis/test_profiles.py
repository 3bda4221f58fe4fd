"""What profiles on the plateau and where the target tipped tell, beside what is known to differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.made.made_profiles import made_profile
from tests.unit.made.made_runs import made_run, made_stage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.profiles import FUNCTIONS, Profiled
from tippingpoint.report import write_report
from tippingpoint.rundir.pprof import Kind
from tippingpoint.rundir.profiles import TakenProfile
from tippingpoint.rundir.results import RunData

SIZES = (100, 200, 400, 800, 1600, 3200)
MS = (5.0, 5.0, 5.2, 5.1, 60.0, 400.0)
"""The latency leaves its plateau between 800 and 1,600 leases."""
PLAN = """
name: profiled
target: {kind: etcd, pprof: ["http://10.0.0.1:2379"]}
stages: [{leases: 100, hold: 30s}]
"""
Stacks = Mapping[tuple[str, ...], int]
CALM: Stacks = {("main.read", "main.serve"): 300, ("main.write", "main.serve"): 100}
"""On the plateau: 4 s of CPU time in 10 s, of which three quarters are reads."""
BUSY: Stacks = {("main.read", "main.serve"): 300, ("main.write", "main.serve"): 1500}


def taken(
    directory: Path,
    stage: int,
    stacks: Stacks,
    kind: Kind = "CPU",
    member: int = 1,
    begin: float | None = None,
) -> dict[str, Any]:
    """Keep a profile of 10 s in a stage; returns its event."""
    begins = (stage - 1) * 30.0 + 2 if begin is None else begin
    event = TakenProfile(stage=stage, kind=kind, member=member, begin=begins, seconds=10)
    (directory / event.file).write_bytes(made_profile(stacks, kind))
    return {"event": "profile", "t": begins + 10, **event.model_dump()}


def not_taken(problem: str, kind: Kind = "CPU", stage: int = 1) -> dict[str, Any]:
    return {"event": "no-profile", "t": 1.0, "stage": stage, "kind": kind, "problem": problem}


def run_of(directory: Path, *events: dict[str, Any], plan: str = PLAN, tips: bool = True) -> RunData:
    times = MS if tips else (5.0,) * len(SIZES)
    stages = [
        made_stage(number, size, {"claim.ok": [ms] * 100})
        for number, (size, ms) in enumerate(zip(SIZES, times, strict=True), start=1)
    ]
    return replace(made_run(stages, plan=plan, events=events), directory=directory)


def profiled(run: RunData) -> Profiled:
    found = analyse(run).profiled
    assert found is not None
    return found


def test_the_functions_whose_share_changed_most_are_named(tmp_path: Path) -> None:
    # given profiles at 800 and 1,600 leases
    events = [taken(tmp_path, 4, CALM), taken(tmp_path, 5, BUSY)]
    # when the run is analysed
    told = profiled(run_of(tmp_path, *events))
    # then they are compared
    (shift,) = told.shifts
    assert (shift.plateau_load, shift.tipped_load) == (800, 1600)
    assert (shift.plateau_rate, shift.tipped_rate) == (pytest.approx(0.4), pytest.approx(1.8))
    assert (shift.plateau_samples, shift.tipped_samples) == (400, 1800)
    read, write = sorted(shift.functions, key=lambda one: one.name)
    assert (read.own_plateau, read.own_tipped) == (pytest.approx(0.75), pytest.approx(1 / 6))
    assert (write.own_plateau, write.own_tipped) == (pytest.approx(0.25), pytest.approx(5 / 6))
    assert not write.chance
    assert told.sentences == [
        "While it was profiled, the target used 1.8 cores at 1,600 leases, and 0.4 at 800 leases. The share of "
        "main.write grew most, from 25 % to 83.3 %."
    ]


def test_a_function_that_calls_others_has_all_of_their_time(tmp_path: Path) -> None:
    calls: Stacks = {("main.serve",): 300, **BUSY}
    (shift,) = profiled(run_of(tmp_path, taken(tmp_path, 4, CALM), taken(tmp_path, 5, calls))).shifts
    (serve,) = [one for one in shift.functions if one.name == "main.serve"]
    assert (serve.own_plateau, serve.all_plateau) == (0, pytest.approx(1))
    assert (serve.own_tipped, serve.all_tipped) == (pytest.approx(1 / 7), pytest.approx(1))


def test_ten_functions_are_named_of_many(tmp_path: Path) -> None:
    many: Stacks = {(f"main.f{number}",): 10 * number for number in range(1, 31)}
    (shift,) = profiled(run_of(tmp_path, taken(tmp_path, 4, CALM), taken(tmp_path, 5, many))).shifts
    assert len(shift.functions) == FUNCTIONS
    assert [one.name for one in shift.functions[:3]] == ["main.read", "main.write", "main.f30"]


def test_what_few_samples_show_is_called_chance(tmp_path: Path) -> None:
    few: Stacks = {("main.read",): 3, ("main.write",): 2}
    other: Stacks = {("main.read",): 2, ("main.write",): 3}
    told = profiled(run_of(tmp_path, taken(tmp_path, 4, few), taken(tmp_path, 5, other)))
    assert all(one.chance for one in told.shifts[0].functions)
    assert told.sentences[0].endswith("No function has a clearly larger share of that than before.")


def test_the_plateau_is_at_most_half_of_the_load_that_tipped(tmp_path: Path) -> None:
    # given a search's end: 800 leases are held, and 810 are not
    stages = [
        made_stage(number, size, {"claim.ok": [ms] * 100})
        for number, (size, ms) in enumerate(
            [(100, 5.0), (200, 5.0), (400, 5.2), (800, 5.1), (810, 400.0), (1600, 900.0)], start=1
        )
    ]
    events = [taken(tmp_path, stage, BUSY if stage > 4 else CALM) for stage in range(1, 7)]
    run = replace(made_run(stages, plan=PLAN, events=events), directory=tmp_path)
    (shift,) = profiled(run).shifts
    assert (shift.plateau_load, shift.tipped_load) == (400, 810)


def test_members_are_summed_that_were_sampled_at_both_loads(tmp_path: Path) -> None:
    events = [
        *(taken(tmp_path, 4, CALM, member=member) for member in (1, 2)),
        *(taken(tmp_path, 5, BUSY, member=member) for member in (1, 2, 3)),
    ]
    (shift,) = profiled(run_of(tmp_path, *events)).shifts
    assert (shift.members, shift.plateau_rate, shift.tipped_rate) == (
        2,
        pytest.approx(0.8),
        pytest.approx(3.6),
    )


def test_waits_for_locks_are_compared_too(tmp_path: Path) -> None:
    waits: Stacks = {("sync.(*Mutex).Unlock", "main.store"): 900, ("sync.(*Mutex).Unlock", "main.log"): 100}
    few: Stacks = {("sync.(*Mutex).Unlock", "main.log"): 10}
    events = [taken(tmp_path, 4, few, "lock wait"), taken(tmp_path, 5, waits, "lock wait")]
    told = profiled(run_of(tmp_path, taken(tmp_path, 4, CALM), taken(tmp_path, 5, BUSY), *events))
    assert [shift.kind for shift in told.shifts] == ["CPU", "lock wait"]
    assert [one.name for one in told.shifts[1].functions] == ["main.log", "main.store"]
    assert told.sentences[1] == (
        "While it was profiled, the target waited 1 s of each second for locks at 1,600 leases, and 10 ms at "
        "800 leases. The share of main.store grew most, from 0 % to 90 %."
    )


def test_waits_that_hardly_last_are_not_looked_into(tmp_path: Path) -> None:
    few: Stacks = {("sync.(*Mutex).Unlock", "main.log"): 1}
    events = [taken(tmp_path, stage, few, "lock wait") for stage in (4, 5)]
    told = profiled(run_of(tmp_path, *events))
    assert told.shifts[0].functions == []
    assert told.sentences[0].endswith("and 1 ms at 800 leases: too little to look at.")


def test_a_target_that_samples_no_locks_is_told_of_in_a_line(tmp_path: Path) -> None:
    events = [taken(tmp_path, stage, {}, "lock wait") for stage in (4, 5)]
    told = profiled(run_of(tmp_path, *events))
    assert told.shifts[0].functions == []
    assert "No wait for a lock was recorded: there was none, or the target samples none." in told.sentences


def test_waits_that_only_came_where_the_target_tipped_are_shown(tmp_path: Path) -> None:
    waits: Stacks = {("sync.(*Mutex).Unlock", "main.store"): 900}
    events = [taken(tmp_path, 4, {}, "lock wait"), taken(tmp_path, 5, waits, "lock wait")]
    (shift,) = profiled(run_of(tmp_path, *events)).shifts
    (store,) = shift.functions
    assert (store.name, store.own_plateau, store.own_tipped) == ("main.store", 0, 1)


def test_without_a_profile_on_the_plateau_none_is_compared(tmp_path: Path) -> None:
    told = profiled(run_of(tmp_path, taken(tmp_path, 5, BUSY)))
    assert told.shifts == []
    assert told.sentences == [
        "Profiles of 1 stage are in the run's directory. None was compared: that takes one on the plateau and one "
        "where the target tipped."
    ]


def test_a_profile_that_reached_into_the_next_stage_does_not_count(tmp_path: Path) -> None:
    late = taken(tmp_path, 4, BUSY, begin=115.0)
    (shift,) = profiled(run_of(tmp_path, taken(tmp_path, 3, CALM), late, taken(tmp_path, 5, BUSY))).shifts
    assert shift.plateau_load == 400


def test_if_no_load_tipped_the_target_profiles_are_only_kept(tmp_path: Path) -> None:
    told = profiled(run_of(tmp_path, taken(tmp_path, 4, CALM), taken(tmp_path, 5, BUSY), tips=False))
    assert told.sentences == [
        "Profiles of 2 stages are in the run's directory, and none was compared, because no load tipped the target."
    ]


def test_why_there_is_no_profile_is_told_once(tmp_path: Path) -> None:
    problem = "10.0.0.1:2379: HTTP 404: pprof is not enabled there"
    events = [not_taken(problem, kind, stage) for kind in ("CPU", "lock wait") for stage in (1, 2)]
    assert profiled(run_of(tmp_path, *events)).sentences == [f"No profile: {problem}."]


def test_why_a_member_was_not_profiled_is_told_beside_what_others_profiles_tell(tmp_path: Path) -> None:
    """Given profiles of CPU of one member, compared or not, then why there are none of another is told as well."""
    problem = "10.0.0.2:2379: HTTP 404: pprof is not enabled there"
    events = [
        taken(tmp_path, 4, CALM),
        taken(tmp_path, 5, BUSY),
        *(not_taken(problem, kind, stage) for kind in ("CPU", "lock wait") for stage in (4, 5)),
    ]
    for tips in (True, False):
        assert profiled(run_of(tmp_path, *events, tips=tips)).sentences[1:] == [
            f"Profiles of CPU are missing: {problem}.",
            f"No profile of waits for locks: {problem}.",
        ]
    events += [taken(tmp_path, stage, {}, "lock wait") for stage in (4, 5)]
    assert profiled(run_of(tmp_path, *events)).sentences[2:] == [f"Profiles are missing: {problem}."]


def test_a_file_that_is_gone_or_damaged_is_no_profile(tmp_path: Path) -> None:
    events = [taken(tmp_path, 4, CALM), taken(tmp_path, 5, BUSY)]
    (tmp_path / "profile-5-cpu-1.pb.gz").write_bytes(b"junk")
    (tmp_path / "profile-4-cpu-1.pb.gz").unlink()
    assert profiled(run_of(tmp_path, *events)).shifts == []


def test_a_plan_that_asks_for_no_profile_has_nothing_about_them(tmp_path: Path) -> None:
    run = run_of(tmp_path, plan=PLAN.replace('pprof: ["http://10.0.0.1:2379"]', ""))
    assert analyse(run).profiled is None
    assert "profiles" not in json.loads(write_report(analyse(run), "json"))


def test_units_that_run_a_plan_together_take_none(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    run.manifest.share = (0, 2)
    assert profiled(run).sentences == ["No profile was taken: units that run a plan together take none."]


def test_the_reports_show_what_was_found(tmp_path: Path) -> None:
    analysis = analyse(run_of(tmp_path, taken(tmp_path, 4, CALM), taken(tmp_path, 5, BUSY)))
    page, markdown = write_report(analysis, "html"), write_report(analysis, "md")
    told = json.loads(write_report(analysis, "json"))["profiles"]
    assert [one["name"] for one in told["shifts"][0]["functions"]] == ["main.read", "main.write"]
    assert (
        "| function, by its share of CPU | 800 leases | 1,600 leases | with calls, 800 | with calls, 1,600 |"
        in markdown
    )
    assert "| main.write | 25 % | 83.3 % | 25 % | 83.3 % |" in markdown
    assert "<code>main.write</code>" in page
    for report in (page, markdown):
        assert told["sentences"][0] in report
