"""Asking a Prometheus: the answers it gives, and what is made of those it should not."""

from __future__ import annotations

import asyncio
import json
import math
import os
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.monitoring.answers import Handler, answering, matrix, success
from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.monitoring import prometheus as module
from tippingpoint.monitoring.prometheus import MOST_POINTS, Prometheus

T0 = 1_700_000_000.0


async def ask(
    handler: Handler, question: Callable[[Prometheus], Awaitable[Any]], prefix: str = "", **access: Any
) -> Any:
    """What a question comes to where this function answers."""
    async with answering(handler) as url, Prometheus(url + prefix, **access) as prometheus:
        return await question(prometheus)


class Ramp:
    """Answers range queries as Prometheus does: the series a has the value of its time, up to `most` points."""

    def __init__(self, most: int = MOST_POINTS, padding: int = 0) -> None:
        self.asked: list[int] = []
        self._most = most
        self._padding = padding

    async def answer(self, request: web.Request) -> web.Response:
        form = await request.post()
        start, end, step = (float(str(form[name])) for name in ("start", "end", "step"))
        count = int((end - start) / step + 1e-6) + 1
        self.asked.append(count)
        if count > self._most:
            return web.Response(body=b" " * (module.LARGEST_ANSWER + 1))
        values = [[start + step * n, str(start + step * n)] for n in range(count)]
        return success(matrix(({"__name__": "a"}, values)))


# What it answers


async def test_a_range_has_the_labels_the_times_and_the_values_of_every_series() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.path == "/api/v1/query_range"
        form = await request.post()
        assert dict(form) == {
            "query": "up",
            "start": "1700000000.000",
            "end": "1700000030.000",
            "step": "15.000",
        }
        return success(
            matrix(
                ({"job": "x", "instance": "a"}, [[T0, "1"], [T0 + 15, "NaN"], [T0 + 30, "+Inf"]]),
                ({"job": "x", "instance": "b"}, [[T0 + 30.5, "1.5e3"]]),
            )
        )

    first, second = await ask(handler, lambda prometheus: prometheus.query_range("up", T0, T0 + 30, 15))

    assert first.labels == {"job": "x", "instance": "a"}
    assert first.times.tolist() == [T0, T0 + 15, T0 + 30]
    assert first.values[0] == 1
    assert math.isnan(first.values[1])
    assert first.values[2] == math.inf
    assert (second.labels, second.times.tolist(), second.values.tolist()) == (
        {"job": "x", "instance": "b"},
        [T0 + 30.5],
        [1500.0],
    )


async def test_a_moment_has_one_sample_of_every_series() -> None:
    async def handler(request: web.Request) -> web.Response:
        form = await request.post()
        assert form["time"] == "1700000000.000"
        vector = [{"metric": {"a": "b"}, "value": [T0, "2"]}, {"metric": {}, "histogram": [T0, {}]}]
        return success({"resultType": "vector", "result": vector})

    (only,) = await ask(handler, lambda prometheus: prometheus.query("a", T0))

    assert (only.labels, only.times.tolist(), only.values.tolist()) == ({"a": "b"}, [T0], [2.0])


async def test_a_scalar_is_a_series_without_labels() -> None:
    async def handler(_: web.Request) -> web.Response:
        return success({"resultType": "scalar", "result": [T0, "7"]})

    (only,) = await ask(handler, lambda prometheus: prometheus.query("7"))

    assert (only.labels, only.values.tolist()) == ({}, [7.0])


async def test_its_version_and_targets_are_asked_below_the_path_of_its_url() -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/prometheus/api/v1/status/buildinfo":
            return success({"version": "2.42.0"})
        assert request.path_qs == "/prometheus/api/v1/targets?state=active"
        target = {
            "scrapePool": "lxd",
            "scrapeUrl": "https://10.0.0.1:9100/1.0/metrics",
            "labels": {"instance": "10.0.0.1:9100"},
            "health": "down",
            "lastError": "connection\nrefused",
        }
        return success({"activeTargets": [target]})

    async def question(prometheus: Prometheus) -> Any:
        return await prometheus.version(), await prometheus.targets()

    version, (target,) = await ask(handler, question, "/prometheus/")

    assert version == "2.42.0"
    assert target.labels == {"instance": "10.0.0.1:9100"}
    assert (target.job, target.health, target.error) == ("lxd", "down", "connection refused")


# Limits


async def test_more_points_than_prometheus_gives_at_once_are_asked_for_in_parts_and_joined() -> None:
    ramp = Ramp()

    (only,) = await ask(ramp.answer, lambda prometheus: prometheus.query_range("a", T0, T0 + 29_999, 1))

    assert ramp.asked == [11_000, 11_000, 8_000]
    assert only.times.tolist() == [T0 + n for n in range(30_000)]
    assert only.values.tolist() == only.times.tolist()


