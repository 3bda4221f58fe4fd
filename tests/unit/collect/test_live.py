"""The report of a run in progress, from what its units said so far."""

from __future__ import annotations

from typing import Any

from tippingpoint.collect.course import Point
from tippingpoint.collect.live import live_document
from tippingpoint.conduct.director import begin_run
from tippingpoint.conduct.run_state import SharedRun, UnitProgress, UnitWord
from tippingpoint.plan.read import load_plan
from tippingpoint.report.formats.html import render_html

UNITS = ["load-claimer/0", "load-claimer/1"]
STARTED = 1_780_000_000.0


def a_run(**changes: Any) -> SharedRun:
    made = begin_run(load_plan("juju-leases-small"), UNITS, STARTED - 10.0)
    return made.model_copy(update={"started": STARTED, **changes})


def point(unit: int, at: float, **told: Any) -> Point:
    return Point(unit=UNITS[unit], t=STARTED + at, what="leases", **told)


def test_words_of_all_units_are_one_timeline_with_its_stages() -> None:
    # given two units that reach their shares of the first stage, and begin the second
    points = [
        point(0, 5, stage=1, size=5, held=2, rate=1.0, p50_ms=2.0, p99_ms=9.0),
        point(1, 6, stage=1, size=5, held=5, rate=2.0, p50_ms=1.0, p99_ms=4.0),
        point(0, 35, stage=1, size=5, held=5, rate=2.0, p50_ms=2.0, p99_ms=8.0, errors=3),
        point(0, 65, stage=2, size=12, held=6, rate=3.0, p50_ms=3.0, p99_ms=31.0, errors=3),
    ]
    document = live_document(a_run(), {}, points, "stage 2/5 ramp, 11 leases")
    # then loads are added up, latency is that of the slower one, and a hold begins once all of its load is there
    timeline = document["timeline"]
    assert timeline["t"] == [5, 6, 35, 65]
    assert timeline["gauges"] == {"held": [2, 7, 10, 11], "waiting": [3, 3, 0, 6]}
    assert timeline["latency"]["call"]["p99"] == [9000, 9000, 8000, 31000]
    assert timeline["per_second"] == {"error": [0, 0, 3 / 29, 0]}
    assert [
        (stage["size"], stage["begin"], stage["hold_begin"], stage["end"]) for stage in document["stages"]
    ] == [
        (10, 5, 35, 65),
        (17, 65, None, None),
    ]
    assert [tile["value"] for tile in document["glance"]["tiles"]] == [
        "stage 2/5 ramp",
        "11 of 17 leases",
        "31 ms",
    ]


def test_nothing_is_judged_on_the_page() -> None:
    page = render_html(
        live_document(a_run(), {}, [point(0, 5, stage=1, size=5, held=2)], "stage 1/5"), live=True
    )
    for section in ("thresholds", "tipping", "operations", "generator"):
        assert f'id="{section}"' not in page
    assert "● running" in page


def test_units_say_how_far_they_are_or_that_they_are_missing() -> None:
    told = UnitProgress(stage=1, stages=5, phase="hold", size=5, held=4, rate=2.0, p99_ms=9.0, errors=2)
    words = {UNITS[0]: UnitWord(run="x", phase="up", t=STARTED, progress=told)}
    document = live_document(a_run(missing={UNITS[1]: "its agent is gone"}), words, [], "stage 1/5 hold")
    assert [(unit["status"], unit["why"]) for unit in document["units"]] == [
        ("up", "stage 1/5 hold, 4 of 5 leases, 2/s, p99 9 ms, 2 errors"),
        ("missing", "its agent is gone"),
    ]
