"""What a run's directory has on who used the processors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.made.synthetic import MadeStage, write_run
from tippingpoint.rundir.journal import Events
from tippingpoint.rundir.machine import FILE, USED, Used, used_of
from tippingpoint.rundir.results import GrowingRun, load_run

SECOND: dict[str, Any] = {
    **{"seconds": 1.0, "cpus": 2, "busy": 1.5, "ours": 0.25, "target": 0.5, "steal": 0.1, "waited": 0.2},
    "stalled": {"cpu": 0.3, "io": 0.0, "memory": 0.0},
}
EVENT = {"t": 3.0, "event": USED, **SECOND}


def test_others_are_who_is_neither_the_target_nor_we() -> None:
    (found,) = used_of([EVENT])
    assert found == Used(t=3.0, **SECOND)
    assert found.others == pytest.approx(0.75)


def test_without_the_target_others_are_not_known() -> None:
    (found,) = used_of([{**EVENT, "target": None, "waited": None}])
    assert found.others is None


@given(
    st.sampled_from(sorted(SECOND)),
    st.one_of(st.none(), st.text(max_size=3), st.lists(st.none(), max_size=2), st.floats(max_value=-0.1),
              st.just(float("nan")), st.dictionaries(st.sampled_from(["cpu"]), st.just("x"), min_size=1)),
)  # fmt: skip
def test_a_second_that_makes_no_sense_is_left_out(name: str, value: object) -> None:
    found = used_of([EVENT, {**EVENT, name: value}, {"t": 4.0, "event": "else"}])
    assert len(found) == (2 if value is None and name in ("target", "waited") else 1)


def test_a_run_has_its_machines_seconds_while_it_grows_and_later(tmp_path: Path) -> None:
    # given a run that goes on, whose writer was killed within a line
    directory = write_run(tmp_path, [MadeStage(50)])
    growing = GrowingRun(directory)
    assert growing.load().machine == []
    log = Events(directory / FILE)
    log.write(1.0, USED, **SECOND)
    assert [used.t for used in growing.load().machine] == [1.0]
    log.write(2.0, USED, **SECOND)
    with open(directory / FILE, "ab") as file:
        file.write(b'{"t":3.0,"event":"us')
    # then what was written is there, and no damage to what was measured is told
    assert [used.t for used in growing.load().machine] == [1.0, 2.0]
    later = load_run(directory)
    assert [used.t for used in later.machine] == [1.0, 2.0]
    assert (later.damage, later.notes) == ([], [])
    os.unlink(directory / FILE)
    assert load_run(directory).machine == []
