"""When a worker stood still: from beats that come late, what waited meanwhile, and why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.rundir.standstills import LEAST, PULSE, CauseFinder, Pulse


def beating(stalls: list[tuple[float, float]], until: float = 100.0) -> Pulse:
    """A pulse that beats on time but for these times, `(begin, end)`, in which nothing ran."""
    pulse, due = Pulse(), 0.0
    while due < until:
        pulse.expect(due)
        now = max([due, *(end for begin, end in stalls if begin <= due < end)])
        pulse.beat(due, now)
        due = max(due + PULSE, now)
    pulse.expect(until + PULSE)
    return pulse


def test_a_loop_that_runs_has_not_stood_still() -> None:
    assert beating([]).stopped(0.0, 99.0) == 0.0


def test_what_waited_for_a_loop_that_stood_still_is_known_to_a_pulse() -> None:
    pulse = beating([(10.0, 10.75)])
    assert pulse.stopped(9.0, 12.0) == pytest.approx(0.75, abs=PULSE + 1e-9)
    assert pulse.stopped(10.5, 12.0) == pytest.approx(0.25)
    assert pulse.stopped(10.2, 10.3) == pytest.approx(0.1)
    assert pulse.stopped(11.0, 12.0) == 0.0
    assert pulse.stopped(5.0, 9.0) == 0.0


def test_an_answer_read_before_the_beat_that_is_late_has_waited_for_us_too() -> None:
    pulse = beating([], until=20.0)  # whose next beat is due at 20.02
    assert pulse.stopped(19.0, 21.02) == pytest.approx(1.0, abs=PULSE + 1e-9)
    assert pulse.stopped(19.0, 20.02) == 0.0


@given(
    st.lists(st.tuples(st.floats(1, 90), st.floats(0, 3)), max_size=5),
    st.tuples(st.floats(0, 95), st.floats(0, 95)).map(sorted),
)
def test_it_is_never_more_than_the_time_itself_and_misses_less_than_a_pulse_of_each(
    stalls: list[tuple[float, float]], times: list[float]
) -> None:
    since, until = times
    pulse = beating([(begin, begin + seconds) for begin, seconds in stalls])
    found = pulse.stopped(since, until)
    stood = sum(
        max(0.0, min(until, begin + seconds) - max(since, begin)) for begin, seconds in _apart(stalls)
    )
    assert 0.0 <= found <= until - since + 1e-9
    assert stood - len(stalls) * (PULSE + LEAST) - 1e-9 <= found <= stood + len(stalls) * PULSE + 1e-9


def _apart(stalls: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same times, none of them twice."""
    apart: list[tuple[float, float]] = []
    reached = 0.0
    for begin, seconds in sorted(stalls):
        end = begin + seconds
        begin = max(begin, reached)
        if end > begin:
            apart.append((begin, end - begin))
            reached = end
    return apart


STOPPED = """
import os, sys, time
from tippingpoint.rundir.standstills import CauseFinder
witness = CauseFinder()
witness.look()
began = time.monotonic()
print("looked", flush=True)
while time.monotonic() - began < 3.0:
    time.sleep(0.01)
print(witness.cause(time.monotonic() - began), witness.slept() < 0.1)
"""


def test_a_process_that_was_stopped_knows_that_it_neither_ran_nor_waited() -> None:
    # given a process that has looked how it is
    process = subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "looked\n"
    # when it is stopped, for far longer than a busy machine takes to run it again
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(4.0)
    os.kill(process.pid, signal.SIGCONT)
    # then it says so, and that its machine was not suspended
    out, _ = process.communicate(timeout=600)
    assert out == "stopped True\n"


def test_a_process_that_ran_all_the_while_was_busy() -> None:
    witness = CauseFinder()
    witness.look()
    began = time.process_time()
    while time.process_time() - began < 0.2:
        pass
    assert witness.cause(0.2) in ("busy", "steal")
    witness.close()
