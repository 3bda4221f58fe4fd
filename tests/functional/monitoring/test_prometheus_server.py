"""The distribution's Prometheus: what it scrapes is read back, and what a target or a disk does to it stays there."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from lab.certificates import Certificates, make_certificates
from lab.control import LabError
from lab.etcd.cluster import EtcdLab
from lab.prometheus import PrometheusLab, find_prometheus
from tests.functional.program import WITHIN_S, until
from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.monitoring.gather import gather_resources
from tippingpoint.monitoring.prometheus import Prometheus, Sampled, ScrapedTarget
from tippingpoint.monitoring.query_packs import load_pack
from tippingpoint.monitoring.scrape.jobs import LARGEST_SCRAPE, ScrapeAccess, itself, static_targets
from tippingpoint.monitoring.scrape.relation import jobs_of_relation
from tippingpoint.monitoring.scrape.server import Server, command, problems
from tippingpoint.rundir.resources import Resources


@dataclass
class Exporter:
    """A small exporter: what it answers at each path."""

    port: int = 0
    answers: dict[str, Callable[[], bytes]] = field(default_factory=dict[str, Callable[[], bytes]])
    over: threading.Event = field(default_factory=threading.Event)
    login: str = ""

    def hang(self) -> bytes:
        """An answer that comes when the test is over."""
        self.over.wait(WITHIN_S)
        return b""

    def target(self, path: str = "/metrics") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


class _Answers(BaseHTTPRequestHandler):
    exporter: Exporter

    def do_GET(self) -> None:
        login = self.headers.get("Authorization", "")
        body = self.exporter.answers[self.path]()
        self.send_response(200 if login == self.exporter.login else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if login == self.exporter.login else b"")

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # it went away before its answer
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def exporting(certificates: Certificates | None = None, login: str = "") -> Iterator[Exporter]:
    """An exporter whose figure `made_up` is 42."""
    exporter = Exporter(login=login)
    exporter.answers["/metrics"] = lambda: b"made_up 42\n"
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Answers", (_Answers,), {"exporter": exporter, "timeout": 30})
    )
    server.daemon_threads = True
    if certificates is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.server_cert, certificates.server_key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    exporter.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield exporter
    finally:
        exporter.over.set()
        server.shutdown()
        server.server_close()


def query(lab: PrometheusLab, expr: str) -> list[Sampled]:
    """What an expression is now."""

    async def asked() -> list[Sampled]:
        async with Prometheus(lab.url, ca=lab.serving.ca) as prometheus:
            return await prometheus.query(expr)

    return asyncio.run(asked())


def query_range(lab: PrometheusLab, expr: str, start: float, end: float) -> list[Sampled]:
    async def asked() -> list[Sampled]:
        async with Prometheus(lab.url, ca=lab.serving.ca) as prometheus:
            return await prometheus.query_range(expr, start, end, 1)

    return asyncio.run(asked())


def moments(lab: PrometheusLab, start: float, end: float) -> set[float]:
    """When `made_up` was scraped between two moments, by the samples of it that it has."""
    asked = {"query": f"made_up[{int((end - start) * 1000)}ms]", "time": f"{end:.3f}"}
    with urllib.request.urlopen(f"{lab.url}/api/v1/query?{urlencode(asked)}", timeout=WITHIN_S) as answer:
        told: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return {moment for series in told for moment, _ in series["values"]}


def targets(lab: PrometheusLab) -> dict[str, ScrapedTarget]:
    """What it scrapes, by URL."""

    async def asked() -> list[ScrapedTarget]:
        async with Prometheus(lab.url, ca=lab.serving.ca) as prometheus:
            return await prometheus.targets()

    return {target.url: target for target in asyncio.run(asked())}


def gathered(lab: PrometheusLab, began: float) -> Resources:
    """What is gathered of a pack with the one figure."""
    pack = load_pack(
        "{name: made, title: Made, meaning: Made, targets: [], figures: [{name: made-up, title: Made up, "
        'unit: count, meaning: Made, source: the test, expr: "made_up{$selector}"}]}',
        "made",
    )

    async def asked() -> Resources:
        async with Prometheus(lab.url) as prometheus:
            return await gather_resources(prometheus, [pack], began, time.time(), began)

    return asyncio.run(asked())


def value(lab: PrometheusLab, expr: str) -> float | None:
    """The value of an expression of one series; None while there is none."""
    found = query(lab, expr)
    return float(found[0].values[0]) if found else None


class TestScraping:
    def test_targets_that_answer_garbage_or_50_mb_or_hang_are_gaps_and_disturb_nobody(self) -> None:
        with exporting() as exporter, ExitStack() as stack:
            large = b"".join(b'large{n="%d"} 1\n' % n for n in range(2_500_000))
            assert len(large) > LARGEST_SCRAPE
            exporter.answers |= {
                "/garbage": lambda: b"\xff\xfe<html>{{{ 1\n",
                "/large": lambda: large,
                "/hangs": exporter.hang,
            }
            paths = ("/metrics", "/garbage", "/large", "/hangs")
            listed = static_targets("\n".join(exporter.target(path) for path in paths))
            lab = stack.enter_context(PrometheusLab([listed, static_targets("127.0.0.1:1")], interval=2))
            until(lambda: (value(lab, "sum(count_over_time(up[1m]))") or 0) > 20)

            health = {
                target.url.partition(f":{exporter.port}")[2]: target for target in targets(lab).values()
            }

            assert {path: target.health for path, target in health.items() if path} == {
                "/metrics": "up",
                "/garbage": "down",
                "/large": "down",
                "/hangs": "down",
            }
            assert (
                "body size limit exceeded" in health["/large"].error or "deadline" in health["/large"].error
            )
            assert "deadline exceeded" in health["/hangs"].error
            assert value(lab, "made_up") == 42
            assert query(lab, '{__name__=~"large|html"}') == []
            now = time.time()
            (good,) = query_range(lab, 'up{job="targets"} == 1', now - 60, now)
            (scrapes,) = query(lab, 'count_over_time(up{job="targets"}[1m])')
            assert len(good.times) > 2
            assert scrapes.values[0] > 3

    def test_a_target_that_fails_for_a_while_has_a_gap_for_that_while(self) -> None:
        with exporting() as exporter, PrometheusLab([static_targets(exporter.target())]) as lab:
            until(lambda: value(lab, "made_up") == 42)
            exporter.answers["/metrics"] = lambda: b"garbage {\n"
            until(lambda: value(lab, "up") == 0)
            down = time.time()
            exporter.answers["/metrics"] = lambda: b"made_up 43\n"
            until(lambda: value(lab, "made_up offset 1s") == 43)

            (series,) = query_range(lab, "made_up", down - 20, time.time())
            (up,) = query_range(lab, "up", down - 20, time.time())

            gap = up.times[up.values == 0]
            assert len(gap) > 0
            assert not np.isin(series.times, gap).any()
            assert series.values[0] == 42
            assert series.values[-1] == 43

    def test_a_target_of_a_relation_is_scraped_by_tls_with_its_login(self, tmp_path: Path) -> None:
        certificates = make_certificates(tmp_path, "x")
        login = "Basic " + base64.b64encode(b"user-x:p-w-d").decode()
        with exporting(certificates, login) as exporter:
            job = {
                "scheme": "https",
                "basic_auth": {"username": "user-x", "password": "p-w-d"},
                "tls_config": {"ca_file": certificates.ca.read_text(), "server_name": "localhost"},
                "static_configs": [{"targets": [f"*:{exporter.port}"]}],
            }
            bag = {"scrape_jobs": json.dumps([job])}
            units = {"controller/0": {"ingress-address": "127.0.0.1"}}
            with PrometheusLab([jobs_of_relation("juju", bag, units)]) as lab:
                (series,) = until(lambda: query(lab, "made_up"))

                assert series.labels["juju_unit"] == "controller/0"
                shown = (lab.serving.configuration / "prometheus.yml").read_text()
                assert "p-w-d" not in shown

    def test_an_etcd_that_asks_for_a_certificate_is_scraped_with_ours(
        self, new_etcd: Callable[..., EtcdLab]
    ) -> None:
        etcd = new_etcd(members=1, tls=True)
        assert etcd.ca is not None
        assert etcd.cert is not None
        assert etcd.key is not None
        ca, certificate, key = (path.read_text() for path in (etcd.ca, etcd.cert, etcd.key))
        (url,) = etcd.endpoints
        with PrometheusLab([static_targets(url, ScrapeAccess(ca, certificate, key))]) as lab:
            until(lambda: value(lab, "etcd_server_has_leader") == 1)
            shown = (lab.serving.configuration / "prometheus.yml").read_text()
            lab.configure([static_targets(url, ScrapeAccess(ca))])
            until(lambda: value(lab, "up") == 0)

        assert key.splitlines()[1] not in shown

    def test_a_server_of_another_authority_is_not_scraped(self, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        own, other = make_certificates(tmp_path, "x"), make_certificates(tmp_path / "other", "x")
        with exporting(own) as exporter:
            listed = static_targets(
                f"https://127.0.0.1:{exporter.port}", ScrapeAccess(ca=other.ca.read_text())
            )
            with PrometheusLab([listed]) as lab:
                until(lambda: value(lab, "up") == 0)

                (target,) = targets(lab).values()
                assert "x509" in target.error


class TestRemoteWrite:
    """Machines with cos-agent have an agent of their own, which scrapes there and sends what it has."""

    @staticmethod
    @contextmanager
    def sending(exporter: Exporter, receiver: PrometheusLab) -> Iterator[PrometheusLab]:
        """An agent, as far as Prometheus is one: it scrapes, and sends all of it on."""
        listed = static_targets(f"{exporter.target()} juju_unit=lxd/0 juju_model=lxd")
        with PrometheusLab([listed]) as sender:
            with (sender.serving.configuration / "prometheus.yml").open("a") as file:
                file.write(f"remote_write: [{{url: '{receiver.url}/api/v1/write'}}]\n")
            sender.reload()
            yield sender

    def test_what_others_send_is_asked_for_as_if_it_were_scraped(self) -> None:
        with exporting() as exporter, PrometheusLab(remote_write=True) as receiver:
            began = time.time()
            with self.sending(exporter, receiver):
                until(lambda: (value(receiver, "count_over_time(made_up[1h])") or 0) > 3)
            told = gathered(receiver, began)

        (figure,) = [figure for figure in told.figures if figure.name == "made-up"]
        assert {(series.host, *(set(series.values) - {None})) for series in figure.series} == {
            ("lxd/0", 42.0)
        }

    def test_what_came_while_the_collector_was_away_is_sent_when_it_is_back(self) -> None:
        with (
            exporting() as exporter,
            PrometheusLab(remote_write=True) as receiver,
            self.sending(exporter, receiver) as sender,
        ):
            until(lambda: value(receiver, "count_over_time(made_up[1h])"))
            receiver.kill()
            away = time.time()
            until(
                lambda: (value(sender, f"count_over_time(made_up[{int(time.time() - away) + 1}s])") or 0) > 3
            )
            back = time.time()

            receiver.start()

            until(lambda: (sent := moments(sender, away, back)) and moments(receiver, away, back) == sent)

    def test_one_that_nobody_may_send_to_takes_nothing(self) -> None:
        with exporting() as exporter, PrometheusLab() as receiver, self.sending(exporter, receiver) as sender:
            until(lambda: value(sender, "count_over_time(made_up[1h]) > 3"))
            assert query(receiver, "made_up") == []


class TestServer:
    def test_a_killed_one_has_its_data_again(self) -> None:
        with exporting() as exporter, PrometheusLab([static_targets(exporter.target())]) as lab:
            until(lambda: value(lab, "count_over_time(made_up[1m])"))
            before = time.time()
            lab.kill()
            with pytest.raises(TargetError):
                query(lab, "up")

            lab.start()

            (series,) = query_range(lab, "made_up", before - 20, before)
            assert series.values.tolist() == [42.0] * len(series.values)
            restarted = time.time()
            until(lambda: query(lab, f"timestamp(made_up) > {restarted}"))

    def test_a_changed_configuration_is_taken_and_a_refused_one_is_told(self) -> None:
        with exporting() as exporter, PrometheusLab([static_targets("127.0.0.1:1")]) as lab:
            lab.configure([static_targets(exporter.target())])
            until(lambda: value(lab, "made_up") == 42)
            assert problems(lab.serving) == []
            (lab.serving.configuration / "prometheus.yml").write_text("scrape_configs: 7\n")

            with pytest.raises(OperationFailed, match=r"did not take it.*cannot unmarshal"):
                lab.reload()

            assert value(lab, "made_up") == 42
            assert any("its previous configuration" in problem for problem in problems(lab.serving))
            lab.configure([static_targets(exporter.target())])
            assert problems(lab.serving) == []

    def test_it_is_asked_by_tls_and_its_certificate_is_verified(self, tmp_path: Path) -> None:
        certificates = make_certificates(tmp_path, "x")
        with PrometheusLab(certificates=certificates) as lab:
            assert lab.url.startswith("https://")
            assert value(lab, "1 + 1") == 2
            lab.configure([itself(lab.serving.address, ca=certificates.ca.read_text())])
            until(lambda: value(lab, "up") == 1)

            async def asked_without_its_authority() -> None:
                async with Prometheus(lab.url) as prometheus:
                    await prometheus.version()

            with pytest.raises(TargetError, match="not signed by a trusted authority"):
                asyncio.run(asked_without_its_authority())

    def test_a_port_that_is_taken_is_told(self) -> None:
        with PrometheusLab() as lab:
            serving = replace(lab.serving, data=lab.directory / "other")
            second = Server(command(find_prometheus(), serving), serving)

            with pytest.raises(OperationFailed, match="something else listens there: expected a free port"):
                second.start()

    def test_one_that_cannot_start_is_told_with_its_words(self, tmp_path: Path) -> None:
        with PrometheusLab(directory=tmp_path) as lab:
            lab.kill()
            (tmp_path / "configuration" / "prometheus.yml").write_text("scrape_configs: 7\n")

            with pytest.raises(LabError, match=r"did not start: .*cannot unmarshal"):
                lab.start()

    def test_one_that_is_gone_is_told(self) -> None:
        with PrometheusLab() as lab:
            assert problems(lab.serving) == []
            lab.kill()

            assert problems(lab.serving) == [f"{lab.url}: Prometheus does not answer"]

    def test_a_full_disk_is_told_and_what_was_written_can_be_read(self, tmp_path: Path) -> None:
        def many() -> bytes:
            return b"".join(
                b'many{n="%d"} %d\n' % (n, time.time_ns() * (n + 1) % 1_000_003) for n in range(20_000)
            )

        # A disk of its own, which only it sees.
        small = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=2m none "$0" && exec "$@"']
        with exporting() as exporter, ExitStack() as stack:
            exporter.answers["/many"] = many
            listed = static_targets(f"{exporter.target()}, {exporter.target('/many')}")
            (tmp_path / "data").mkdir()
            lab = stack.enter_context(
                PrometheusLab([listed], directory=tmp_path, within=[*small, str(tmp_path / "data")])
            )

            told = until(lambda: problems(lab.serving))

            assert any("could not write samples: expected room on the disk" in problem for problem in told)
            assert value(lab, "made_up") == 42
