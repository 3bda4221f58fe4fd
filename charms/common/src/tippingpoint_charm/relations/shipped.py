"""What we ship for those who watch: alert rules and a Grafana dashboard, and whose they are in Juju's words."""

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
    """Where this unit is, in the words that Canonical's observability charms label series with."""
    return {
        "model": charm.model.name,
        "model_uuid": charm.model.uuid,
        "application": charm.app.name,
        "unit": charm.unit.name,
        "charm_name": charm.meta.name,
    }


def alert_rules(charm: ops.CharmBase) -> dict[str, Any]:
    """The groups of rules, for the series of this application only."""
    where = topology(charm)
    labels = {
        "juju_model": where["model"],
        "juju_model_uuid": where["model_uuid"],
        "juju_application": where["application"],
    }
    # JSON's quotes and escapes are among those of PromQL's strings.
    matchers = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    groups = yaml.safe_load((_HERE / _RULES).read_text())["groups"]
    for group in groups:
        group["name"] = "_".join((where["model"], where["application"], group["name"])).replace("-", "_")
        for rule in group["rules"]:
            rule["expr"] = rule["expr"].replace(_TOPOLOGY, matchers)
            rule["labels"] = {**rule["labels"], **labels, "juju_charm": where["charm_name"]}
    return {"groups": groups}


def dashboard(charm: ops.CharmBase) -> str:
    """The dashboard, as `packed` has them."""
    return packed(charm, DASHBOARD, json.loads((_HERE / DASHBOARD).read_text()))


def packed(charm: ops.CharmBase, name: str, content: Mapping[str, Any]) -> str:
    """A dashboard, packed as the observability charms send them: JSON, LZMA, base64.

    The uid is 40 hexadecimal digits of the charm's name and the dashboard's, which Grafana's charm keeps as it is.
    """
    import lzma  # a Python that was built without it still runs all the rest

    made = {
        **content,
        "uid": hashlib.sha1(f"{charm.meta.name}/{name}".encode()).hexdigest(),
        "tags": [*content.get("tags", ()), f"charm: {charm.meta.name}"],
    }
    return base64.b64encode(lzma.compress(json.dumps(made).encode())).decode()
