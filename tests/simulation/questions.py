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
from tippingpoint.rundir.histogram import Histogram
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
    _ask_of_report(analysis)
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
        for tag, encoded in zip(log.tags, log.encoded, strict=True):
            recorded[tag] += Histogram.decode(encoded).total
    for operation, outcome, said in (
        ("claim", "claim.ok", "ok"),
        ("claim", "claim.denied", "no"),
        ("extend", "extend.ok", "ok"),
    ):
        answered = played.answered.get((operation, said), 0)
        assert recorded[outcome] <= answered, f"{outcome}: {recorded[outcome]} of {answered} answers"
    in_stages = sum(stage.count("extend") for stage in analysis.run.stages)
    assert in_stages <= recorded["extend.ok"], f"{in_stages} extensions of {recorded['extend.ok']} recorded"


def _ask_of_report(analysis: Analysis) -> None:
    document = json.loads(write_report(analysis, "json"))
    verdict = document["verdict"]
    assert verdict["exit_code"] == _EXIT_CODES[verdict["outcome"]], verdict["sentence"]
    suite = ElementTree.fromstring(write_report(analysis, "junit"))
    red = int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
    assert (red == 0) == (verdict["outcome"] == "met"), f"JUnit has {red} red, the verdict is {verdict['outcome']}"
    assert (verdict["outcome"] != "met") or analysis.run.manifest.status == "complete", "met, though it was cut"
    expect_no_contradiction(document, analysis.run.stages)
    expect_readable(analysis)
