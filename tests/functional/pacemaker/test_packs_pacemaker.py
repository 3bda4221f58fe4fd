"""The pack of Pacemaker, asked of a real cluster through a real Prometheus: each node tells of itself, and the DC
leads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from lab.exporters import Exporters
from lab.pacemaker.cluster import PacemakerLab
from lab.prometheus import PrometheusLab
from tests.functional.monitoring.scraping import Values, await_figures, leaders
from tippingpoint.monitoring.query_packs import shipped_packs

pytestmark = pytest.mark.pacemaker


def test_every_figure_of_a_cluster_has_a_sane_value_for_each_node_and_the_dc_leads(
    pacemaker: PacemakerLab,
) -> None:
    # Given a cluster of three, with a property that changes all the time
    pack, nodes, values = shipped_packs()["pacemaker"], pacemaker.names, itertools.count()

    def change() -> None:
        pacemaker.run_on("node2", "crm_attribute", "--name=test-of-packs", f"--update={next(values)}")

    # When Prometheus scrapes its nodes
    try:
        with Exporters() as exporters, PrometheusLab([pacemaker.scraped(exporters)]) as lab:
            figures = await_figures(lab.url, pack, change, whole)
            leading = leaders(lab.url, pack)
    finally:
        pacemaker.run_on("node2", "crm_attribute", "--name=test-of-packs", "--delete")

    # Then the DC leads, and every node has daemons of its own
    assert leading == [pacemaker.leader()]
    daemons = {name for _, name in figures["pacemaker-memory"]}
    assert {
        "corosync",
        "pacemakerd",
        "pacemaker-based",
        "pacemaker-contr",
    } <= daemons  # names end after 15 letters
    assert sorted(host for host, name in figures["pacemaker-memory"] if name == "pacemaker-based") == nodes
    assert all(1e6 < memory < 1e9 for memory in figures["pacemaker-memory"].values())
    assert all(0 <= cores < 4 for cores in figures["pacemaker-cpu"].values())
    # and each tells of the whole cluster
    for figure, value in (("pacemaker-quorate", 1), ("pacemaker-online", 3), ("pacemaker-unclean", 0)):
        assert by_host(figures[figure]) == dict.fromkeys(nodes, value)
    # and the fencing device is the only resource, somewhere
    assert sum(figures["pacemaker-resources"].values()) == 1
    # and the script's figures are there: every node has the same CIB, and measures its peers
    sizes = by_host(figures["pacemaker-cib"])
    assert sorted(sizes) == nodes
    assert all(2_000 < size < 200_000 for size in sizes.values())
    latencies = by_host(figures["pacemaker-knet-latency"])
    assert sorted(latencies) == nodes
    assert all(1e-6 < seconds < 10 for seconds in latencies.values())


def whole(found: Mapping[str, Values]) -> bool:
    """Whether every node told of what its tools know, and the fencing device has started."""
    every = (
        "pacemaker-cib",
        "pacemaker-knet-latency",
        "pacemaker-quorate",
        "pacemaker-online",
        "pacemaker-unclean",
    )
    return (
        all(len(found[figure]) == 3 for figure in every) and sum(found["pacemaker-resources"].values()) == 1
    )


def by_host(values: Values) -> dict[str, float]:
    """A figure that has one series a host."""
    return {host: value for (host, _), value in values.items()}
