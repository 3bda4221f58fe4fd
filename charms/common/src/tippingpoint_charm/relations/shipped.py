"""The alert rules and the Grafana dashboard that the charms ship, with labels of Juju's topology."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ops
import yaml

_HERE = Path(__file__).parent.parent
DASHBOARD = "dashboards/tippingpoint.json"
_RULES = "alert_rules/tippingpoint.yaml"
_TOPOLOGY = "%%juju_topology%%"


def topology(charm: ops.CharmBase) -> dict[str, str]:
    """Return the labels that Canonical's observability charms give to the series of this unit."""
    return {
        "model": charm.model.name,
        "model_uuid": charm.model.uuid,
        "application": charm.app.name,
        "unit": charm.unit.name,
        "charm_name": charm.meta.name,
    }


def alert_rules(charm: ops.CharmBase) -> dict[str, Any]:
    """Return the groups of alert rules, for the series of this application only."""
    where = topology(charm)
    labels = {
        "juju_model": where["model"],
        "juju_model_uuid": where["model_uuid"],
        "juju_application": where["application"],
    }
    # JSON strings are valid PromQL strings.
    matchers = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    groups = yaml.safe_load((_HERE / _RULES).read_text())["groups"]
    for group in groups:
        group["name"] = "_".join((where["model"], where["application"], group["name"])).replace("-", "_")
        for rule in group["rules"]:
            rule["expr"] = rule["expr"].replace(_TOPOLOGY, matchers)
            rule["labels"] = {**rule["labels"], **labels, "juju_charm": where["charm_name"]}
    return {"groups": groups}


def dashboard(charm: ops.CharmBase) -> str:
    """Return the dashboard in the form of `packed`."""
    return packed(charm, DASHBOARD, json.loads((_HERE / DASHBOARD).read_text()))


def packed(charm: ops.CharmBase, name: str, content: Mapping[str, Any]) -> str:
    """Pack a dashboard as the observability charms do: JSON, LZMA, base64.

    The uid is 40 hexadecimal digits, made of the names of charm and dashboard. Grafana's charm keeps it.
    """
    import lzma  # a Python built without it still runs everything else

    made = {
        **content,
        "uid": hashlib.sha1(f"{charm.meta.name}/{name}".encode()).hexdigest(),
        "tags": [*content.get("tags", ()), f"charm: {charm.meta.name}"],
    }
    return base64.b64encode(lzma.compress(json.dumps(made).encode())).decode()
