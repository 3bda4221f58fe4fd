"""The lines that a terminal shows of a run in progress."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tippingpoint.plan.lasting import Lasting
from tippingpoint.play.live_view import Known, OperationRow, lines_of, spark

HELD = Known(
    title="etcd-ramp",
    doing="stage 3 of 7: hold (3 s left)",
    parts=(36.0, 118.0),
    elapsed=36.0,
    left=Lasting(82.0, "about"),
    load="1,000 of 1,000 leases",
    rate="994/s",
    rates=[0, 250, 500, 1000],
    counted=[("errors", 0), ("lost", 0)],
    operations=[OperationRow("extend", 1530, 14_200, 100_000, [2000, 9000, 14_200])],
)


def shown(known: Known, width: int, since: float = 0.0, *, plain: bool = False) -> list[str]:
    return [line.plain for line in lines_of(known, width, since, plain=plain)]


def test_a_load_is_shown_with_the_whole_run_around_it() -> None:
    head, bar, load, header, extend = shown(HELD, 83)
    assert head == "⠼ etcd-ramp  stage 3 of 7: hold (3 s left)           36 s, about 1 min 22 s left"
    assert len(bar) == 80
    assert load == "1,000 of 1,000 leases   994/s   errors 0   lost 0   ▁▃▅█"
    assert header.split() == ["p50", "p99", "threshold", "p99", "so", "far"]
    assert extend == "extend      1.53 ms   14.2 ms    100 ms  ▁▆█"


@pytest.mark.parametrize("width", [20, 40, 80, 120, 160, 400])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    search = replace(
        HELD, searched="3,200 passed, 4,600 failed; the limit is between 3,100 and 4,500 with 95 %"
    )
    for known in (HELD, search, Known("a" * 70, "waiting for the last answers")):
        assert max(map(len, shown(known, width))) < width


def test_time_goes_on_between_two_looks() -> None:
    head = shown(HELD, 83, since=30.0)[0]
    assert head.endswith("1 min 06 s, about 52 s left")
    # a run that is stopped ends as soon as it can: nobody knows when
    assert shown(replace(HELD, stopping=True), 83)[0].endswith("  36 s")


def test_a_terminal_without_unicode_gets_letters_it_has() -> None:
    assert all(line.isascii() for line in shown(HELD, 83, plain=True))


def test_only_what_failed_is_red_and_only_what_is_beyond_its_limit_is_yellow() -> None:
    # given a load that comes up and is slow, whose leases are lost
    slow = OperationRow("extend", 1530, 200_000, 100_000, [200_000])
    known = replace(HELD, counted=[("errors", 0), ("lost", 3)], operations=[slow])
    # when it is shown
    styles = {
        line.plain[span.start : span.end].strip(): str(span.style)
        for line in lines_of(known, 83, 0.0)
        for span in line.spans
    }
    # then no bar looks like a failure
    assert [text for text, style in styles.items() if "red" in style] == ["lost 3"]
    assert styles["200 ms"] == "yellow"


@pytest.mark.parametrize(
    ("values", "log", "drawn"),
    [
        ([], False, ""),
        ([0.0, 0.0], False, "▁▁"),
        ([0.0, 50.0, 100.0], False, "▁▅█"),
        ([1000.0, 10_000.0, 100_000.0], True, "▁▅█"),
        ([7.0, 7.0], True, "▁▁"),
    ],
)
def test_a_small_chart_has_the_largest_as_its_highest(values: list[float], log: bool, drawn: str) -> None:
    assert spark(values, 10, log=log) == drawn
