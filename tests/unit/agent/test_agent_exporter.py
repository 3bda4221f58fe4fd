"""What a Prometheus is told while a part goes on."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.play.run_ticks import tick_of
from tippingpoint.agent.exporter import BUCKETS, Exporter, Measured
from tippingpoint.errors import UserError
from tippingpoint.plan.read import parse_plan
from tippingpoint.play.messages import Tick
from tippingpoint.play.watcher import StageProgress
from tippingpoint.rundir.recorder import Recorded

PLAN = parse_plan("{name: small, stages: [{leases: 10}]}")
OF_RUN = {"run": "r-1f3a", "plan": "small", "target": "etcd"}


def progress(stage: int = 1) -> StageProgress:
    return StageProgress(
        elapsed=1.0,
        stage=stage,
        stages=1,
        size=10,
        goal=10,
        things="leases",
        kind="ramp",
        remaining=None,
        listed=1,
    )


def tick(held: int = 0, cpu: float = 0.0, **samples: list[int]) -> Tick:
    """A worker's tick; samples in microseconds by tag, with _ for the dots."""
    recorded = {tag.replace("_", "."): Recorded(values) for tag, values in samples.items()}
    return tick_of(held, recorded, cpu=cpu)


async def read(measured: Measured) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """What a Prometheus reads over HTTP, by name and labels."""
    exporter = Exporter(measured)
    await exporter.open("127.0.0.1:0")
    host, port = exporter.addresses[0]
    try:
        with await asyncio.to_thread(
            urllib.request.urlopen, f"http://{host}:{port}/metrics", timeout=600
        ) as answer:
            text = answer.read().decode()
    finally:
        await exporter.close()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset({**OF_RUN, **labels}.items())


async def test_before_the_first_run_there_is_nothing_to_tell() -> None:
    assert await read(Measured()) == {}


async def test_gauges_are_those_of_all_workers_and_end_with_the_run() -> None:
    measured = Measured()
    measured.began("r-1f3a", PLAN)
    measured.tick(progress(), "0", tick(held=4, cpu=0.5))
    measured.tick(progress(stage=2), "1", tick(held=3, cpu=0.75))
    told = await read(measured)
    assert told[of("tippingpoint_held")] == 7
    assert told[of("tippingpoint_goal")] == 10
    assert told[of("tippingpoint_stage")] == 2
    assert told[of("tippingpoint_up")] == 1
    assert told[of("tippingpoint_generator_cpu_cores")] == 1.25
    assert told[of("tippingpoint_generator_busiest_worker")] == 0.75
    measured.worker_gone("1")
    assert (await read(measured))[of("tippingpoint_held")] == 4
    measured.ended()
    told = await read(measured)
    assert [told[of(f"tippingpoint_{name}")] for name in ("held", "goal", "stage", "up")] == [0, 0, 0, 0]


async def test_operations_are_counted_by_outcome_over_ticks_and_workers() -> None:
    measured = Measured()
    measured.began("r-1f3a", PLAN)
    measured.tick(progress(), "0", tick(extend_ok=[900, 1100], extend_timeout=[5_000_000]))
    measured.tick(progress(), "1", tick(extend_ok=[2_500_000], claim_denied=[100]))
    measured.tick(progress(), "0", tick(**{"extend_ok": [10], "extend_ok_service": [7]}))
    told = await read(measured)
    operations = "tippingpoint_operations_total"
    assert told[of(operations, operation="extend", outcome="ok")] == 4
    assert told[of(operations, operation="extend", outcome="timeout")] == 1
    assert told[of(operations, operation="claim", outcome="denied")] == 1
    # response times of what succeeded; service times apart
    latency = "tippingpoint_latency_seconds"
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in told.items()
        if name == f"{latency}_bucket" and ("operation", "extend") in labels
    }
    assert len(buckets) == len(BUCKETS) + 1
    assert (buckets["0.001"], buckets["0.002"], buckets["2.0"], buckets["3.0"], buckets["+Inf"]) == (
        2,
        3,
        3,
        4,
        4,
    )
    assert told[of(f"{latency}_count", operation="extend")] == 4
    assert told[of(f"{latency}_sum", operation="extend")] == pytest.approx(2.50201, rel=1e-3)
    assert told[of("tippingpoint_service_seconds_count", operation="extend")] == 1


async def test_the_generators_own_health_is_no_operation() -> None:
    measured = Measured()
    measured.began("r-1f3a", PLAN)
    measured.tick(progress(), "0", tick_of(0, {"generator.loop-lag": Recorded([5])}))
    assert not [name for name, _ in await read(measured) if name.startswith("tippingpoint_operations")]


async def test_another_run_begins_from_nothing() -> None:
    measured = Measured()
    measured.began("other-0000", PLAN)
    measured.tick(progress(), "0", tick(extend_ok=[900]))
    measured.ended()
    measured.began("r-1f3a", PLAN)
    told = await read(measured)
    assert {dict(labels)["run"] for _, labels in told} == {"r-1f3a"}
    assert not [name for name, _ in told if "operations" in name]


async def test_a_port_in_use_is_an_error_of_the_system_and_no_address_one_of_the_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        await Exporter(Measured()).open(f"127.0.0.1:{other.getsockname()[1]}")
    for address in ("9477", "127.0.0.1:x", ":9477", "127.0.0.1:70000"):
        with pytest.raises(UserError, match=r"--metrics: .*: expected ADDRESS:PORT"):
            await Exporter(Measured()).open(address)


async def test_other_pages_are_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    exporter = Exporter(Measured())
    await exporter.open("127.0.0.1:0")
    host, port = exporter.addresses[0]
    try:
        with pytest.raises(urllib.error.HTTPError, match="404"):
            await asyncio.to_thread(urllib.request.urlopen, f"http://{host}:{port}/", timeout=600)
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"\x16\x03\x01 garbage\r\n\r\n")
        assert b"400" in await reader.readline()
        writer.close()
    finally:
        await exporter.close()
    assert capfd.readouterr() == ("", "")
