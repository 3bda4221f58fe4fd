"""What a run's search found, in words: the answer that its probes give, however the run ended."""

from __future__ import annotations

import json
from math import floor
from pathlib import Path

import pytest

from tests.unit.made.searches import NARROWED, write_search
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.search.found import told_high, told_low
from tippingpoint.report import write_report
from tippingpoint.rundir.results import load_run


def test_an_answer_is_one_sentence_with_its_interval_what_binds_and_its_cost(tmp_path: Path) -> None:
    # given a search whose probes held up to 3,000 leases and broke from 3,200 on
    analysis = analyse(load_run(write_search(tmp_path / "run", NARROWED)))
    # then the report says so in a sentence, and nothing else names another load
    assert analysis.found is not None
    answer = analysis.found.answer
    assert answer.limit is not None
    assert 2800 < answer.low < 3200 < answer.high < 4000
    sentence = analysis.tipping.sentence
    assert 3000 <= answer.limit <= 3200
    assert sentence.startswith("Tips at 3")
    assert "leases (95 %: " in sentence
    assert "limited by extend p99 over 100 ms." in sentence
    assert f"in 2 minutes by {len(NARROWED)} probes" in sentence
    assert analysis.verdict.outcome == "met"
    assert analysis.verdict.sentence == (
        f"Met: the limit is at least {told_low(answer):,.0f} leases, "
        f"where at least {floor(100 * (answer.share or 0))} % of holds meet the thresholds (with 95 % confidence)."
    )
    assert analysis.tipping.cliff is None


def test_an_interval_is_told_no_narrower_than_it_is(tmp_path: Path) -> None:
    # given a wide interval, whose ends are told in round figures
    tried = [(500, False), (250, True), (382, True), (729, True)]
    analysis = analyse(load_run(write_search(tmp_path / "run", tried)))
    assert analysis.found is not None
    answer = analysis.found.answer
    # then neither the interval nor the load that is said to hold claims more than is known
    assert told_low(answer) <= answer.low
    assert told_high(answer) >= answer.high


def test_a_search_that_tried_no_load_below_its_interval_is_not_called_one_without_thresholds(
    tmp_path: Path,
) -> None:
    # given a search whose every probe is within its interval or above it, so none is at a load that is said to hold
    tried = [(3000, True), (3300, False)] * 3
    analysis = analyse(load_run(write_search(tmp_path / "run", tried)))
    assert analysis.found is not None
    assert 0 < told_low(analysis.found.answer) < 3000
    assert analysis.verdict.label == "met"
    # then its report calls it met, too
    assert write_report(analysis, "md").splitlines()[0].endswith(": ✅ met")
    page = write_report(analysis, "html")
    assert "no thresholds" not in page.partition('id="verdict"')[2][:200]
    assert "The plan sets none." not in page
    # and the table of thresholds says what the probes showed, although none of them is up to the answer
    assert "missed in 3 of 6 probes, the smallest at" in page


def test_a_search_whose_largest_load_held_says_so(tmp_path: Path) -> None:
    tried = [(500, True), (1000, True), (1000, True), (1000, True)]
    analysis = analyse(load_run(write_search(tmp_path / "run", tried, limit=1000)))
    assert analysis.verdict.sentence == (
        "Met: the limit is above 1,000 leases, the largest load that the plan allows: it passed in 3 of 3 probes."
    )
    assert analysis.tipping.sentence.startswith(
        "Passes at 1,000 leases, the largest load that the plan allows."
    )


def test_a_search_ended_by_what_it_said_then_whatever_would_be_asked_for_now(tmp_path: Path) -> None:
    # given a search that its model of that day ended, and that the model of today would go on with
    run = write_search(tmp_path / "run", [(500, True), (2000, False), (1000, True)])
    assert "the search had not ended" in analyse(load_run(run)).tipping.sentence
    with (run / "events.jsonl").open("a") as events:
        events.write('{"t": 31.0, "event": "found", "ended": "within"}\n')
    # then the report has the reason of that day
    assert "its time ran out" in analyse(load_run(run)).tipping.sentence


def test_a_search_without_a_load_that_broke_is_withheld(tmp_path: Path) -> None:
    analysis = analyse(load_run(write_search(tmp_path / "run", [(500, True), (1000, True)])))
    assert analysis.verdict.outcome == "withheld"
    assert analysis.tipping.sentence.startswith(
        "No limit was found because no load has failed yet: 1,000 leases passed."
    )


def test_probes_that_say_nothing_are_no_statement_on_the_target(tmp_path: Path) -> None:
    analysis = analyse(load_run(write_search(tmp_path / "run", [(500, None), (500, None)])))
    assert analysis.verdict.outcome == "withheld"
    assert "the generator itself was the bottleneck" in analysis.tipping.sentence


def test_further_thresholds_have_limits_from_the_same_probes(tmp_path: Path) -> None:
    # given a search that also reports the limit of a p99 of 50 ms
    run = write_search(tmp_path / "run", NARROWED, also=[{"operation": "extend", "p99": "50ms"}])
    analysis = analyse(load_run(run))
    assert analysis.found is not None
    (further,) = analysis.found.further
    assert further.threshold == "extend p99 over 50 ms"
    assert further.sentence.endswith("limited by extend p99 over 50 ms.")


