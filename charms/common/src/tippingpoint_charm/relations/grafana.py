"""The relation `grafana-dashboard` (grafana_dashboard): the leader sends dashboards in the application's bag."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping

import ops

from tippingpoint_charm.relations.databag import send, spoken
from tippingpoint_charm.relations.shipped import dashboard, topology

NAME = "grafana-dashboard"


def publish(charm: ops.CharmBase) -> None:
    """Send every related Grafana our dashboard, with drop-down lists for Juju's model and application."""
    if spoken(charm, NAME) and charm.unit.is_leader():
        publish_packed(charm, {"tippingpoint": dashboard(charm)}, by_application=True)


def publish_packed(charm: ops.CharmBase, dashboards: Mapping[str, str], *, by_application: bool) -> None:
    """On the leader, send every related Grafana these dashboards (shipped.packed), by name.

    With `by_application`, Grafana's charm adds drop-down lists for Juju's model and application, and restricts all
    queries to the choice.
    """
    where = topology(charm)
    where.pop("charm_name")
    where["unit"] = ""  # the bag must not change when another unit becomes the leader
    templates = {
        f"file:{name}": {
            "charm": charm.meta.name,
            "content": content,
            "juju_topology": where,
            "inject_dropdowns": by_application,
        }
        for name, content in dashboards.items()
    }
    # The interface has an id that differs whenever the dashboards do.
    mark = str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(templates)))
    for relation in spoken(charm, NAME):
        send(relation, charm.app, {"dashboards": json.dumps({"templates": templates, "uuid": mark})})
