"""What is asked of every run that was simulated. Each question raises AssertionError with what was found."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.sentences import expect_document_readable, expect_no_contradiction
from tests.simulation.runs import Ended, Played
from tests.simulation.together import PlayedTogether
from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.report import render_report
from tippingpoint.report.document import build_document
from tippingpoint.rundir.event_shapes import is_sound
from tippingpoint.rundir.histogram import decode_batch
from tippingpoint.rundir.journal import read_interval_log
from tippingpoint.rundir.results import load_run
from tippingpoint.util.exit_codes import MET, MISSED, TARGET_FAILED, WITHHELD

_TOGETHER = 1.0
"""Seconds within which units begin to hold a turn."""
_EXIT_CODES = {"met": MET, "missed": MISSED, "failed": TARGET_FAILED, "withheld": WITHHELD}


def ask_all(played: Played) -> Analysis | None:
    """Ask everything; returns the analysis of the run, None where the run was refused."""
    _ask_of_the_service(played)
    if played.directory is None:
        assert "\n" not in played.refused
        return None
    _ask_of_events(played.directory)
    analysis = analyse(load_run(played.directory))
    _ask_of_figures(played, analysis)
    _ask_of_report(analysis, searched="find" in played.drawn.plan)
    return analysis


def ask_together(played: PlayedTogether) -> Analysis | None:
    """Ask everything of a run of many units; returns the analysis of the whole run, None where there is none."""
    if played.run is None:
        assert "\n" not in played.refused
        return None
    _ask_of_the_service(played)
    measured = [part for part in played.parts if any(part.glob("worker-*.hlog"))]
    for directory in measured:
        _ask_of_events(directory)
    _ask_of_answers(played.answered, measured)
    _ask_of_turns(played, measured)
    if played.gathered is None:
        assert not _is_whole(played), f"no report: {played.no_report}"
        return None
    _ask_of_events(played.gathered)
    analysis = analyse(load_run(played.gathered))
    _ask_of_report(analysis, searched="find" in played.drawn.plan)
    return analysis


def _ask_of_the_service(ended: Ended) -> None:
    assert ended.loaded_after == 0, f"{ended.loaded_after} operations were sent after the end"
    assert not ended.left, f"nobody has removed {ended.left}"
    assert not ended.gone, f"gone is what others had: {ended.gone}"


def _is_whole(played: PlayedTogether) -> bool:
    """Whether no unit was lost on the way."""
    return played.run is not None and not played.run.missing and not played.drawn.events


def _ask_of_turns(played: PlayedTogether, parts: list[Path]) -> None:
    """All units hold a turn at the same time, unless hooks are late or something happens to units."""
    if played.drawn.events or played.drawn.hooks == "slow":
        return
    begun: defaultdict[int, list[float]] = defaultdict(list)
    for part in parts:
        run = load_run(part)
        ahead = played.drawn.clocks[int(part.name.rpartition(".")[2])]
        for stage in run.stages:
            if stage.hold_begin is not None:
                begun[stage.number].append(run.manifest.started - ahead + stage.hold_begin)
    for turn, moments in begun.items():
        assert max(moments) - min(moments) < _TOGETHER, f"turn {turn} was held from {moments} on"


def _ask_of_events(directory: Path) -> None:
    for file in directory.glob("*.jsonl"):
        for line in file.read_bytes().splitlines():
            event = json.loads(line)
            assert "event" not in event or is_sound(event), f"readers take this for damaged: {event}"


def _ask_of_figures(played: Played, analysis: Analysis) -> None:
    """No answer is counted that never came, and none is forgotten but by a worker that was killed, or that had given
    the lease up before its answer came."""
    assert played.directory is not None
    recorded = _ask_of_answers(played.answered, [played.directory])
    in_stages = sum(stage.count("extend") for stage in analysis.run.stages)
    assert in_stages <= recorded["extend.ok"], f"{in_stages} extensions of {recorded['extend.ok']} recorded"


def _ask_of_answers(answers: Mapping[tuple[str, str], int], directories: Sequence[Path]) -> Counter[str]:
    """Return how many answers are recorded; no more than a process got that was alive."""
    recorded: Counter[str] = Counter()
    for file in [file for directory in directories for file in directory.glob("worker-*.hlog")]:
        log = read_interval_log(file)
        batch = decode_batch(log.encoded)
        for row, count in zip(batch.rows.tolist(), batch.counts.tolist(), strict=True):
            recorded[log.tags[row]] += count
    for operation, outcome, said in (
        ("claim", "claim.ok", "ok"),
        ("claim", "claim.denied", "no"),
        ("extend", "extend.ok", "ok"),
    ):
        answered = answers.get((operation, said), 0)
        assert recorded[outcome] <= answered, f"{outcome}: {recorded[outcome]} of {answered} answers"
    return recorded


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
