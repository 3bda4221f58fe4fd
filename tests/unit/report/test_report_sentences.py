"""No sentence of a report contradicts another, or is written as no person writes: over made-up runs of many shapes.

test_report_consistency.py has the same of runs that are read from journals.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.made.made_runs import made_run, made_stage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.knee import NoKnee, find_knee
from tippingpoint.report import write_report
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult

PLAN = """
name: made
target: {{kind: etcd, endpoints: ['http://127.0.0.1:2379']}}
workload: {{kind: claim, units: 1, claim_time: 60s, renew_time: 30s}}
stages: [{stages}]
thresholds: [{thresholds}]
"""
LADDERS = (
    [1, 2, 4, 8, 16],
    [100, 200, 400, 800],
    [100, 100, 100],
    [250, 500, 1000, 2000, 4000, 8000],
    [100, 200, 200, 200, 400],
    [1, 1, 1],
    [12_500, 25_000],
)
THRESHOLDS = (
    "",
    "{operation: claim, p50: 1s}",
    "{operation: extend, p99: 100ms}",
    "{operation: extend, lost_rate: 0.5}, {operation: claim, p99: 10s}",
    "{operation: extend, throughput: 0.1}",
    "{operation: claim, error_rate: 0.0000001}",
)
KINDS = ("healthy",) * 5 + (
    "tail",
    "slow",
    "gone",
    "lost",
    "errors",
    "few lost",
    "fallen",
    "timeouts",
    "queued",
)


def samples(kind: str, size: int, chance: random.Random) -> dict[str, list[float]]:
    """What a stage of so many leases measures, in milliseconds."""
    many = min(400, max(30, 4 * size))
    fine = [2.0 * chance.lognormvariate(0, 0.3) for _ in range(many)]
    ok = {"claim.ok": fine, "extend.ok": fine}
    match kind:
        case (
            "tail"
        ):  # the typical call is as quick as before, and one in twenty takes a hundred times as long
            late = fine[: many * 19 // 20] + [900.0] * (many // 20 + 1)
            return {"claim.ok": late, "extend.ok": late}
        case "slow":
            return {name: [60 * each for each in values] for name, values in ok.items()}
        case "queued":
            return {name: [8 * each for each in values] for name, values in ok.items()}
        case "gone":  # refused at once
            return {"claim.error": [0.001] * many, "extend.error": [0.001] * many}
        case "lost":
            return {"claim.ok": fine, "extend.lost": [60_000.0] * many}
        case "errors":
            return {**ok, "extend.error": [5.0] * (many // 2), "claim.timeout": [5000.0] * (many // 3)}
        case "few lost":
            return {**ok, "extend.lost": [60_000.0] * chance.choice([1, 2, 20])}
        case "fallen":
            return {"claim.ok": fine[:20], "extend.ok": fine[:20]}
        case "timeouts":
            return {"claim.ok": fine, "extend.ok": fine[:3], "extend.timeout": [10_000.0] * many}
        case _:
            return ok


def made(seed: int) -> RunData:
    chance = random.Random(seed)
    sizes = chance.choice(LADDERS)
    kinds = [chance.choice(KINDS) for _ in sizes]
    if chance.random() < 0.4:  # a target that breaks and stays broken
        kinds = sorted(kinds, key=lambda kind: kind != "healthy")
    stages = [
        made_stage(number, size, samples(kind, size, chance))
        for number, (size, kind) in enumerate(zip(sizes, kinds, strict=True), 1)
    ]
    if chance.random() < 0.2:
        stages.append(
            made_stage(len(stages) + 1, sizes[-1], samples("errors", sizes[-1], chance), kind="storm")
        )
    plan = PLAN.format(
        stages=", ".join(f"{{leases: {size}, over: 1s, hold: 30s}}" for size in sizes),
        thresholds=chance.choice(THRESHOLDS),
    )
    return made_run(stages, plan=plan)


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
    "one of several": re.compile(  # but a list, such as 1, 1, 1 leases
        r"(?<!, )(?<![\d.,])1 (leases|claims|extends|containers|units|stages|probes|servers)\b"
    ),
    "no thousands": re.compile(r"(?<![\d.,:/_-])[1-9]\d{3,}(?![\d:/_-]| ?UTC)"),
    "a float's name": re.compile(r"\b(inf|nan)\b"),
    "an interval of nothing": re.compile(r"(95 % )(\S+) to \2\b"),
    "decimals of what is counted": re.compile(r"\d\.\d+ (leases|containers|units|probes)\b"),
}


def expect_written_as_people_write(text: str) -> None:
    for what, pattern in AS_NO_PERSON_WRITES.items():
        found = pattern.search(text)
        assert found is None, f"{what}: {text[max(0, found.start() - 80) : found.end() + 80]!r}"


def sizes_in(pattern: str, text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(pattern, text)]


def as_us(shown: str) -> float:
    value, unit = shown.replace(",", "").split()
    return float(value) * {"µs": 1, "ms": 1e3, "s": 1e6}[unit]


@pytest.mark.parametrize("block", range(4))
def test_no_sentence_contradicts_another(block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        run = made(seed)
        analysis = analyse(run)
        document = json.loads(write_report(analysis, "json"))
        tips, verdict = document["tipping"]["sentence"], document["verdict"]["sentence"]
        told = f"{seed}: {verdict} | {tips}"
        everything = " ".join([verdict, *document["verdict"]["reasons"], tips])

        # What was held through lies below all that was not held.
        not_held = sizes_in(r"([\d,]+) leases? (?:was|were) not held", everything)
        for held in sizes_in(r"held through ([\d,]+) lease", everything):
            assert all(held < size for size in not_held), told
        for through in sizes_in(r"[Nn]o cliff through ([\d,]+)", tips):
            assert "though" in tips or all(through < size for size in not_held), told

        # What bends grows, and only what is typical stays as it was.
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
            found = re.search(r"(\w+) (?:lost|failed) at ([\d,]+): larger loads did not repeat it", note)
            if found is None:
                continue
            operation, size = found[1].removesuffix("s"), float(found[2].replace(",", ""))
            larger = {stage.size for stage in run.stages if stage.size > size and stage.kind == "ramp"}
            shares = [share(run.stages, operation, each) for each in larger]
            assert 0.0 in shares or sum(each < 0.5 for each in shares) > 1, f"{told} | {note}"


def share(stages: list[StageResult], operation: str, size: float) -> float:
    """The share of an operation's calls that failed at a load, in any way."""
    tries = [stage for stage in stages if stage.size == size and stage.kind == "ramp"]
    return sum(stage.failures(operation) for stage in tries) / sum(
        stage.attempts(operation) for stage in tries
    )


