"""The headline: one line's worth of a run, folded from what its workers say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.play.run_ticks import tick_of
from tippingpoint.play.headline import Headline
from tippingpoint.play.messages import Tick
from tippingpoint.play.watcher import StageProgress
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.manifest import Manifest, TargetEntry

STAGE = StageProgress(
    elapsed=4.0, stage=3, stages=2, size=100, goal=100, things="leases", kind="storm", remaining=5.0, listed=2
)


def tick(held: int, counts: dict[str, list[int]], **fields: Any) -> Tick:
    return tick_of(held, {name: Histogram.of(values) for name, values in counts.items()}, **fields)


def begun(**fields: Any) -> Headline:
    headline = Headline()
    manifest = Manifest.model_validate(
        {"id": "r", "title": "t", "target": TargetEntry(kind="etcd"), "started": 0}
    )
    headline.began(manifest.model_copy(update=fields), Path())
    return headline


def test_there_is_none_before_the_workers_are_there() -> None:
    assert Headline().summary is None


def test_what_is_made_before_the_first_stage_is_told_until_a_stage_is_on() -> None:
    headline = begun()
    headline.preparing("units", 3, 20)
    assert headline.summary is not None
    assert (headline.summary.stage, headline.summary.preparing) == (0, "units: 3 of 20")
    headline.progress(STAGE, "0", tick(1, {}))
    assert headline.summary.preparing == ""


def test_two_workers_are_one_load_and_a_storm_is_of_its_listed_stage() -> None:
    # given two workers that renewed fast and slowly for two seconds, and claimed a little
    headline = begun()
    for _ in range(2):
        headline.progress(STAGE, "0", tick(40, {"extend.ok": [1000] * 10, "claim.ok": [9000]}))
        headline.progress(
            STAGE, "1", tick(50, {"extend.ok": [3000] * 10, "extend.lost": [1], "claim.error": [1]})
        )
    # when it is asked for
    told = headline.summary
    # then it is of both, over both seconds, and by what there is most of
    assert told is not None
    assert (told.stage, told.stages, told.kind, told.phase) == (2, 2, "storm", "storm hold")
    assert (told.size, told.held, told.what) == (100, 90, "leases")
    assert told.rate == 21.0
    assert told.p50_ms is not None
    assert told.p99_ms is not None
    assert 0.9 < told.p50_ms < 1.1
    assert 2.9 < told.p99_ms < 3.1
    assert (told.errors, told.lost) == (2, 2)


def test_containers_that_are_lost_are_counted_although_no_operation_says_so() -> None:
    headline = begun(workload="spawn", load_unit="containers")
    headline.progress(
        replace(STAGE, things="containers"), "0", tick(5, {"launch.ok": [2_000_000] * 5}, lost=2)
    )
    told = headline.summary
    assert told is not None
    assert (told.lost, told.what, told.held) == (2, "containers", 5)
    assert told.p50_ms is not None
    assert 1980 < told.p50_ms < 2020


def test_what_failed_counts_at_what_it_cost() -> None:
    # given extensions of which some were lost after 8 s, and others refused at once
    headline = begun()
    counts = {"extend.ok": [1000] * 90, "extend.lost": [8_000_000] * 10, "extend.error": [50] * 300}
    headline.progress(STAGE, "0", tick(90, counts))
    # when it is asked for
    told = headline.summary
    # then the percentiles are those that the report will have
    assert told is not None
    assert told.p50_ms is not None
    assert told.p99_ms is not None
    assert 0.9 < told.p50_ms < 1.1
    assert 7900 < told.p99_ms < 8100


def test_containers_of_which_none_was_made_have_cost_what_was_waited_for() -> None:
    headline = begun(workload="spawn", load_unit="containers")
    headline.progress(STAGE, "0", tick(0, {"launch.timeout": [60_000_000] * 3}))
    told = headline.summary
    assert told is not None
    assert told.p99_ms is not None
    assert 59_000 < told.p99_ms < 61_000
