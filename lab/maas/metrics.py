"""What a region tells Prometheus, at two places.

/MAAS/metrics has what is in its database: names and labels are those of src/maasserver/prometheus/stats.py of MAAS
3.3.11, values as src/maasserver/stats.py counts them. A real region answers there only with the setting
prometheus_enabled; the lab's has it from the beginning.

Each region controller tells at its own port (5239) how long its answers take: src/maasserver/prometheus/middleware.py,
with the definitions of src/provisioningserver/prometheus/metrics.py.

What a simulation has no value of is absent: queries of a database, calls between region and rack controllers,
websockets, files by TFTP, addresses of subnets, images, clusters of VM hosts, and the memory and CPU of the machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lab.maas.machine import SHORT_NAMES
from lab.maas.region import Region
from lab.maas.shelves import Shelves

_ID = "00000000-0000-4000-8000-000000000000"
"""The UUID of the MAAS, on all series as maas_id."""
_COUNTED = (
    *("new", "ready", "allocated", "deployed", "commissioning", "testing", "deploying"),
    *("failed_deployment", "failed_commissioning", "failed_testing", "broken"),
)
"""The statuses that a region counts machines by."""
_OF_CALLS = ("method", "path", "status", "op", "host", "maas_id")
_SIZES = (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)


class Metrics:
    """The metrics of a region. `host` is the address of its controller."""

    def __init__(self, region: Region, shelves: Shelves, host: str) -> None:
        self._host = host
        self._of_database = CollectorRegistry()
        self._of_database.register(_Database(region, shelves))
        self._of_answers = CollectorRegistry()
        self._seconds = Histogram(
            "maas_http_request_latency", "HTTP request latency", _OF_CALLS, registry=self._of_answers
        )
        self._bytes = Histogram(
            "maas_http_response_size",
            "HTTP response size",
            _OF_CALLS,
            registry=self._of_answers,
            buckets=_SIZES,
        )

    def answered(self, method: str, path: str, op: str, status: int, seconds: float, size: int) -> None:
        """Note an answer. `path` has :system_id and the like in place of what differs from thing to thing."""
        labels = (method, path, str(status), op, self._host, _ID)
        self._seconds.labels(*labels).observe(seconds)
        self._bytes.labels(*labels).observe(size)

    def database(self) -> bytes:
        """Return what /MAAS/metrics answers."""
        return generate_latest(self._of_database)

    def answers(self) -> bytes:
        """Return what the controller's own port answers."""
        return generate_latest(self._of_answers)


class _Database(Collector):
    """Counts what is in the region's database when it is asked."""

    def __init__(self, region: Region, shelves: Shelves) -> None:
        self._region = region
        self._shelves = shelves

    def collect(self) -> Iterator[GaugeMetricFamily]:
        machines, hosts = list(self._region.machines.values()), list(self._region.hosts.values())
        by_status = Counter(machine.status for machine in machines)
        yield _gauge(
            "maas_machines",
            "Number of machines by status",
            {(status,): by_status[SHORT_NAMES[status]] for status in _COUNTED},
            ("status",),
        )
        nodes = {"machines": len(machines), "devices": 0, "regions": 1, "regionracks": 0}
        nodes["racks"] = len(self._region.racks)
        yield _gauge(
            "maas_nodes",
            "Number of nodes per type (e.g. racks, machines, etc)",
            {(kind,): count for kind, count in nodes.items()},
            ("type",),
        )
        fabrics = self._shelves.names("fabrics")
        vlans = sum(self._shelves.count(f"fabrics/{number}/vlans") for number in range(len(fabrics)))
        for name, help_text, value in (
            ("maas_net_spaces", "Number of network spaces", self._shelves.count("spaces")),
            ("maas_net_fabrics", "Number of network fabrics", len(fabrics)),
            ("maas_net_vlans", "Number of network VLANs", vlans),
            ("maas_net_subnets_v4", "Number of IPv4 subnets", self._shelves.count("subnets")),
            (
                "maas_machines_total_mem",
                "Amount of combined memory for all machines",
                sum(machine.memory_mib for machine in machines),
            ),
            (
                "maas_machines_total_cpu",
                "Amount of combined CPU counts for all machines",
                sum(machine.cores for machine in machines),
            ),
            (
                "maas_machines_total_storage",
                "Amount of combined storage for all machines",
                sum(sum(machine.disks_gb) for machine in machines) * 1000**3,
            ),
            ("maas_kvm_pods", "Number of KVM pods", len(hosts)),
            (
                "maas_kvm_machines",
                "Number of KVM virtual machines",
                sum(machine.host is not None for machine in machines),
            ),
            (
                "maas_kvm_overcommit_cores",
                "Number of KVM cores with overcommit",
                sum(host.cores for host in hosts),
            ),
            (
                "maas_kvm_overcommit_memory",
                "KVM memory size with overcommit",
                sum(host.memory_mib for host in hosts),
            ),
        ):
            yield _gauge(name, help_text, {(): value})
        total = [host.total for host in hosts]
        used = [host.used(self._region.composed(host)) for host in hosts]
        for number, (name, help_text) in enumerate(
            (
                ("maas_kvm_cores", "Number of KVM cores"),
                ("maas_kvm_memory", "Memory for KVM pods"),
                ("maas_kvm_storage", "Size of storage for KVM pods"),
            )
        ):
            unit = 1000**3 if name == "maas_kvm_storage" else 1
            amounts = {
                (what,): unit * sum(each[number] for each in of)
                for what, of in (("available", total), ("used", used))
            }
            yield _gauge(name, help_text, amounts, ("status",))
        arches = Counter(machine.architecture.partition("/")[0] for machine in machines)
        yield _gauge(
            "maas_machine_arches",
            "Number of machines per architecture",
            {(arch,): count for arch, count in arches.items()},
            ("arches",),
        )


def _gauge(
    name: str, help_text: str, values: Mapping[tuple[str, ...], float], labels: Sequence[str] = ()
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=[*labels, "maas_id"])
    for key, value in values.items():
        family.add_metric([*key, _ID], value)
    return family
