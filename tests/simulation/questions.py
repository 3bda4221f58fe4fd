"""What is asked of every run that was simulated. Each question raises AssertionError with what was found."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.sentences import expect_document_readable, expect_no_contradiction
from tests.simulation.draws import Drawn
from tests.simulation.measured import (
    ask_of_aborts,
    ask_of_answers,
    ask_of_losses,
    ask_of_stage_answers,
    ask_of_what_ran_out,
    seconds_of,
)
from tests.simulation.runs import Ended, Played
from tests.simulation.simulated.service import LIES_OF_KEYS
from tests.simulation.together import PlayedTogether
from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.analysis.latency import costs
from tippingpoint.plan.claim import CLAIM_OPERATIONS
from tippingpoint.report import render_report
from tippingpoint.report.document import build_document
from tippingpoint.rundir.event_shapes import is_sound
from tippingpoint.rundir.journal import count_of
from tippingpoint.rundir.manifest import FILE as MANIFEST
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.util.exit_codes import MET, MISSED, TARGET_FAILED, WITHHELD

_ROUNDED = 0.05
"""Seconds by which a hold may be shorter than was asked for."""
_TOGETHER = 1.0
"""Seconds within which units begin to hold a turn."""
_GIVEN_UP = "no answer when the load ended"
"""What a worker notes of a call that it gave up before its timeout."""
_EXIT_CODES = {"met": MET, "missed": MISSED, "failed": TARGET_FAILED, "withheld": WITHHELD}


def ask_all(played: Played) -> Analysis | None:
    """Ask everything; returns the analysis of the run, None where the run was refused."""
    _ask_of_the_service(played)
    searched = "find" in played.drawn.plan
    cut = [analysis for directory in played.cut if (analysis := _of_cut(directory, searched)) is not None]
    if played.directory is None:
        assert "\n" not in played.refused
        return cut[-1] if cut else None
    _ask_of_events(played.directory)
    analysis = _analysis_of(played.directory)
    left_behind = any(event["event"] == "left-behind" for event in analysis.run.events)
    assert left_behind or not played.at_the_end, f"the run ended, and left {played.at_the_end}"
    if analysis.run.manifest.workload == "spawn":
        recorded = ask_of_answers(played.answered, [*played.cut, played.directory])
        if analysis.run.manifest.status == "complete" and not (
            played.drawn.events or played.drawn.service.troubles
        ):
            made = _things_to_make(played.drawn.plan)
            done, late = recorded["create.ok"], recorded["create.timeout"]  # a late one was made, too
            assert done <= made <= done + late, f"{done} things were made of {made}, and {late} were late"
        _ask_of_report(analysis, searched=False)
        return analysis
    if analysis.run.manifest.workload == "store":
        _ask_of_store(played, analysis)
        _ask_of_report(analysis, searched=False)
        return analysis
    _ask_of_figures(played, analysis)
    if not played.drawn.events:
        ask_of_aborts(analysis.run, played.drawn.plan)
    _ask_of_stages(played, analysis)
    _ask_of_report(analysis, searched=searched)
    return analysis


def _of_cut(directory: Path, searched: bool) -> Analysis | None:
    """Ask of a run whose process was killed: what it wrote is whole, and its report says that it was cut."""
    if not (directory / MANIFEST).exists():
        return None
    _ask_of_events(directory)
    analysis = _analysis_of(directory)
    assert analysis.run.manifest.status == "cut", (
        f"its process was killed, and it is {analysis.run.manifest.status}"
    )
    _ask_of_report(analysis, searched=searched)
    return analysis


def _analysis_of(directory: Path) -> Analysis:
    """Return what a report says of a run."""
    try:
        return analyse(load_run(directory))
    except Exception as problem:
        raise AssertionError(f"no report: {problem!r}") from problem


def ask_together(played: PlayedTogether) -> Analysis | None:
    """Ask everything of a run of many units; returns the analysis of the whole run, None where there is none."""
    if played.run is None:
        assert "\n" not in played.refused
        return None
    _ask_of_the_service(played)
    _ask_of_leaders(played)
    measured = [part for part in played.parts if any(part.glob("worker-*.hlog"))]
    for directory in measured:
        _ask_of_events(directory)
    ask_of_answers(played.answered, measured)
    if "kind" not in played.drawn.plan["workload"]:  # things are lost in another way
        ask_of_losses(measured)
    _ask_of_turns(played, measured)
    for part in measured if not played.drawn.events else ():
        ask_of_aborts(load_run(part), played.drawn.plan)
    if played.gathered is None:
        assert not _is_whole(played), f"no report: {played.no_report}"
        return None
    _ask_of_events(played.gathered)
    analysis = _analysis_of(played.gathered)
    _ask_of_report(analysis, searched="find" in played.drawn.plan)
    lost = set(played.run.missing) & set(played.run.units)
    named = {unit.name for unit in analysis.run.units if unit.status != "complete"}
    assert lost <= named, f"the report has no word on {sorted(lost - named)}, which were lost"
    listed = "find" not in played.drawn.plan  # a search's answer is of the loads that were whole
    early = [unit for unit in sorted(lost) if _was_lost_under_load(analysis.run, unit)]
    assert not (early and listed) or analysis.verdict.outcome != "met", f"met, though {early} were lost"
    return analysis


def _ask_of_the_service(ended: Ended) -> None:
    assert ended.loaded_after == 0, f"{ended.loaded_after} operations were sent after the end"
    assert not ended.left, f"nobody has removed {ended.left}"
    assert not ended.gone, f"gone is what others had: {ended.gone}"
    assert not ended.unremembered, f"made before the ledger said so: {ended.unremembered}"


def _is_whole(played: PlayedTogether) -> bool:
    """Whether no unit was lost on the way."""
    return played.run is not None and not played.run.missing and not played.drawn.events


def _ask_of_leaders(played: PlayedTogether) -> None:
    """Whoever leads, no turn is named twice or changed, no load is judged twice, and the run goes on to its end."""
    for before, after in pairwise(played.published):
        known = {turn.number: turn for turn in before.turns}
        last = max(known, default=0)
        for turn in after.turns:
            said = known.get(turn.number)
            assert said is not None or turn.number > last, f"turn {turn.number} is named after {last}"
            assert said is None or turn == said.model_copy(
                update={
                    "hold": turn.hold if said.hold is None else said.hold,
                    "ends": turn.ends if said.ends is None else said.ends,
                }
            ), f"turn {turn.number} is named again: {said} became {turn}"
        assert after.probes[: len(before.probes)] == before.probes, "a load is judged again"
    run = played.run
    assert run is not None
    drawn = played.drawn
    if drawn.events or drawn.leader_kill is None or run.stopped or not any(map(run.may_return, run.units)):
        return
    if run.shared or run.recovers:
        assert run.is_answered, f"the run is over without an answer: {run.turns}"
    else:
        assert run.turns, "no turn was named"
        last_one = run.turns[-1].stage, run.turns[-1].hold is not None
        assert last_one == (len(drawn.plan["stages"]), True), f"the run ended in stage {last_one}"


def _ask_of_turns(played: PlayedTogether, parts: list[Path]) -> None:
    """All units hold a turn at the same time, unless hooks are late or something happens to units. A unit whose agent
    was killed has several parts, and may be late."""
    if played.drawn.events or played.drawn.hooks == "slow":
        return
    begun: defaultdict[int, list[float]] = defaultdict(list)
    of_unit = [
        part.name.split(".")[1] for part in parts
    ]  # after the run, and before how often it was resumed
    for part, unit in zip(parts, of_unit, strict=True):
        if of_unit.count(unit) > 1:
            continue
        run = load_run(part)
        ahead = played.drawn.clocks[int(unit)]
        for stage in run.stages:
            if stage.hold_begin is not None:
                begun[stage.number].append(run.manifest.started - ahead + stage.hold_begin)
    for turn, moments in begun.items():
        assert max(moments) - min(moments) < _TOGETHER, f"turn {turn} was held from {moments} on"


def _ask_of_events(directory: Path) -> None:
    """Every event is sound, and each worker begins and holds a stage once."""
    for file in directory.glob("*.jsonl"):
        marks: Counter[tuple[int, str]] = Counter()
        # A killed process leaves at most one partial line, the last one.
        for line in file.read_bytes().split(b"\n")[:-1]:
            event = json.loads(line)
            assert "event" not in event or is_sound(event), f"readers take this for damaged: {event}"
            if event.get("event") == "stage" and "phase" in event:
                marks[event["stage"], event["phase"]] += 1
        again = [mark for mark, count in marks.items() if count > 1 and mark[1] in ("begin", "hold")]
        assert not again or file.name == "events.jsonl", f"{file.name} has twice: {again}"


def _ask_of_figures(played: Played, analysis: Analysis) -> None:
    """No answer is counted that never came, and none is forgotten but by a worker that was killed, or that had given
    the lease up before its answer came."""
    assert played.directory is not None
    directories = [*played.cut, played.directory]
    recorded = ask_of_answers(played.answered, directories)
    drawn = played.drawn
    given_up = any(name in drawn.plan for name in ("faults", "find", "after"))
    done = {event.do for event in drawn.events}
    lost = ask_of_losses(directories) if "disk full" not in done else 0
    if not (given_up or done - {"set clock"}):
        ask_of_what_ran_out(played, analysis.run, drawn.plan["workload"], lost)
    if not (played.cut or done - {"set clock", "interrupt"}):
        ask_of_stage_answers(played, analysis.run, all_counted=not given_up)
    calm = not (drawn.events or drawn.service.troubles or given_up)
    if calm and analysis.run.manifest.status == "complete":
        answered = played.answered["extend", "ok"]
        late = recorded["extend.timeout"] + recorded["extend.lost"] + recorded["extend.error"]
        assert answered <= recorded["extend.ok"] + late, (
            f"{answered} extensions were answered, {recorded['extend.ok']} are recorded and {late} came too late"
        )
    if not (drawn.events or given_up):  # what is refused for a lease that was given up is no failure
        refused = played.answered["extend", "no"]
        assert refused <= lost, f"{refused} extensions were refused, {lost} leases are counted as lost"
    _ask_of_costs(drawn, analysis)
    in_stages = sum(stage.count("extend") for stage in analysis.run.stages)
    assert in_stages <= recorded["extend.ok"], f"{in_stages} extensions of {recorded['extend.ok']} recorded"


def _ask_of_costs(drawn: Drawn, analysis: Analysis) -> None:
    """Each call that timed out is among those whose time is judged. Where more did than a threshold lets be slow, its
    percentile is a timeout at least."""
    for stage in analysis.run.stages:
        for operation in CLAIM_OPERATIONS:
            waited = stage.count(operation) + stage.count(operation, "timeout")
            judged = costs(stage, operation).total
            assert judged >= waited, f"stage {stage.number} judges {judged} of {waited} of {operation}"
    timeout = seconds_of(drawn.plan["workload"].get("timeout", "1s"))
    stages = {stage.number: stage for stage in analysis.run.stages}
    for check in analysis.verdict.checks:
        stage = stages.get(check.stage or 0)
        if check.percentile is None or check.observed is None or stage is None or stage.kind == "find":
            continue
        # A storm, and the end of a run, give up what is in flight: it counts at its age, which may be less.
        over = min((other.begin for other in analysis.run.stages if other.begin > stage.begin), default=inf)
        given_up = sum(
            count_of(event)
            for event in analysis.run.events
            if event["event"] == "error"
            and (event.get("operation"), event.get("error")) == (check.operation, _GIVEN_UP)
            and stage.begin <= event["t"] <= over
        )
        late, served = stage.count(check.operation, "timeout") - given_up, stage.count(check.operation)
        if "after" in drawn.plan:  # what has no answer when a load is judged counts at its age
            continue
        if late > (late + served) * (1 - check.percentile / 100) + 1:
            assert check.observed >= 1e6 * (timeout - 0.01), (
                f"{check.operation} {check.limit} in stage {stage.number}: {check.observed / 1e6:.3f} s, "
                f"though {late} of {late + served} timed out after {timeout:g} s"
            )


def _ask_of_store(played: Played, analysis: Analysis) -> None:
    """A store that does not lie is not said to, one that does is a cliff, each old read is named, and where nothing
    goes wrong, all that was due is counted."""
    assert played.directory is not None
    run, drawn = analysis.run, played.drawn
    directories = [*played.cut, played.directory]
    recorded = ask_of_answers(played.answered, directories)
    lies = [kind for kind, *_ in drawn.service.troubles if kind in LIES_OF_KEYS]
    violations = [event for event in run.events if event["event"] == "violation"]
    assert lies or not violations, f"a store that does not lie is said to: {violations[0]}"
    if violations:
        cliff = analysis.tipping.cliff
        assert cliff is not None, f"there is no cliff in spite of {violations[0]}"
        assert cliff.by == "violation", f"the cliff is {cliff.by} in spite of {violations[0]}"
    stages = drawn.plan["stages"]
    light = stages[-1]["operations"] <= 0.7 * drawn.service.capacity
    if drawn.events or run.manifest.status != "complete":
        return
    old = played.answered["get", "stale"]
    named = sum(count_of(each) for each in violations if each["kind"] in ("stale-read", "key-gone"))
    assert named >= old, f"{old} reads were older than what was acknowledged before, and {named} are named"
    if drawn.service.troubles or "faults" in drawn.plan:
        return
    assert [stage.size for stage in run.stages] == [
        each["operations"] for each in stages
    ] or "expiring" in stages[0]
    for stage, asked in zip(run.stages, stages, strict=True):
        assert stage.hold_begin is not None, f"stage {stage.number} was never up"
        assert stage.end is not None
        seconds = stage.end - stage.hold_begin
        due = (asked["operations"] + asked.get("expiring", 0)) * seconds
        names = {f"{name}.{outcome}" for name in run.own_load for outcome in ("ok", "denied")}
        answered = sum(found.total for name, found in stage.held.items() if name in names)
        assert not light or answered >= 0.8 * due - 5, f"stage {stage.number} has {answered} of {due:.0f}"
        assert stage.gauges["held"] >= asked["watchers"], f"{stage.gauges['held']} of {asked['watchers']}"
        lost = stage.count("watch-event", "lost")
        assert not lost, f"{lost} events are counted as lost"
    assert not light or recorded["put.timeout"] == 0


def _things_to_make(plan: Mapping[str, Any]) -> int:
    """Return how many things a plan makes of which none vanishes."""
    made, there = 0, set[tuple[int, int]]()
    for stage in plan["stages"]:
        wanted = {(group, number) for group in range(stage["groups"]) for number in range(stage["instances"])}
        made += len(wanted - there)
        there = set() if plan["workload"]["cycle"] else wanted
    return made


def _ask_of_stages(played: Played, analysis: Analysis) -> None:
    """Each listed load of a whole run was there, in order, once and for its whole hold."""
    plan, run = played.drawn.plan, analysis.run
    if "find" in plan or run.manifest.status != "complete":
        return
    ramps = [stage for stage in run.stages if stage.kind == "ramp"]
    sizes = [stage["leases"] for stage in plan["stages"]]
    # A worker that was killed, or that can write nothing, leaves nothing of later stages unless another one has them.
    killed = any(event.do in ("kill", "disk full") for event in played.drawn.events)
    there = [stage.size for stage in ramps]
    assert there == sizes or killed, f"{there} of {sizes}"
    assert there == sizes or analysis.verdict.outcome != "met", f"met, by {there} of {sizes}"
    drawn = played.drawn
    renew = seconds_of(plan["workload"]["renew_time"])
    troubled = drawn.events or drawn.service.troubles or "faults" in plan or "after" in plan
    light = plan["workload"]["units"] == 1 and sizes[-1] <= 0.5 * drawn.service.capacity * renew
    claims = [stage.count("claim") for stage in ramps]
    if not troubled and light and sum(claims) == sizes[-1]:
        fresh = [size - before for before, size in zip([0, *sizes], sizes, strict=False)]
        assert claims == fresh, f"stages of {sizes} leases made {claims} claims"
    stormy = {fault["stage"] for fault in plan.get("faults", ())}
    for number, (stage, asked) in enumerate(zip(ramps, plan["stages"], strict=False), start=1):
        if stage.hold_begin is None or stage.end is None or number in stormy:
            continue  # a storm ends a hold, and its own goes on instead
        hold = seconds_of(asked["hold"])
        assert stage.end - stage.hold_begin > hold - _ROUNDED, (
            f"stage {stage.number} was held for {stage.end - stage.hold_begin:.3f} s of {hold:g} s"
        )


def _was_lost_under_load(run: RunData, unit: str) -> bool:
    """Return whether a unit was lost before the last listed load had been held to its end: nothing else is judged."""
    cuts = [event["t"] for event in run.events if event["event"] == "worker-cut" and event["worker"] == unit]
    ends = [stage.end for stage in run.stages if stage.kind != "recover"]
    return not cuts or not ends or any(end is None or min(cuts) < end for end in ends)


def _ask_of_report(analysis: Analysis, *, searched: bool) -> None:
    built = build_document(analysis)
    document = json.loads(render_report(built, "json"))
    verdict = document["verdict"]
    assert verdict["exit_code"] == _EXIT_CODES[verdict["outcome"]], verdict["sentence"]
    suite = ElementTree.fromstring(render_report(built, "junit"))
    red = int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
    assert (red == 0) == (verdict["outcome"] == "met"), (
        f"JUnit has {red} red, the verdict is {verdict['outcome']}"
    )
    complete = (
        searched or analysis.run.manifest.status == "complete"
    )  # a search's answer is worth what it is worth
    assert complete or verdict["outcome"] != "met", "met, though it was cut"
    expect_no_contradiction(document, analysis.run.stages)
    expect_document_readable(built)