@pytest.mark.parametrize("form", ["md", "html", "junit"])
def test_every_format_has_the_answer(tmp_path: Path, form: str) -> None:
    assert (
        "95 %" in write_report(analyse(load_run(write_search(tmp_path / "run", NARROWED))), form)
        or form == "junit"
    )


def test_the_document_has_the_answer_its_curve_and_every_probe(tmp_path: Path) -> None:
    document = json.loads(write_report(analyse(load_run(write_search(tmp_path / "run", NARROWED))), "json"))
    search = document["search"]
    assert [each["size"] for each in search["probes"]] == [load for load, _ in NARROWED]
    assert search["answer"]["limit"] == pytest.approx(3100, rel=0.05)
    assert search["answer"]["curve"][0]["chance"] > 0.9
    assert document["tipping"]["point"]["last_held"] <= search["answer"]["low"]


def test_the_table_of_thresholds_counts_what_broke_and_what_was_not_judged_in_all_probes(
    tmp_path: Path,
) -> None:
    # given a search with four probes that broke p99, all above its answer, and one small load that says nothing
    tried = [(500, None), *NARROWED]
    broke = sum(held is False for _, held in NARROWED)
    run = write_search(tmp_path / "run", tried)
    # then every format says so of that threshold, and of the other one that nothing broke it
    smallest = min(load for load, held in NARROWED if held is False)
    words = f"missed in {broke} of {len(tried)} probes, the smallest at {smallest:,} leases, not judged in 1"
    none = f"missed in none of {len(tried)} probes, not judged in 1"
    for form in ("md", "html", "json", "junit"):
        report = write_report(analyse(load_run(run)), form)
        assert words in report, form
        assert none in report, form
    # and the probe that says nothing does not make the rest unjudged
    entries = json.loads(write_report(analyse(load_run(run)), "json"))["thresholds"]
    assert [entry["met"] for entry in entries] == [True, True]


def test_an_interval_down_to_nothing_is_withheld_in_every_format(tmp_path: Path) -> None:
    # given a search that ended after few probes, all of them at loads that also broke
    run = write_search(tmp_path / "run", [(500, True), (500, False), (1, False), (1, True)])
    analysis = analyse(load_run(run))
    assert analysis.found is not None
    assert analysis.found.answer.limit is not None
    assert analysis.found.answer.low == 0
    # then no load is said to hold
    verdict = analysis.verdict
    assert (verdict.outcome, verdict.exit_code) == ("withheld", 4)
    assert verdict.sentence.startswith("Withheld: no load is known to pass; the limit may be anywhere up to")
    assert "(95 %: at most " in analysis.tipping.sentence
    for form in ("md", "html", "json", "junit"):
        report = write_report(analysis, form)
        assert "no load is known to pass" in report, form
        assert "95 %: 0 to" not in report, form
    assert 'errors="1"' in write_report(analysis, "junit")


def test_what_a_generator_was_said_to_be_the_limit_of_that_day_is_what_its_probes_say(tmp_path: Path) -> None:
    # given a search that ended because two small loads said nothing, although larger ones were judged
    run = write_search(tmp_path / "run", [(500, True), (2000, False), (1000, None), (1200, None)])
    with (run / "events.jsonl").open("a") as events:
        events.write('{"t": 41.0, "event": "found", "ended": "generator"}\n')
    # then its report says that of those probes, and nothing of larger loads
    sentence = analyse(load_run(run)).tipping.sentence
    assert "larger loads" not in sentence
    assert sentence.endswith("by 4 probes; 2 of them could not be judged.")


def test_larger_loads_that_say_nothing_are_counted(tmp_path: Path) -> None:
    run = write_search(tmp_path / "run", [(500, True), (1000, True), *[(2000, None)] * 3])
    sentence = analyse(load_run(run)).tipping.sentence
    assert sentence.startswith(
        "No limit was found because the generator itself was the bottleneck in all 3 probes of larger loads: "
        "1,000 leases passed."
    )


@pytest.mark.parametrize(
    ("took", "words"),
    [
        ("other programs used 40 % of", "other programs did not leave the target's processors"),
        ("the hypervisor withheld 40 % of", "the hypervisor kept withholding the target's processors"),
    ],
)
def test_a_search_that_gave_up_beside_foreign_work_names_who_it_was(
    tmp_path: Path, took: str, words: str
) -> None:
    # given probes of which the last ones say nothing, because of what else ran, and a search that ended for that
    directory = write_search(tmp_path / "run", [(500, True), (1000, None), (1000, None)])
    path = directory / "events.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        if event["event"] == "probe" and event["held"] is None:
            event |= {"foreign": f"{took} the target's processor meanwhile", "strained": ""}
    events.append({"t": 40.0, "event": "found", "ended": "foreign"})
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    # then its sentence names them
    assert words in analyse(load_run(directory)).tipping.sentence
