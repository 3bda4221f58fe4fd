"""Numbers are written as people read them, whatever their size."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tippingpoint.report import figures
from tippingpoint.util.numbers import (
    show_number,
    show_points,
    show_quantity,
    show_rate,
    show_rounded,
    show_share,
    show_times,
    show_us,
    show_value,
)
from tippingpoint.util.text import show_amount, show_count, show_load, show_size, show_sizes

any_number = (
    st.floats()
    | st.integers(-(10**30), 10**30).map(float)
    | st.floats(0, 1, allow_subnormal=True)
    | st.sampled_from([0.0, -0.0, 1.0, 0.0000005, 0.9995, 999.5, 9.995, 0.0995, 99.95, 1e15, 5e-324])
)
WRITERS: dict[str, Callable[[float], str]] = {
    "number": show_number,
    "share": show_share,
    "points": show_points,
    "rate": show_rate,
    "times": show_times,
    "latency": show_us,
    "size": show_size,
    "value": show_value,
    "two digits": lambda value: show_rounded(value, 2),
    "milliseconds": figures.milliseconds,
    "seconds": figures.seconds,
    "leases": lambda value: show_amount(abs(value), "leases"),
    "claims/s": lambda value: show_amount(value, "claims/s"),
    "load": lambda value: show_load(value, "leases"),
    "sizes": lambda value: show_sizes([value, 2 * value], "leases"),
    **{
        f"quantity in {unit or 'nothing'}": lambda value, unit=unit: show_quantity(value, unit)
        for unit in ("bytes", "bytes/s", "bits/s", "seconds", "ratio", "count", "count/s", "cores", "")
    },
}
NUMERAL = r"-?(?:\d{1,3}(?:,\d{3})+|\d{1,3})(?:\.\d+)?"


@pytest.mark.parametrize("name", WRITERS)
def test_no_number_needs_a_second_look(name: str) -> None:
    @given(any_number)
    @example(float("inf"))
    @example(float("nan"))
    @example(1e-07)
    @example(1234567.0)
    @example(1e30)
    @example(0.5)
    def written(value: float) -> None:
        text = WRITERS[name](value)
        # no exponent, no name of a float, no "-0", no endless digits
        assert not re.search(r"\d[eE][+-]?\d|inf|nan|(?<![\d.,])-0(?![.\d])", text), text
        assert len(text) < 80
        # thousands are separated, everywhere
        assert not re.search(r"(?<![.\d])\d{4}", text), text
        assert not re.search(r"\bus\b", text), text
        # a value that is not zero is not shown as zero
        if value not in (0.0,) and "seconds" not in name and not name.startswith(("load", "sizes")):
            assert not re.match(r"[+-]?0(?:\.0+)?(?![.\d])", text), text

    written()


@given(st.floats(1e-6, 1e14))
def test_what_is_read_is_the_value_to_three_digits(value: float) -> None:
    text = show_number(value)
    assert re.fullmatch(NUMERAL, text)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.006)


@given(st.floats(0, 1))
def test_only_all_and_nothing_are_100_and_0_percent(share: float) -> None:
    text = show_share(share)
    assert (text == "0 %") == (share == 0)
    assert (text == "100 %") == (share == 1 or share * 100 == 100)
    assert figures.share(share) == text


@given(any_number)
def test_a_sentence_and_a_table_print_the_same_value_alike(value: float) -> None:
    assert figures.share(value) == show_share(value)
    assert figures.latency(value) == show_us(value)
    assert figures.number(value) == show_size(value) == show_number(value)
    assert figures.rate(value) == figures.measured(value, "throughput")
    assert figures.measured(value, "error_rate") == show_share(value)
    for unit in ("bytes", "seconds", "ratio", ""):
        assert figures.quantity(value, unit) == figures.measured(value, figures.FIGURE, unit)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (show_number(1234567.0), "1,234,567"),
        (show_number(1260), "1,260"),
        (show_number(130.4), "130"),
        (show_number(1e-9), "less than 0.000001"),
        (show_number(float("inf")), "∞"),
        (show_number(1e30), "over 999 trillion"),
        (show_share(1e-9), "less than 0.001 %"),
        (show_share(0.000025), "0.0025 %"),
        (show_share(0.99999999), "more than 99.999 %"),
        (show_share(0.9996), "99.96 %"),
        (show_us(1), "1 µs"),
        (show_us(0.2), "less than 1 µs"),
        (show_us(3071), "3.07 ms"),
        (show_us(1_234_000_000), "1,234 s"),
        (show_times(14.2857), "14.3x"),
        (show_times(1.304), "1.3x"),
        (show_times(0.0794), "0.079x"),
        (show_times(1.0), "1x"),
        (figures.interval(14.0, 14.04, "p99"), "about 14x"),
        (figures.interval(14.0, 14.3, "p99"), "14x to 14.3x"),
        (show_amount(5.3, "leases"), "5 leases"),
        (show_amount(1.2, "leases"), "1 lease"),
        (show_amount(0.2, "leases"), "less than 1 lease"),
        (show_amount(5.3, "claims/s"), "5.3 claims/s"),
        (show_amount(4000, "leases"), "4,000 leases"),
        (show_sizes([1], "leases"), "1 lease"),
        (show_sizes([1, 2000], "leases"), "1 and 2,000 leases"),
        (show_sizes([1, 1], "leases"), "1 lease"),
        (show_sizes([200, 100, 200], "leases"), "200 and 100 leases"),
        (show_count(1, "probe"), "1 probe"),
        (show_value(757.8085807092493), "758"),
        (show_value("generator"), "generator"),
        (show_points(-0.0012), "-0.12 points"),
        (show_points(1e-9), "less than 0.000001 points"),
    ],
)
def test_values_as_people_write_them(written: str, expected: str) -> None:
    assert written == expected
