"""Which figures a threshold may be about, and what they are in a stage."""

from __future__ import annotations

import math

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.monitoring.answers import answering, matrix, success
from tippingpoint.errors import UserError
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.stage_figures import (
    Measured,
    Scrapes,
    StageFigures,
    check_hosts,
    wanted_figures,
)
from tippingpoint.plan.base import Threshold


def threshold(figure: str, at_most: str, **fields: str) -> Threshold:
    return Threshold.model_validate({"figure": figure, "at_most": at_most, **fields})


def test_a_threshold_is_about_a_figure_of_the_targets_packs() -> None:
    memory = threshold("etcd-memory", "300MB", role="leader")
    load = threshold("host-load-1", "4")
    (first, second) = wanted_figures("etcd", [("thresholds.0", memory), ("thresholds.1", load)])
    assert (first.name, first.pack.name, first.is_rate) == ("etcd-memory of the leader", "etcd", False)
    assert (second.name, second.pack.name) == ("host-load-1", "host")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (threshold("etcd-memry", "1GB"), r"^thresholds\.1\.figure: etcd-memry: expected one of etcd-memory, .*"
         r"did you mean etcd-memory\?"),
        (threshold("juju-goroutines", "1"), r"^thresholds\.1\.figure: juju-goroutines: expected one of etcd-memory"),
        (threshold("etcd-memory", "300"), r"^thresholds\.1\.at_most: 300: expected a size such as 300MB"),
        (threshold("etcd-fsync-time", "0.01"), r"^thresholds\.1\.at_most: 0.01: expected a duration such as 10ms"),
        (threshold("etcd-cpu", "2s"), r"^thresholds\.1\.at_most: 2s: expected a number \(cores\), as etcd-cpu"),
        (threshold("host-load-1", "4", role="leader"), r"^thresholds\.1\.role: leader: expected none: the pack of "
         r"host-load-1 does not know who leads; only etcd-memory"),
        (threshold("etcd-cpu", "2", part="x"), r"^thresholds\.1\.part: x: expected none: etcd-cpu has no parts"),
    ],
)  # fmt: skip
def test_any_other_figure_is_refused_in_one_line(given: Threshold, message: str) -> None:
    with pytest.raises(UserError, match=message):
        wanted_figures("etcd", [("thresholds.1", given)])


def test_a_host_that_is_not_scraped_is_refused() -> None:
    scrapes = Scrapes({"etcd-0": [1.0], "etcd-1": [1.0]})
    check_hosts("thresholds.0", threshold("etcd-cpu", "2", host="etcd-1"), scrapes)
    with pytest.raises(UserError, match=r"^thresholds\.0\.host: etcd-9: expected one of etcd-0, etcd-1$"):
        check_hosts("thresholds.0", threshold("etcd-cpu", "2", host="etcd-9"), scrapes)


BEGIN = 1_700_000_000.0
NUMBERS = st.sampled_from(["0", "1", "2", "12", "NaN", "+Inf", "-Inf", "1e308", "-3"])


async def measured(figure: str, at_most: str, samples: dict[str, list[str]]) -> Measured:
    """A figure in a stage of two minutes, of hosts with these samples each 15 s, and the last one over all of it."""

    async def handler(request: web.Request) -> web.Response:
        form = await request.post()
        query, asked = str(form["query"]), request.path.rsplit("/", 1)[1]
        times = [BEGIN + 15 * (n + 1) for n in range(8)]
        if query.startswith("up{"):
            scrapes = [({"instance": host}, [[t, "1"] for t in times]) for host in samples]
            return success(matrix(*scrapes))
        if asked == "query":
            whole = [{"metric": {"host": host}, "value": [times[-1], of[-1]]} for host, of in samples.items()]
            return success({"resultType": "vector", "result": whole})
        return success(
            matrix(
                *(
                    ({"host": host}, [[t, v] for t, v in zip(times, of, strict=True)])
                    for host, of in samples.items()
                )
            )
        )

    (one,) = wanted_figures("pacemaker", [("thresholds.0", threshold(figure, at_most))])
    async with answering(handler) as url, Prometheus(url) as prometheus:
        found = await StageFigures(prometheus, [one]).measure(BEGIN, BEGIN + 120)
    return found[one.name]


async def test_a_host_that_was_infinite_is_not_known_to_be_within_its_limit() -> None:
    # given Pacemaker's fail count, which is INFINITY from the middle of a stage on
    failing = {"n1": ["1"] * 4 + ["+Inf"] * 4, "n2": ["0"] * 8}
    # when it is measured
    found = await measured("pacemaker-failures", "10", failing)
    # then the finite samples do not stand for the host
    assert (found.value, found.why) == (1.0, "n1 had an infinite sample")


async def test_a_rate_that_is_infinite_is_not_known_to_be_within_its_limit() -> None:
    found = await measured("pacemaker-transitions", "10", {"n1": ["1"] * 7 + ["+Inf"], "n2": ["0"] * 8})
    assert (found.value, found.host, found.why) == (0.0, "n2", "n1 had an infinite sample")


async def test_a_host_without_observations_is_not_infinite() -> None:
    found = await measured("pacemaker-failures", "10", {"n1": ["NaN"] * 4 + ["3"] * 4})
    assert (found.value, found.why) == (3.0, "")


@settings(max_examples=25, deadline=None)
@given(
    samples=st.dictionaries(
        st.sampled_from(["a", "b"]), st.lists(NUMBERS, min_size=8, max_size=8), min_size=1
    )
)
async def test_a_figure_is_finite_and_known_only_if_no_sample_was_infinite(
    samples: dict[str, list[str]],
) -> None:
    found = await measured("pacemaker-failures", "10", samples)
    assert all(each is None or math.isfinite(each) for each in (found.value, found.error, found.lowest))
    if any("Inf" in value for of in samples.values() for value in of):
        assert found.why
