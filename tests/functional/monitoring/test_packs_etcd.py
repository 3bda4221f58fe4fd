"""The pack of etcd, asked of a real cluster through a real Prometheus."""

from __future__ import annotations

import json
import urllib.request
from base64 import b64encode

from lab.etcd.cluster import EtcdLab
from lab.prometheus import PrometheusLab
from tests.functional.monitoring.scraping import await_figures, leaders
from tests.functional.program import WITHIN_S, until
from tippingpoint.monitoring.query_packs import shipped_packs
from tippingpoint.monitoring.scrape.jobs import static_targets

_SINCE_3_5 = {"etcd-apply-time"}
"""Figures that the lab's etcd, which is Debian's 3.4, does not export."""


def test_every_figure_of_etcd_has_a_sane_value_for_each_member_and_one_leads(etcd: EtcdLab) -> None:
    # Given a cluster of three that is written to
    pack = shipped_packs()["etcd"]
    members = [endpoint.removeprefix("http://") for endpoint in etcd.endpoints]

    # When Prometheus scrapes its members
    with PrometheusLab([static_targets("\n".join(etcd.endpoints))]) as lab:
        figures = await_figures(
            lab.url,
            pack,
            lambda: write(etcd, 20),
            until=lambda found: all(
                {host for host, _ in values} == {*members}
                for name, values in found.items()
                if name not in _SINCE_3_5
            ),
        )
        leading = until(lambda: leaders(lab.url, pack))

    # Then each figure has one series a member, which on loopback is told by its port
    assert {name: sorted(host for host, _ in values) for name, values in figures.items()} == {
        figure.name: [] if figure.name in _SINCE_3_5 else sorted(members) for figure in pack.figures
    }
    # and the leader that metrics name is the one that leads
    assert leading == [members[etcd.names.index(etcd.leader())]]
    of_leader = {name: values[leading[0], ""] for name, values in figures.items() if values}
    of_followers = [
        {name: values[member, ""] for name, values in figures.items() if values} for member in members
    ]
    assert all(5e6 < member["etcd-memory"] < 1e9 for member in of_followers)
    assert all(0 < member["etcd-cpu"] < 4 for member in of_followers)
    assert all(1 < member["etcd-proposals"] < 10_000 for member in of_followers)
    assert all(0 < member["etcd-fsync-time"] < 10 for member in of_followers)
    assert all(0 < member["etcd-database-used"] < 0.1 for member in of_followers)
    assert all(member["etcd-has-leader"] == 1 for member in of_followers)
    assert all(10 < member["etcd-files"] < 1000 for member in of_followers)
    # and a leader sends what it is told to its followers
    assert of_leader["etcd-peer-out"] == max(member["etcd-peer-out"] for member in of_followers) > 1000


def write(etcd: EtcdLab, keys: int) -> None:
    """Put so many keys."""
    for number in range(keys):
        pair = {"key": b64encode(b"/packs/%d" % number).decode(), "value": b64encode(bytes(500)).decode()}
        urllib.request.urlopen(
            f"{etcd.endpoints[0]}/v3/kv/put", json.dumps(pair).encode(), timeout=WITHIN_S
        ).close()
