"""The finder, given nothing but the published transcript, comes to its author's own conclusions (seed 002).

What the author concluded stands here and nowhere the finder could read it: "2.5.0 starts to hit a wall around
2000-4,000 leases"; of 2.5.1 up to 16,000 leases that claims slow down, and "Definitely not having a cliff"; of
its restart storm "some initial claim failures", and no lost lease.
"""

from __future__ import annotations

from tippingpoint.analysis.analyse import analyse
from tippingpoint.compare.baselines import load_baseline
from tippingpoint.rundir.results import RunData


def transcript(name: str) -> RunData:
    run = load_baseline(name).run()
    assert run is not None
    return run


def test_juju_2_5_0_tips_between_2000_and_4000_leases_and_loses_leases() -> None:
    cliff = analyse(transcript("juju-2.5.0")).tipping.cliff
    assert cliff is not None
    assert (cliff.last_held, cliff.first_broken, cliff.by) == (2000, 4000, "lost")


def test_juju_2_5_1_bends_at_claims_but_holds_through_16000_leases() -> None:
    tipping = analyse(transcript("juju-2.5.1")).tipping
    assert tipping.cliff is None or tipping.cliff.first_broken > 16000
    assert "claim" in tipping.knees
    assert tipping.knees["claim"].at <= 16000


def test_juju_2_5_1_fails_claims_in_the_restart_storm_and_loses_nothing() -> None:
    run = transcript("juju-2.5.1")
    storms = analyse(run).tipping.storms
    (claims,) = [storm for storm in storms if storm.operation == "claim"]
    assert (claims.size, claims.broke) == (20000, True)
    assert claims.failed == 10
    assert not [storm for storm in storms if storm.operation == "extend" and storm.broke]
    assert sum(stage.count("extend", "lost") for stage in run.stages) == 0
