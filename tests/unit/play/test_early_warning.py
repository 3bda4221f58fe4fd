"""When a threshold with `abort` is missed so clearly that the run ends."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.play.run_ticks import tick_of
from tippingpoint.plan.base import Threshold
from tippingpoint.play.early_warning import EarlyWarning
from tippingpoint.play.messages import Tick
from tippingpoint.rundir.journal import Interval, interval_lines
from tippingpoint.rundir.recorder import Recorded

LIMIT = Threshold(operation="extend", p99=0.1, error_rate=0.2, abort=True)


def second(end: int, samples: Mapping[str, list[int]]) -> Tick:
    """A tick of the second up to `end` with these response times, in milliseconds, by tag."""
    recorded: dict[str, Interval] = {
        tag: Recorded([ms * 1000 for ms in times]) for tag, times in samples.items()
    }
    return tick_of(t=float(end), lines=interval_lines(end - 1.0, float(end), recorded))


SLOW = {"extend.ok": [2300] * 20}
FAST = {"extend.ok": [4] * 20}


def told(
    warning: EarlyWarning, seconds: Mapping[int, Mapping[str, list[int]]], *, holding: bool = True
) -> int:
    """Return the second in which the run ends, 0 if it goes on."""
    for end, samples in seconds.items():
        if warning.heard(second(end, {**samples}), holding):
            return end
    return 0


def test_a_threshold_that_is_missed_for_eight_windows_in_a_row_ends_the_run() -> None:
    warning = EarlyWarning([LIMIT])
    ended = told(warning, dict.fromkeys(range(1, 60), SLOW))

    assert ended == 16
    assert warning.missed.is_set()
    assert warning.why == "extend p99 was 2.3 s (threshold 100 ms, abort)"


def test_a_hiccup_does_not_end_the_run() -> None:
    slow = {*range(6, 17), *range(30, 41)}
    assert told(EarlyWarning([LIMIT]), {end: SLOW if end in slow else FAST for end in range(1, 60)}) == 0


def test_a_threshold_without_abort_ends_nothing() -> None:
    threshold = LIMIT.model_copy(update={"abort": False})
    assert told(EarlyWarning([threshold]), dict.fromkeys(range(1, 60), SLOW)) == 0


def test_a_window_goes_on_until_it_has_five_attempts() -> None:
    rare = {end: {"extend.ok": [2300]} for end in range(1, 60)}
    assert told(EarlyWarning([LIMIT]), rare) == 40


def test_a_rate_of_errors_is_named_as_a_share() -> None:
    warning = EarlyWarning([LIMIT])
    failing = {"extend.ok": [4] * 10, "extend.error": [4] * 10}
    assert told(warning, dict.fromkeys(range(1, 60), failing)) == 16
    assert warning.why == "extend error rate was 50 % (threshold 20 %, abort)"


def test_what_the_generator_itself_delayed_ends_nothing() -> None:
    late = {"extend.ok": [2300] * 20, "extend.ok-delayed": [2300] * 20, "extend.ok-freed": [4] * 20}
    assert told(EarlyWarning([LIMIT]), dict.fromkeys(range(1, 60), late)) == 0


def test_a_throughput_only_counts_while_the_load_is_held() -> None:
    threshold = Threshold(operation="extend", throughput=100.0, abort=True)
    seconds = dict.fromkeys(range(1, 60), FAST)
    assert told(EarlyWarning([threshold]), seconds, holding=False) == 0

    warning = EarlyWarning([threshold])
    assert told(warning, seconds) == 16
    assert warning.why == "extend throughput was 20/s (threshold 100/s, abort)"


def test_a_unit_has_to_reach_its_share_of_a_throughput() -> None:
    threshold = Threshold(operation="extend", throughput=100.0, abort=True)
    seconds = dict.fromkeys(range(1, 60), FAST)  # 20 a second

    fifth = EarlyWarning([threshold], share=lambda: 0.2)
    assert told(fifth, seconds) == 0

    quarter = EarlyWarning([threshold], share=lambda: 0.25)
    assert told(quarter, seconds) == 16
    assert quarter.why == "extend throughput was 20/s (threshold 25/s for its share of 100/s, abort)"


def test_a_unit_without_load_misses_no_throughput() -> None:
    threshold = Threshold(operation="extend", throughput=100.0, abort=True)
    warning = EarlyWarning([threshold], share=lambda: 0.0)
    assert told(warning, {end: {} for end in range(1, 60)}) == 0


def test_what_began_before_does_not_count() -> None:
    warning = EarlyWarning([LIMIT], 30.0)
    assert told(warning, dict.fromkeys(range(1, 60), SLOW)) == 46
