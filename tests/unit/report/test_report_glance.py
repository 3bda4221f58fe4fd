"""What a reader sees first of a report: what holds, where it tips, why, and how sure that is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.made.searches import NARROWED, write_search
from tests.unit.made.synthetic import MadeStage, write_run
from tests.unit.report.test_report_cluster_tests import FAILED, run_with, tried
from tippingpoint.analysis.analyse import analyse
from tippingpoint.report import write_report
from tippingpoint.rundir.results import RunData, load_run

PLAN: dict[str, Any] = {
    "name": "made",
    "stages": [{"leases": size, "hold": "8s", "over": "2s"} for size in (500, 1000, 2000, 4000)],
    "thresholds": [{"operation": "claim", "p99": "100ms"}],
}


def glance(run: RunData) -> tuple[dict[str, tuple[str, str]], str]:
    """The tiles by their titles, and how sure they are."""
    found = json.loads(write_report(analyse(run), "json"))["glance"]
    return {tile["title"]: (tile["value"], tile["words"]) for tile in found["tiles"]}, " ".join(found["sure"])


def made(path: Path, *stages: MadeStage, plan: dict[str, Any] | None = PLAN) -> RunData:
    return load_run(write_run(path / "run", stages, plan=plan))


def test_a_run_that_met_its_thresholds_tips_above_its_largest_load(tmp_path: Path) -> None:
    tiles, sure = glance(made(tmp_path, *(MadeStage(size) for size in (500, 1000, 2000, 4000))))
    assert tiles["Passes"] == ("4,000 leases", "every threshold was met up to the largest load tried")
    assert tiles["Tips at"] == ("above 4,000 leases", "no sign of tipping at any load that was sustained")
    assert tiles["Why"] == ("–", "it did not tip")
    assert sure == "Each load was tried once, so run-to-run variation is unknown."


def test_a_run_that_missed_one_names_the_range_in_which_it_tips(tmp_path: Path) -> None:
    slow = MadeStage(4000, claim_ms=400, failures={"extend.lost": 600})
    tiles, sure = glance(made(tmp_path, MadeStage(500), MadeStage(1000), MadeStage(2000), slow))
    assert tiles["Passes"] == ("2,000 leases", "the largest load up to which every threshold was met")
    assert tiles["Tips at"] == ("2,000 to 4,000 leases", "cliff: 600 of 1,960 extends lost")
    assert tiles["Why"] == ("not known", "no host metrics of the target were collected")
    assert sure == "> 99.9 % confidence that this is not chance."


def test_a_search_that_could_judge_no_load_knows_nothing_of_where_the_target_tips(tmp_path: Path) -> None:
    tiles, _ = glance(load_run(write_search(tmp_path / "run", [(500, None)])))
    assert tiles["Passes"] == ("not known", "no load is known to pass")
    assert tiles["Tips at"] == ("not known", "no load could be judged")
    assert tiles["Why"] == ("–", "")
    tiles, _ = glance(load_run(write_search(tmp_path / "failed", [(500, False)])))
    assert tiles["Tips at"][0] in ("500 leases or less", "not known")


def test_a_smallest_load_that_missed_leaves_none_that_holds(tmp_path: Path) -> None:
    tiles, _ = glance(made(tmp_path, MadeStage(500, claim_ms=400)))
    assert tiles["Passes"] == ("no load tried", "not even 500 leases")
    assert tiles["Tips at"][0] == "500 leases or less"


def test_without_thresholds_a_load_past_the_cliff_does_not_hold(tmp_path: Path) -> None:
    broken = MadeStage(2000, failures={"extend.lost": 60})
    tiles, _ = glance(made(tmp_path, MadeStage(500), MadeStage(1000), broken, plan=None))
    assert tiles["Passes"][0] == "1,000 leases"
    assert tiles["Tips at"][0] == "1,000 to 2,000 leases"


def test_a_search_has_its_limit_with_its_interval(tmp_path: Path) -> None:
    tiles, sure = glance(load_run(write_search(tmp_path / "run", NARROWED)))
    assert tiles["Passes"] == ("2,860 leases", "at least 88 % of holds meet every threshold")
    assert tiles["Tips at"] == ("3,090 leases", "extend p99 over 100 ms")
    assert sure.startswith("95 % interval of the limit: between 2,860 and 3,880 leases, from 13 probes.")


def test_a_clusters_own_tests_say_how_many_passed_and_which_took_longest() -> None:
    tiles, _ = glance(run_with(tried(1, "Flip", seconds=23.2), tried(30, "Reattach")))
    assert tiles["Passed"][0] == "2 of 2 tests"
    assert tiles["Longest"][0] == "Flip, 23.2 s"
    assert tiles["Failed"] == ("none", "")


def test_a_clusters_test_that_failed_is_named_with_what_it_broke() -> None:
    run = run_with(tried(1, "Flip"), FAILED)
    assert glance(run)[0]["Failed"] == ("SplitBrain", "one DC")
    assert "✕ tests failed" in write_report(analyse(run), "html")


def test_the_tiles_come_before_all_else_on_the_page(tmp_path: Path) -> None:
    page = write_report(analyse(made(tmp_path, *(MadeStage(size) for size in (500, 1000)))), "html")
    order = [
        page.index(part) for part in ('class="tiles"', 'id="chart-load"', 'id="thresholds"', 'id="what"')
    ]
    assert order == sorted(order)
