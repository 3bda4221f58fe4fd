"""What no report may say: sentences that contradict each other, and what no person writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.report import render_report
from tippingpoint.report.document import build_document
from tippingpoint.rundir.stages import StageResult


def sentences(document: Any) -> Iterator[str]:
    """Every text of a document that people read; what a plan says is written by people, for programs."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key not in ("repeat", "run", "made_by"):
                yield from sentences(value)
    elif isinstance(document, list):
        for value in document:
            yield from sentences(value)
    elif isinstance(document, str):
        yield document


AS_NO_PERSON_WRITES = {
    "an exponent": re.compile(r"\d[eE][+-]?\d"),
    "us for µs": re.compile(r"\d us\b"),
    "one of several": re.compile(  # but a list, such as 2, 1, 1 leases, or 2 and 1 leases
        r"(?<!, )(?<!\d and )(?<![\d.,])1 (leases|claims|extends|containers|units|stages|probes|servers)\b"
    ),
    "several of one": re.compile(r"(?<![\d.,])1 (?:[a-z-]+ )?[a-z-]+s (?:that )?(?:are|were|have)\b"),
    "no thousands": re.compile(r"(?<![\d.,:/_-])[1-9]\d{3,}(?![\d:/_-]| ?UTC)"),
    "a float's name": re.compile(r"\b(inf|nan)\b"),
    "an interval of nothing": re.compile(r"(95 % )(\S+) to \2\b"),
    "decimals of what is counted": re.compile(r"\d\.\d+ (leases|containers|units|probes)\b(?! a second)"),
}


def expect_written_as_people_write(text: str) -> None:
    text = re.sub(r"(?<!\w)/[\w./-]+", "", text)  # the names of files
    text = re.sub(r"\bremoved \d+", "", text)  # of an event, as the journal has it
    for what, pattern in AS_NO_PERSON_WRITES.items():
        found = pattern.search(text)
        assert found is None, f"{what}: {text[max(0, found.start() - 80) : found.end() + 80]!r}"


def sizes_in(pattern: str, text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(pattern, text)]


def as_us(shown: str) -> float:
    value, unit = shown.replace(",", "").split()
    return float(value) * {"µs": 1, "ms": 1e3, "s": 1e6}[unit]


def expect_no_contradiction(document: Any, stages: list[StageResult]) -> None:
    """Compare the sentences of a JSON report with each other, and with what its stages measured."""
    tips, verdict = document["tipping"]["sentence"], document["verdict"]["sentence"]
    told = f"{verdict} | {tips}"
    everything = " ".join([verdict, *document["verdict"]["reasons"], tips])

    # What was held through lies below all that was not held.
    not_held = sizes_in(r"([\d,]+) leases? (?:was|were) not held", everything)
    for held in sizes_in(r"passed up to ([\d,]+) lease", everything):
        assert all(held < size for size in not_held), told
    for through in sizes_in(r"[Nn]o cliff up to ([\d,]+)", tips):
        assert "though" in tips or all(through < size for size in not_held), told

    # What leaves its plateau grows, and only what is typical stays as it was.
    for before, after in re.findall(r"\(([\d.,]+ (?:µs|ms|s)) to ([\d.,]+ (?:µs|ms|s))\)", tips):
        assert as_us(before) < as_us(after), told
    assert not re.search(r"(?<!typical claim )(?<!typical extend )stays on its plateau", tips), told
    for why in document["tipping"]["no_knee"].values():
        assert not re.search(r"(?<!typical )latency never left", why), told

    # A run that meets its thresholds and tips says why both are true.
    cliff, point = document["tipping"]["cliff"], document["tipping"]["point"]
    if verdict.startswith("Met:") and cliff is not None:
        assert "No threshold is about" in tips or "The thresholds allow that" in tips, told
    if cliff is not None:
        assert "no saturation seen" not in document["tipping"]["no_forecast"], told
        assert "No cliff" not in tips, told
    if point is not None:
        assert point["last_held"] is None or point["last_held"] < point["first_beyond"], told

    # What larger loads did not repeat, they did not.
    for note in document["tipping"]["notes"]:
        found = re.search(
            r"([\w-]+?)(?:s| calls?)? (?:lost|failed) at ([\d,]+): larger loads did not repeat it", note
        )
        if found is None:
            continue
        operation, size = found[1], float(found[2].replace(",", ""))
        larger = {
            stage.size
            for stage in stages
            if stage.size > size and stage.kind == "ramp" and stage.attempts(operation)
        }
        shares = [share(stages, operation, each) for each in larger]
        assert 0.0 in shares or sum(each < 0.5 for each in shares) > 1, f"{told} | {note}"


def share(stages: list[StageResult], operation: str, size: float) -> float:
    """The share of an operation's calls that failed at a load, in any way."""
    tries = [stage for stage in stages if stage.size == size and stage.kind == "ramp"]
    return sum(stage.failures(operation) for stage in tries) / sum(
        stage.attempts(operation) for stage in tries
    )


def expect_readable(analysis: Analysis) -> None:
    """Look at every text of a report in each of its formats."""
    expect_document_readable(build_document(analysis))


def expect_document_readable(document: dict[str, Any]) -> None:
    """Look at every text of a run's document in each of its formats."""
    for text in sentences(json.loads(render_report(document, "json"))):
        expect_written_as_people_write(text)
    markdown = render_report(document, "md")
    expect_written_as_people_write(re.sub(r"run `[^`]*`|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "", markdown))
    page = re.sub(
        r"<(script|style|pre|title)\b.*?</\1>", " ", render_report(document, "html"), flags=re.DOTALL
    )
    page = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "", re.sub(r"<[^>]*>", " ", page))
    expect_written_as_people_write(re.sub(r"&nbsp;", " ", page))
