"""The report of a search: the answer, the curve and every probe, in every format."""

from __future__ import annotations

import json

import pytest

from tests.unit.made.made_runs import made_run, made_stage
from tests.unit.made.made_search import FIND, probe_made, search_made
from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.report import write_report


def searched() -> Analysis:
    events = search_made(4050, [1000, 2000, 4000, 8000, 5000, 3000, 4400, 3600])
    events.append(probe_made(9, 16000, None))
    stages = [
        made_stage(event["stage"], event["size"], {"extend.ok": [10.0] * 100}, kind="find")
        for event in events
    ]
    return analyse(made_run(stages, plan=FIND, events=events))


def test_the_document_has_the_answer_the_curve_and_every_probe() -> None:
    search = json.loads(write_report(searched(), "json"))["search"]
    assert search["found"]["low"] <= search["found"]["limit"] <= search["found"]["high"]
    assert search["found"]["binds"] == "extend p99"
    assert all(low <= chance <= high for _, chance, low, high in search["found"]["curve"])
    assert [probe["held"] for probe in search["probes"]].count(None) == 1


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_every_view_says_the_same_sentence_and_names_every_outcome(form: str) -> None:
    analysis = searched()
    told = write_report(analysis, "html" if form == "html" else "md")
    assert analysis.search is not None
    assert analysis.search.sentence in told.replace("\\", "")
    for outcome in ("held", "broke", "says nothing"):
        assert outcome in told