async def test_an_answer_of_too_many_bytes_is_asked_for_in_smaller_parts() -> None:
    ramp = Ramp(most=300)

    (only,) = await ask(ramp.answer, lambda prometheus: prometheus.query_range("a", T0, T0 + 999, 1))

    assert only.times.tolist() == [T0 + n for n in range(1000)]
    assert max(ramp.asked[2:]) <= 300


async def test_an_answer_that_is_too_large_however_short_the_range_is_refused() -> None:
    with pytest.raises(OperationFailed, match=r"larger than 16 MiB: expected fewer series$"):
        await ask(Ramp(most=0).answer, lambda prometheus: prometheus.query_range("a", T0, T0 + 3, 1))


async def test_an_answer_of_50_mb_is_refused_before_it_has_come() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(50):
            await response.write(b"x" * 1_000_000)
        return response

    with pytest.raises(OperationFailed, match="larger than 16 MiB"):
        await ask(handler, lambda prometheus: prometheus.query("a"))


@pytest.mark.parametrize("drips", [True, False])
async def test_an_answer_that_does_not_end_is_given_up(drips: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_WITHIN", 0.3)

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            if drips:
                await response.write(b" ")
            await asyncio.sleep(0.01)

    with pytest.raises(OperationFailed, match=r"has not answered within 0.3 s"):
        await ask(handler, lambda prometheus: prometheus.query("a"))


async def test_a_query_of_too_many_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERY_WITHIN", 0.3)
    ramp = Ramp()

    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        return await ramp.answer(request)

    with pytest.raises(OperationFailed, match=r"has not answered a query within 0.3 s"):
        await ask(handler, lambda prometheus: prometheus.query_range("a", T0, T0 + 1e6, 1))


# What goes wrong


async def test_a_query_that_prometheus_refuses_fails_with_its_words_in_one_line() -> None:
    async def handler(_: web.Request) -> web.Response:
        told = {"status": "error", "errorType": "bad_data", "error": "1:4: parse error:\n unexpected end"}
        return web.json_response(told, status=400)

    with pytest.raises(OperationFailed, match=r"^http://127.0.0.1:\d+: 1:4: parse error: unexpected end$"):
        await ask(handler, lambda prometheus: prometheus.query("up{"))


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_login_is_told_and_not_tried_again(status: int) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, text="Unauthorized")

    with pytest.raises(TargetError, match=r"refuses the login \(40\d\)"):
        await ask(handler, lambda prometheus: prometheus.query("up"))


@pytest.mark.parametrize("status", [204, 302, 404, 502])
async def test_what_is_no_prometheus_is_told(status: int) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": "/elsewhere"} if status == 302 else {})

    with pytest.raises(TargetError, match=f"it answers {status}: expected a Prometheus"):
        await ask(handler, lambda prometheus: prometheus.query("up"))


async def test_nothing_listening_is_told() -> None:
    with pytest.raises(TargetError, match="expected a Prometheus that answers within reach"):
        async with Prometheus("http://127.0.0.1:1") as prometheus:
            await prometheus.query("up")


async def test_an_answer_that_breaks_off_is_told() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return response

    with pytest.raises(OperationFailed, match="the answer broke off"):
        await ask(handler, lambda prometheus: prometheus.query("up"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\x00garbage",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"status": "success"}',
        b'{"status": "success", "data": []}',
        b'{"status": "success", "data": {"resultType": "matrix"}}',
        b'{"status": "success", "data": {"resultType": ["x"], "result": []}}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": [1]}}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": 1, "values": []}]}}',
        b'{"status": "success", "data": {"resultType": "matrix",'
        b' "result": [{"metric": {}, "values": [[1, "x"]]}]}}',
        b'{"status": "success", "data": {"resultType": "matrix",'
        b' "result": [{"metric": {"a": 1}, "values": [[1, "1"]]}]}}',
        b'{"status": "success", "data": {"resultType": "streams", "result": []}}',
    ],
)
async def test_garbage_is_refused(body: bytes) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=body)

    with pytest.raises(OperationFailed, match="the answer is garbage"):
        await ask(handler, lambda prometheus: prometheus.query_range("up", T0, T0 + 1, 1))


def body_of(values: str, labels: str = "{}") -> bytes:
    """An answer with one series."""
    series = f'{{"metric": {labels}, "values": [{values}]}}'
    return f'{{"status": "success", "data": {{"resultType": "matrix", "result": [{series}]}}}}'.encode()


