"""The pack of RabbitMQ, asked of a real broker with Nova's and Neutron's virtual hosts through a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional.scraping import await_figures, only
from tests.lab.prometheus import PrometheusLab
from tests.lab.rabbitmq import RabbitLab
from tippingpoint.collect.packs import shipped_packs
from tippingpoint.collect.scrape import Found, Group, Job

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitLab]:
    """One broker for the tests, which open and close connections of their own."""
    with RabbitLab() as lab:
        yield lab


@pytest.mark.parametrize(
    ("path", "families"),
    [
        ("/metrics/per-object", None),
        (
            "/metrics/detailed",
            ["channel_exchange_metrics", "channel_queue_metrics", "queue_coarse_metrics"],
        ),
    ],
)
def test_messages_are_told_by_virtual_host(path: str, families: list[str] | None, broker: RabbitLab) -> None:
    # Given a broker where Neutron talks four times as much as Nova, whose messages nobody takes
    pack = shipped_packs()["rabbitmq"]
    with (
        broker.client("nova") as nova,
        broker.client("neutron") as neutron,
        broker.client("neutron") as agent,
    ):
        agent.consume("q-plugin")

        def talk() -> None:
            nova.publish("conductor", 5)
            neutron.publish("q-plugin", 20)

        # When Prometheus scrapes it
        target = [Group([broker.metrics])]
        jobs = [Job("test", "rabbitmq", target, path=path, params={"family": families} if families else {})]
        if families:
            jobs.append(Job("test", "rabbitmq-node", target))
        with PrometheusLab([Found(jobs)]) as lab:
            figures = await_figures(lab.url, pack, talk)

    # Then messages are told apart by virtual host, in the proportion that was sent
    host = broker.metrics
    published, delivered = figures["rabbitmq-published"], figures["rabbitmq-delivered"]
    assert published[host, "neutron"] == pytest.approx(4 * published[host, "nova"], rel=0.3)
    assert 2 < published[host, "nova"] < 1000
    assert delivered[host, "neutron"] == pytest.approx(published[host, "neutron"], rel=0.3)
    assert figures["rabbitmq-backlog"][host, "nova"] > 10
    assert figures["rabbitmq-messages"][host, ""] == pytest.approx(sum(published.values()), rel=0.3)
    # and the broker's own figures are there, once
    assert only(figures["rabbitmq-connections"]) == 3
    assert only(figures["rabbitmq-channels"]) == 3
    assert 3 < only(figures["rabbitmq-files"]) < 1000
    assert 0 < only(figures["rabbitmq-files-used"]) < 0.5
    assert 2e7 < only(figures["rabbitmq-memory"]) < 1e9
    assert 0 < only(figures["rabbitmq-memory-used"]) < 0.5
