"""A Prometheus that scrapes a lab's members, and the exporters that tell what the members do not tell themselves.

with EtcdLab() as lab, watched(lab) as prometheus:
    ...  # prometheus.url, for `tippingpoint collect RUN --prometheus URL` once the run has ended
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cryptography import x509

from lab.control import LabError
from lab.etcd.cluster import EtcdLab
from lab.exporters import LXD, MACHINE, NETWORK, OPENSTACK, Exporters
from lab.lxd.access import make_client_certificate
from lab.lxd.cluster import LxdLab
from lab.lxd.unix_socket import ask
from lab.openstack.cloud import OpenstackLab
from lab.ports import free_ports
from lab.prometheus import PrometheusLab
from tippingpoint.errors import TargetError
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.scrape.jobs import Found, Group, Job, static_targets

_BEFORE = 12
"""Scrapes of everything before a run may begin: rates of what there is without load span several."""
_WITHIN_S = 60.0
_POLL_S = 0.2
_CONTAINERS_EVERY_S = 2
"""LXD looks into each container for its metrics, which is load of its own."""


@contextmanager
def watched(lab: EtcdLab | LxdLab | OpenstackLab) -> Iterator[PrometheusLab]:
    """Scrape each member each second; what is measured from here on has something to be compared with."""
    with Exporters() as exporters:
        match lab:
            case EtcdLab():
                found = _of_etcd(lab)
            case LxdLab():
                found = _of_lxd(lab, exporters)
            case OpenstackLab():
                found = _of_openstack(lab, exporters)
        with PrometheusLab([found]) as prometheus:
            asyncio.run(_await_scrapes(prometheus.url))
            yield prometheus


def _of_etcd(lab: EtcdLab) -> Found:
    members = zip(lab.names, lab.endpoints, strict=True)
    return static_targets(
        "\n".join(f"{endpoint.removeprefix('http://')} host={name}" for name, endpoint in members)
    )


def _of_lxd(lab: LxdLab, exporters: Exporters) -> Found:
    """Each member's daemon, network and containers; the members share the CPU, memory and disks of this machine."""
    client = make_client_certificate()
    trust = {"type": "metrics", "name": "watched", "certificate": client.der}
    ask(lab.unix_socket(), "POST", "/1.0/certificates", trust)
    server, _key = lab.server_certificate()
    machine = f"127.0.0.1:{free_ports(1)[0]}"
    exporters.node(machine, MACHINE)
    jobs = [Job("lab", "machine", [Group([machine], {"host": "machine"})])]
    for member, pid in lab.pids.items():
        host = lab.address(member).removeprefix("https://").removesuffix(":8443")
        exporters.node(f"{host}:9100", NETWORK, of=pid)
        exporters.processes(f"{host}:9256", LXD, of=pid)
        around = Group([f"{host}:9100", f"{host}:9256"], {"host": member})
        jobs.append(Job("lab", f"around-{member}", [around]))
        jobs.append(
            Job(
                "lab",
                f"lxd-{member}",
                [Group([f"{host}:8443"], {"host": member})],
                "https",
                "/1.0/metrics",
                interval=_CONTAINERS_EVERY_S,
                server_name=name_in(server.read_bytes()),
                ca=server.read_text(),
                certificate=client.certificate,
                key=client.key,
            )
        )
    return Found(jobs)


def _of_openstack(lab: OpenstackLab, exporters: Exporters) -> Found:
    """Each broker with its messages by virtual host, and the programs of the control plane on this machine."""
    machine, processes = (f"127.0.0.1:{port}" for port in free_ports(2))
    exporters.node(machine, MACHINE)
    exporters.processes(processes, OPENSTACK)
    targets = [f"{machine} host=machine", f"{processes} host=machine"]
    targets += [f"http://{address}/metrics/per-object host={name}" for name, address in lab.metrics.items()]
    return static_targets("\n".join(targets))


def name_in(certificate: bytes) -> str:
    """The name that a server certificate (PEM) is for, as LXD's is for no address of a lab."""
    parsed = x509.load_pem_x509_certificate(certificate)
    names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.DNSName)[0]


async def _await_scrapes(url: str) -> None:
    deadline = time.monotonic() + _WITHIN_S
    lacking = "nothing is scraped"
    async with Prometheus(url) as prometheus:
        while lacking:
            if time.monotonic() > deadline:
                raise LabError(lacking, f"every member scraped within {_WITHIN_S:g} s")
            with suppress(TargetError):  # it has only just started
                lacking = await _lacking(prometheus)
            await asyncio.sleep(_POLL_S)


async def _lacking(prometheus: Prometheus) -> str:
    """A target that does not answer, or has not often enough; empty when there is none."""
    targets = await prometheus.targets()
    if not targets:
        return "nothing is scraped"
    for target in targets:
        enough = 1 if target.url.endswith("/1.0/metrics") else _BEFORE
        if target.health != "up":
            return f"{target.url}: {target.error or target.health}"
        up = f'sum_over_time(up{{job="{target.job}",instance="{target.labels["instance"]}"}}[5m]) >= {enough}'
        if not await prometheus.query(up):
            return f"{target.url}: scraped too seldom"
    return ""