@pytest.mark.parametrize(
    "body",
    [
        # one number of 100,000 digits among short ones: an array of texts had 400 kB for each of them
        body_of(", ".join([f'[1, "{"9" * 100_000}"]', *['[1, "1"]'] * 1000])),
        body_of(", ".join([*['[1, "1"]'] * 1000, f'["{"1" * 100_000}", "1"]'])),
        body_of(", ".join(["[]"] * 2_000_000)),
        body_of(", ".join(["{}"] * 2_000_000)),
        body_of('[1, "1"]', "{" + ", ".join(f'"a{n}": []' for n in range(1000)) + "}"),
        body_of('[1e300, "1"]'),
        body_of("[true, 1]"),
        body_of('[1, "' + "1" * 41 + '"]'),
    ],
    ids=["a long number", "a long time", "lists", "mappings", "labels", "far", "a plain number", "41 digits"],
)
async def test_an_answer_is_read_value_by_value_and_takes_no_more_than_a_small_multiple_of_its_size(
    body: bytes,
) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=body)

    # given an answer that is far larger as objects than as text, when it is read, then it is refused in one line
    tracemalloc.start()
    try:
        with pytest.raises(OperationFailed, match="the answer is garbage"):
            await ask(handler, lambda prometheus: prometheus.query_range("up", T0, T0 + 1, 1))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # and has taken memory for its bytes as they arrived, not for what they could be made into
    assert peak < 8 * len(body) + (8 << 20)


async def test_labels_count_like_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a Prometheus that answers each part of a range by other series, of long labels and no samples
    monkeypatch.setattr(module, "MOST_POINTS", 1)
    monkeypatch.setattr(module, "MOST_SAMPLES", 5000)
    asked: list[int] = []

    async def handler(_: web.Request) -> web.Response:
        asked.append(1)
        return success(matrix(({"a": f"{len(asked):10000}"}, [])))

    # when a long range is asked for, then it ends after so many of them
    with pytest.raises(OperationFailed, match=r"larger than 5,000 samples: expected fewer series$"):
        await ask(handler, lambda prometheus: prometheus.query_range("a", T0, T0 + 1000, 1))
    assert len(asked) == 9


async def test_targets_with_texts_that_are_none_are_refused() -> None:
    # given a target whose last error is nested a thousand times, which Python cannot write out
    nested = "[" * 1000 + "]" * 1000
    target = (
        '{"scrapePool": "a", "scrapeUrl": "b", "labels": {}, "health": "up", "lastError": ' + nested + "}"
    )

    async def handler(_: web.Request) -> web.Response:
        padding = " " * 20_000
        body = f'{{"status": "success", "data": {{"activeTargets": [{target}]}}{padding}}}'
        return web.Response(body=body.encode())

    with pytest.raises(OperationFailed, match="the answer is garbage"):
        await ask(handler, lambda prometheus: prometheus.targets())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SERIES = st.fixed_dictionaries({}, optional={"metric": JSON, "values": JSON | st.lists(st.lists(JSON))})


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries({"status": st.sampled_from(["success", "error"])}, optional={"error": JSON}) | JSON,
    JSON | st.fixed_dictionaries({"resultType": st.just("matrix") | JSON, "result": JSON | st.lists(SERIES)}),
)
async def test_whatever_it_answers_the_question_is_answered_or_refused_in_a_line(
    told: Any, data: Any
) -> None:
    content = {**told, "data": data} if isinstance(told, dict) else told

    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=json.dumps(content).encode())

    async def question(prometheus: Prometheus) -> str:
        try:
            found = await prometheus.query_range("up", T0, T0 + 1, 1)
        except (OperationFailed, TargetError) as problem:
            return str(problem)
        return ", ".join(f"{len(series.times)} of {len(series.values)}" for series in found)

    told_of_it = await ask(handler, question)

    assert "\n" not in told_of_it
    assert len(told_of_it) < 500


# Access


def secret(path: Path, text: str, mode: int = 0o600) -> Path:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, mode), "w") as file:
        file.write(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("kind", "header"), [("password_file", "Basic dTpwLXctZA=="), ("token_file", "Bearer p-w-d")]
)
async def test_a_login_comes_from_a_file(kind: str, header: str, tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        return success({"version": request.headers["Authorization"]})

    access = {"username": "u", kind: secret(tmp_path / "secret", "p-w-d\n")}

    assert await ask(handler, lambda prometheus: prometheus.version(), **access) == header


def test_a_login_that_others_can_read_is_refused_and_not_shown(tmp_path: Path) -> None:
    readable = secret(tmp_path / "secret", "p-w-d", 0o640)

    with pytest.raises(UserError, match="mode 0600") as refused:
        Prometheus("https://prometheus.example", username="u", password_file=readable)

    assert "p-w-d" not in str(refused.value)


def test_a_login_goes_over_no_network_without_tls(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected an https URL, as there is a login"):
        Prometheus("http://prometheus.example:9090", token_file=secret(tmp_path / "token", "t"))


@pytest.mark.parametrize(
    "url",
    ["", "prometheus", "ftp://host", "https://", "https://host?query=1", "https://host:99999", "https://[::"],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="expected the URL of a Prometheus"):
        Prometheus(url)


@pytest.mark.parametrize(
    "url", ["https://me:p-w-d@host:9090/x", "https://p-w-d@host", "https://x:p-w-d@:1:2"]
)
def test_a_url_with_a_login_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UserError) as refused:
        Prometheus(url)

    assert "p-w-d" not in str(refused.value)


def test_a_ca_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^ca: .*: expected a file of certificates \(PEM\)$"):
        Prometheus("https://host", ca=secret(tmp_path / "ca.pem", "garbage"))
