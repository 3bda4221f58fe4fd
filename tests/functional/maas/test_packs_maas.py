"""The pack of MAAS, asked of a simulated region through a real Prometheus."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from lab.maas.region import Timings
from lab.maas.simulator import MaasLab
from lab.prometheus import PrometheusLab
from tests.functional.maas.region_client import Region
from tests.functional.monitoring.scraping import await_figures
from tippingpoint.monitoring.query_packs import shipped_packs
from tippingpoint.monitoring.scrape.jobs import Found, Group, Job


def test_a_region_is_measured_at_its_two_ports() -> None:
    # given a region with two machines, a VM host with one more, and rack controllers that are gone
    pack = shipped_packs()["maas"]
    with MaasLab(machines=2, racks=1, timings=Timings(0.05, 0.05, 0.05, 0.05, 0.2)) as maas:
        asyncio.run(composed(maas))
        maas.kill("rack-1")
        labels = {"host": "region"}
        of_answers = Group([urlsplit(maas.metrics_url).netloc], labels)
        of_database = Group([urlsplit(maas.url).netloc], labels)
        jobs = [
            Job("test", "maas-answers", [of_answers]),
            Job("test", "maas", [of_database], path="/MAAS/metrics"),
        ]

        # when Prometheus scrapes both while machines are listed and a deployment is refused
        with PrometheusLab([Found(jobs)]) as lab:
            figures = await_figures(lab.url, pack, lambda: asyncio.run(asked(maas)))

    # then the machines are counted by status, and the VM host's room
    machines = {status: count for (_, status), count in figures["maas-machines"].items() if count}
    assert machines == {"ready": 3}
    assert figures["maas-vms"] == {("region", ""): 1}
    assert figures["maas-vm-cores-used"] == {("region", ""): 1 / 64}
    # and requests are, by path, with what they took and how much was answered
    assert set(figures["maas-calls-time"]) == {
        ("region", "/MAAS/api/2.0/machines/"),
        ("region", "/MAAS/api/2.0/machines/:system_id/"),
        ("region", "/MAAS/metrics"),
    }
    assert figures["maas-requests"]["region", ""] > figures["maas-requests-failed"]["region", ""] > 0
    assert 0 < figures["maas-request-time"]["region", ""] < 10
    assert figures["maas-answers"]["region", ""] > 1000
    # and what a simulation has no value of is absent
    absent = {figure.name for figure in pack.figures if not figures[figure.name]}
    assert absent >= {"maas-queries", "maas-files", "maas-rack-call-time", "maas-services-dead"}
    assert absent <= {figure.name for figure in pack.figures if figure.optional}


async def composed(maas: MaasLab) -> None:
    """Compose a machine on a VM host, and wait until it is Ready."""
    async with Region(maas) as region:
        host = await region.ok("POST", "vm-hosts/", type="virsh", power_address="qemu:///system")
        made = await region.ok("POST", f"vm-hosts/{host['id']}/?op=compose", cores=1)
        await region.until(made["system_id"], "Ready")


async def asked(maas: MaasLab) -> None:
    """List machines, and ask for the power of one, which nobody can ask."""
    async with Region(maas) as region:
        machines = await region.ok("GET", "machines/")
        status, _ = await region.call("GET", f"machines/{machines[0]['system_id']}/?op=query_power_state")
        assert status == 503
