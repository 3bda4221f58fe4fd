"""The relation `cos-agent` (cos_agent): gives the collector on the same machine our exporter, rules and dashboard.

That collector is a subordinate, so all data are in the unit's bag, as JSON under `config`.
"""

from __future__ import annotations

import json

import ops

from tippingpoint_charm.relations.databag import send, spoken
from tippingpoint_charm.relations.metrics import PATH
from tippingpoint_charm.relations.shipped import alert_rules, dashboard

NAME = "cos-agent"


def publish(charm: ops.CharmBase, port: int) -> None:
    """Send every related collector the exporter's place on this machine, with its rules and dashboard."""
    for relation in spoken(charm, NAME):
        job = {
            "job_name": f"{charm.app.name}_exporter",
            "metrics_path": PATH,
            "static_configs": [{"targets": [f"localhost:{port}"]}],
        }
        config = {
            "metrics_alert_rules": alert_rules(charm),
            "log_alert_rules": {},
            "dashboards": [dashboard(charm)],
            "metrics_scrape_jobs": [job],
            "log_slots": [],
        }
        send(relation, charm.unit, {"config": json.dumps(config)})