@pytest.mark.parametrize("block", range(4))
def test_every_sentence_is_written_as_people_write(block: int) -> None:
    for seed in range(block * 5, block * 5 + 5):
        analysis = analyse(made(seed))
        for text in sentences(json.loads(write_report(analysis, "json"))):
            expect_written_as_people_write(text)
        markdown = write_report(analysis, "md")
        expect_written_as_people_write(
            re.sub(r"run `[^`]*`|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "", markdown)
        )
        page = re.sub(
            r"<(script|style|pre|title)\b.*?</\1>", " ", write_report(analysis, "html"), flags=re.DOTALL
        )
        page = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "", re.sub(r"<[^>]*>", " ", page))
        expect_written_as_people_write(re.sub(r"&nbsp;", " ", page))


def test_a_ladder_of_one_load_of_which_a_try_breaks_was_not_held_through_it() -> None:
    # given 100 leases three times, of which the last try fails
    fine, broken = (
        {"claim.ok": [2.0] * 100, "extend.ok": [2.0] * 100},
        {"extend.error": [5.0] * 200, "claim.ok": [2.0] * 50},
    )
    plan = PLAN.format(stages=", ".join(["{leases: 100, over: 1s, hold: 30s}"] * 3), thresholds="")
    analysis = analyse(
        made_run([made_stage(1, 100, fine), made_stage(2, 100, fine), made_stage(3, 100, broken)], plan=plan)
    )
    # then it is not held through
    assert analysis.verdict.sentence.startswith("Missed: 100 leases were not held")
    assert "held through" not in analysis.verdict.sentence


def test_a_curve_that_ends_where_nothing_succeeds_does_not_bend_to_a_microsecond() -> None:
    stages = [
        made_stage(number, size, {"claim.ok": [ms] * 200} if ms else {"claim.error": [0.001] * 200})
        for number, (size, ms) in enumerate(
            [(100, 2.7), (200, 2.7), (400, 2.8), (800, 20.0), (1600, 0.0), (3200, 0.0)], 1
        )
    ]
    found = find_knee(stages, "claim")
    assert isinstance(found, NoKnee) or found.beyond_us > 2 * found.plateau_us


def test_one_larger_load_that_lost_everything_excuses_no_failure() -> None:
    # given errors at 200, and a load above at which all leases were lost and none had an error
    fine = [2.0] * 200
    stages = [
        made_stage(1, 100, {"claim.ok": fine, "extend.ok": fine}),
        made_stage(2, 200, {"claim.ok": fine, "extend.ok": fine, "extend.error": [5.0] * 100}),
        made_stage(3, 400, {"claim.ok": fine, "extend.lost": [60_000.0] * 400}),
    ]
    tipping = analyse(made_run(stages)).tipping
    assert tipping.cliff is not None
    assert tipping.cliff.first_broken == 200
    assert not any("did not repeat it" in note and "extends" in note for note in tipping.notes)
