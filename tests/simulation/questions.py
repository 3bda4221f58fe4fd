"""What is asked of every run that was simulated. Each question raises AssertionError with what was found."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from tests.sentences import expect_no_contradiction, expect_readable
from tests.simulation.runs import Played
from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.report import write_report
from tippingpoint.rundir.event_shapes import is_sound
from tippingpoint.rundir.histogram import decode_batch
from tippingpoint.rundir.journal import read_interval_log
from tippingpoint.rundir.results import load_run
from tippingpoint.util.exit_codes import MET, MISSED, WITHHELD

_EXIT_CODES = {"met": MET, "missed": MISSED, "failed": MISSED, "withheld": WITHHELD}


def ask_all(played: Played) -> Analysis | None:
    """Ask everything; returns the analysis of the run, None where the run was refused."""
    assert played.loaded_after == 0, f"{played.loaded_after} operations were sent after the end"
    assert not played.left, f"clean left {played.left}"
    assert not played.gone, f"gone is what others had: {played.gone}"
    if played.directory is None:
        assert "\n" not in played.refused
        return None
    _ask_of_events(played.directory)
    analysis = analyse(load_run(played.directory))
    _ask_of_figures(played, analysis)
    _ask_of_report(analysis, searched="find" in played.drawn.plan)
    return analysis


def _ask_of_events(directory: Path) -> None:
    for file in directory.glob("*.jsonl"):
        for line in file.read_bytes().splitlines():
            event = json.loads(line)
            assert "event" not in event or is_sound(event), f"readers take this for damaged: {event}"


def _ask_of_figures(played: Played, analysis: Analysis) -> None:
    """No answer is counted that never came, and none is forgotten but by a worker that was killed, or that had given
    the lease up before its answer came."""
    assert played.directory is not None
    recorded: Counter[str] = Counter()
    for file in played.directory.glob("worker-*.hlog"):
        log = read_interval_log(file)
        batch = decode_batch(log.encoded)
        for row, count in zip(batch.rows.tolist(), batch.counts.tolist(), strict=True):
            recorded[log.tags[row]] += count
    for operation, outcome, said in (
        ("claim", "claim.ok", "ok"),
        ("claim", "claim.denied", "no"),
        ("extend", "extend.ok", "ok"),
    ):
        answered = played.answered.get((operation, said), 0)
        assert recorded[outcome] <= answered, f"{outcome}: {recorded[outcome]} of {answered} answers"
    in_stages = sum(stage.count("extend") for stage in analysis.run.stages)
    assert in_stages <= recorded["extend.ok"], f"{in_stages} extensions of {recorded['extend.ok']} recorded"


def _ask_of_report(analysis: Analysis, *, searched: bool) -> None:
    document = json.loads(write_report(analysis, "json"))
    verdict = document["verdict"]
    assert verdict["exit_code"] == _EXIT_CODES[verdict["outcome"]], verdict["sentence"]
    suite = ElementTree.fromstring(write_report(analysis, "junit"))
    red = int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
    assert (red == 0) == (verdict["outcome"] == "met"), (
        f"JUnit has {red} red, the verdict is {verdict['outcome']}"
    )
    complete = (
        searched or analysis.run.manifest.status == "complete"
    )  # a search's answer is worth what it is worth
    assert complete or verdict["outcome"] != "met", "met, though it was cut"
    expect_no_contradiction(document, analysis.run.stages)
    expect_readable(analysis)
