"""What a reader is told of a search: one sentence, which verdict, tipping point and comparison agree with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.made.made_runs import made_run, made_stage
from tests.unit.made.made_search import FIND, probe_made, search_made
from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.compare.reach import reach_of, tips_against

AROUND = [1000, 2000, 4000, 8000, 5000, 3000, 4400, 3600, 4100, 3900, 4200, 4000, 3800, 4300.0]


def searched(events: list[dict[str, Any]], status: Any = "complete") -> Analysis:
    stages = [
        made_stage(event["stage"], round(event["size"]), {"extend.ok": [10.0] * 100}, kind="find")
        for event in events
    ]
    return analyse(made_run(stages, plan=FIND, events=events, status=status))


def test_a_limit_is_told_with_its_interval_what_binds_and_how_long_it_took() -> None:
    analysis = searched(search_made(4050, AROUND))
    search, tipping = analysis.search, analysis.tipping
    assert search is not None
    assert search.answer.limit == pytest.approx(4050, rel=0.1)
    assert tipping.sentence.startswith("Tips at ")
    assert "extend p99 over 100 ms is what binds. Found in 9 minutes by 14 probes." in tipping.sentence
    assert (analysis.verdict.outcome, analysis.verdict.exit_code) == ("met", 0)
    assert analysis.verdict.sentence.startswith(f"Met: {search.short}")
    # and no word of single probes stands beside it
    assert tipping.cliff is None
    assert tipping.point is not None
    assert tipping.point.by == "limit"


@pytest.mark.parametrize(
    ("events", "outcome", "words"),
    [
        (search_made(1e9, [1000, 8000, 64000, 64000, 64000]), "met", "Holds 64,000 leases, the largest"),
        (search_made(10, [1000, 500, 250, 1000]), None, "held"),
        ([probe_made(1, 1000, None)], "withheld", "No limit is known"),
    ],
)
def test_a_search_without_a_limit_says_why(
    events: list[dict[str, Any]], outcome: str | None, words: str
) -> None:
    analysis = searched(events)
    assert words in analysis.tipping.sentence
    assert outcome is None or analysis.verdict.outcome == outcome


def test_an_interrupted_search_tells_what_it_knows() -> None:
    analysis = searched(search_made(4050, [1000, 2000, 4000, 8000]), "interrupted")
    assert "so far" in analysis.tipping.sentence


def test_searches_whose_intervals_overlap_do_not_differ() -> None:
    base, near, far = (
        reach_of(searched(search_made(limit, [share * limit / 4050 for share in AROUND])))
        for limit in (4050, 4100, 12_000)
    )
    assert tips_against(base, near) in ("unsure", "same")
    assert tips_against(base, far) == "better"
    assert tips_against(far, base) == "worse"
