"""The relation `metrics-endpoint` (prometheus_scrape): gives Prometheus the address of each agent's exporter."""

from __future__ import annotations

import json

import ops

from tippingpoint_charm.relations.databag import own_address, send, spoken
from tippingpoint_charm.relations.shipped import alert_rules, topology

NAME = "metrics-endpoint"
PATH = "/metrics"


def publish(charm: ops.CharmBase, port: int) -> None:
    """Send this unit's address; on the leader also the job (the exporters' port) and the alert rules."""
    for relation in spoken(charm, NAME):
        address = own_address(charm, relation)
        if address:
            unit = {
                "prometheus_scrape_unit_address": address,
                "prometheus_scrape_unit_name": charm.unit.name,
                "prometheus_scrape_unit_path": "",
            }
            send(relation, charm.unit, unit)
        if charm.unit.is_leader():
            jobs = [{"metrics_path": PATH, "static_configs": [{"targets": [f"*:{port}"]}]}]
            app = {
                "scrape_jobs": json.dumps(jobs),
                "scrape_metadata": json.dumps(topology(charm)),
                "alert_rules": json.dumps(alert_rules(charm)),
            }
            send(relation, charm.app, app)
