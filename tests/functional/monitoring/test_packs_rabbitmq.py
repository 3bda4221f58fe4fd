"""The pack of RabbitMQ, asked of a real broker with Nova's and Neutron's virtual hosts through a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.prometheus import PrometheusLab
from lab.rabbitmq import RabbitLab
from tests.functional.monitoring.scraping import Values, await_figures, only
from tippingpoint.monitoring.query_packs import shipped_packs
from tippingpoint.monitoring.scrape.jobs import Found, Group, Job

_SETS = 8
"""How often figures are asked for, until they are in proportion: their series are not of the same moment."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitLab]:
    """One broker for the tests, which open and close connections of their own."""
    with RabbitLab() as lab:
        yield lab


def in_proportion(figures: dict[str, Values], host: str) -> bool:
    """Whether Neutron's messages are four times Nova's, are delivered, and both are all there are."""
    published, delivered = figures["rabbitmq-published"], figures["rabbitmq-delivered"]
    return (
        published[host, "neutron"] == pytest.approx(4 * published[host, "nova"], rel=0.2)
        and delivered[host, "neutron"] == pytest.approx(published[host, "neutron"], rel=0.2)
        and figures["rabbitmq-messages"][host, ""] == pytest.approx(sum(published.values()), rel=0.2)
    )


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
            figures: dict[str, Values] = {}
            for _ in range(_SETS):
                figures = await_figures(lab.url, pack, talk)
                if in_proportion(figures, broker.metrics):
                    break

    # Then messages are told apart by virtual host, in the proportion that was sent
    host = broker.metrics
    assert in_proportion(figures, host), figures
    assert 2 < figures["rabbitmq-published"][host, "nova"] < 1000
    assert figures["rabbitmq-backlog"][host, "nova"] > 10
    # and the broker's own figures are there, once
    assert only(figures["rabbitmq-connections"]) == 3
    assert only(figures["rabbitmq-channels"]) == 3
    assert 3 < only(figures["rabbitmq-files"]) < 1000
    assert 0 < only(figures["rabbitmq-files-used"]) < 0.5
    assert 2e7 < only(figures["rabbitmq-memory"]) < 1e9
    assert 0 < only(figures["rabbitmq-memory-used"]) < 0.5
