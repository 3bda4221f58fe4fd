"""The relation `grafana-dashboard` (grafana_dashboard): the leader sends the dashboard in the application's bag."""

from __future__ import annotations

import json
import uuid

import ops

from tippingpoint_charm.relations.databag import related, write
from tippingpoint_charm.relations.shipped import dashboard, topology

NAME = "grafana-dashboard"


def publish(charm: ops.CharmBase) -> None:
    """Send every related Grafana the dashboard, which adds drop-down lists for Juju's model and application."""
    relations = related(charm, NAME)
    if not relations or not charm.unit.is_leader():
        return
    where = topology(charm)
    where.pop("charm_name")
    where["unit"] = ""  # every unit may become the leader: the bag is to stay as it is
    template = {
        "charm": charm.meta.name,
        "content": dashboard(charm),
        "juju_topology": where,
        "inject_dropdowns": True,
    }
    # The interface has an id that differs whenever the dashboards do.
    mark = str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(template)))
    content = {"templates": {"file:tippingpoint": template}, "uuid": mark}
    for relation in relations:
        write(relation, charm.app, {"dashboards": json.dumps(content)})
