"""LXD as its charm relates it: units are scraped, and the run's members, of which one leads, are what is told."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
import uvloop

from lab.certificates import name_in
from lab.lxd.access import make_client_certificate
from lab.lxd.cluster import LxdLab
from lab.lxd.unix_socket import ask
from lab.prometheus import PrometheusLab
from tests.functional.lxd.test_lxd_target import entry_of, taken
from tests.functional.lxd.test_packs_lxd import fingerprint
from tippingpoint.monitoring.gather import gather_resources
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.query_packs import shipped_packs
from tippingpoint.monitoring.scrape.relation import jobs_of_relation
from tippingpoint.rundir.cluster_events import Member
from tippingpoint.rundir.resources import Resources

pytestmark = pytest.mark.lxd


def test_units_of_a_related_lxd_go_by_its_members_names(lxd: LxdLab, tmp_path: Path) -> None:
    # Given a cluster, scraped as the charm's relation says: each member's address in one job, and units' addresses
    client = make_client_certificate()
    metrics = {"type": "metrics", "name": "lxd-by-relation", "certificate": client.der}
    ask(lxd.unix_socket(), "POST", "/1.0/certificates", metrics)
    server, _key = lxd.server_certificate()
    hosts = {
        name: lxd.address(name).removeprefix("https://").removesuffix(":8443") for name in ("m1", "m2", "m3")
    }
    job = {
        "metrics_path": "/1.0/metrics",
        "scheme": "https",
        "static_configs": [{"targets": [f"{host}:8443" for host in hosts.values()]}],
        "tls_config": {
            "ca_file": server.read_text(),
            "cert_file": client.certificate,
            "key_file": client.key,
            "server_name": name_in(server.read_bytes()),
        },
    }
    metadata = {"model": "m", "model_uuid": "12ab", "application": "lxd", "charm_name": "lxd"}
    units = {
        f"lxd/{number}": {"ingress-address": hosts[name]} for number, name in enumerate(("m3", "m1", "m2"))
    }
    bag = {"scrape_jobs": json.dumps([job]), "scrape_metadata": json.dumps(metadata)}
    found = jobs_of_relation("metrics:1 lxd", bag, units)

    # When their resources are gathered for a run that knows the members as LXD lists them
    async def members() -> list[Member]:
        async with taken(entry_of(lxd, tmp_path)) as target:
            return [Member(seen.name, seen.address) for seen in await target.members()]

    async def gathered(url: str, known: list[Member]) -> Resources:
        began = time.time()
        async with Prometheus(url) as prometheus, asyncio.timeout(600):
            while True:
                scraped = await prometheus.query("sum_over_time(up[1h]) >= 5")
                if len(scraped) == len(hosts):
                    break
                await asyncio.sleep(0.2)
            packs = [shipped_packs()["lxd"]]
            return await gather_resources(prometheus, packs, began, time.time(), began, members=known)

    known = uvloop.run(members())
    with PrometheusLab([found]) as lab:
        told = asyncio.run(gathered(lab.url, known))
    lxd.lxc("config", "trust", "remove", fingerprint(client.certificate))

    # Then each member is a host, where the metrics alone would tell of lxd/0, lxd/1 and lxd/2
    assert {member.name: member.address for member in known} == hosts
    assert told.hosts == ["m1", "m2", "m3"]
