"""Sends COS a Grafana dashboard and alert rules of each query pack, for monitoring the target.

They cover everything that a Prometheus scrapes: no labels of this application restrict them.
"""

from __future__ import annotations

import json

import ops
from tippingpoint_charm.relations import grafana, metrics
from tippingpoint_charm.relations.databag import send, spoken
from tippingpoint_charm.relations.shipped import packed, topology

from tippingpoint.monitoring.dashboards import dashboard
from tippingpoint.monitoring.query_packs import shipped_packs
from tippingpoint.monitoring.rules import alert_rules


def publish(charm: ops.CharmBase) -> None:
    """On the leader, send every related Grafana the dashboards, and every related Prometheus the rules."""
    if not charm.unit.is_leader():
        return
    if spoken(charm, grafana.NAME):
        boards = {
            f"tippingpoint-{name}": packed(charm, f"packs/{name}", dashboard(pack))
            for name, pack in shipped_packs().items()
        }
        grafana.publish_packed(charm, boards, by_application=False)
    for relation in spoken(charm, metrics.NAME):
        bag = {
            "scrape_jobs": "[]",
            "scrape_metadata": json.dumps(topology(charm)),
            "alert_rules": json.dumps(alert_rules(shipped_packs().values())),
        }
        send(relation, charm.app, bag)
