"""The packs of LXD and of machines, asked of a real cluster through a real Prometheus: members are told apart."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from lab.certificates import name_in
from lab.exporters import LXD, Exporters
from lab.lxd.access import make_client_certificate
from lab.lxd.cluster import LxdLab
from lab.lxd.unix_socket import ask
from lab.prometheus import PrometheusLab
from tests.functional.monitoring.scraping import await_figures
from tippingpoint.monitoring.query_packs import shipped_packs
from tippingpoint.monitoring.scrape.jobs import Found, Group, Job

pytestmark = pytest.mark.lxd


def test_a_cluster_s_members_each_have_their_own_memory_network_and_containers(lxd: LxdLab) -> None:
    # Given a cluster of three, a container on one of them, and exporters on each member's machine
    packs, members = shipped_packs(), ["m1", "m2", "m3"]
    lxd.image("tiny")
    client = make_client_certificate()
    metrics = {"type": "metrics", "name": "packs-of-lxd", "certificate": client.der}
    server, _key = lxd.server_certificate()
    tls = {"ca": server.read_text(), "certificate": client.certificate, "key": client.key}
    jobs: list[Job] = []
    with ExitStack() as made, Exporters() as exporters:
        lxd.lxc("launch", "tiny", "packs-of-lxd", "--target", "m2")
        made.callback(lxd.lxc, "delete", "--force", "packs-of-lxd")
        ask(lxd.unix_socket(), "POST", "/1.0/certificates", metrics)
        made.callback(lxd.lxc, "config", "trust", "remove", fingerprint(client.certificate))
        for member in members:
            host = lxd.address(member).removeprefix("https://").removesuffix(":8443")
            exporters.node(f"{host}:9100", of=lxd.pids[member])
            exporters.processes(f"{host}:9256", LXD, of=lxd.pids[member])
            group = Group([f"{host}:9100", f"{host}:9256"], {"host": member})
            daemon = Group([f"{host}:8443"], {"host": member})
            jobs.append(Job("test", f"machine-{member}", [group]))
            jobs.append(
                Job(
                    "test",
                    f"lxd-{member}",
                    [daemon],
                    "https",
                    "/1.0/metrics",
                    interval=2,
                    timeout=2,  # what LXD has for an answer, on a machine that is busy
                    server_name=name_in(server.read_bytes()),
                    **tls,
                )
            )

        # When Prometheus scrapes all of it while lists are asked for
        def talk() -> None:
            lxd.lxc("list", "--all-projects", on="m3")

        with PrometheusLab([Found(jobs)]) as lab:
            figures = await_figures(lab.url, packs["lxd"], talk)
            machines = await_figures(lab.url, packs["host"], talk)

    # Then each daemon's memory is its own, without the monitors of its containers
    assert sorted(host for host, _ in figures["lxd-memory"]) == members
    assert all(2e7 < memory < 4e8 for memory in figures["lxd-memory"].values())
    assert all(5 < threads < 500 for threads in figures["lxd-threads"].values())
    assert all(10 < files < 5000 for files in figures["lxd-files"].values())
    assert all(0 <= cores < 4 for cores in figures["lxd-cpu"].values())
    # and the container is where it was put
    assert figures["lxd-containers"] == {("m2", ""): 1.0}
    assert 0 < figures["lxd-containers-memory"]["m2", ""] < 1e9
    # and each machine's network is its own: members talk to the leader of their database, and it answers
    assert sorted(host for host, _ in machines["host-network-out"]) == members
    assert all(100 < bits < 1e9 for bits in machines["host-network-out"].values())
    assert len(set(machines["host-network-out"].values())) == 3


def fingerprint(certificate: str) -> str:
    """What LXD calls a certificate."""
    return x509.load_pem_x509_certificate(certificate.encode()).fingerprint(hashes.SHA256()).hex()
