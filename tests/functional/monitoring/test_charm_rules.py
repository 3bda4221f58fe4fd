"""The alert rules and the dashboard that the charms ship, read by promtool: alerts fire when they should."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.functional.monitoring.promtool import check_queries, check_rules, try_rules

SHIPPED = Path(__file__).resolve().parents[3] / "charms/common/src/tippingpoint_charm"
OPERATIONS = "tippingpoint_operations_total"
TOPOLOGY = {
    "juju_model": "lab",
    "juju_model_uuid": "5c1b3d8e-4a47-4c9c-8e7c-0d1f4f1e5d11",
    "juju_application": "load-claimer",
}


def matching(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())


def rules() -> dict[str, Any]:
    """The rules for the series of one application."""
    text = (SHIPPED / "alert_rules" / "tippingpoint.yaml").read_text()
    made = yaml.safe_load(text)
    for group in made["groups"]:
        for rule in group["rules"]:
            rule["expr"] = rule["expr"].replace("%%juju_topology%%", matching(TOPOLOGY))
    return made


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    check_rules(tmp_path, rules())
    try_rules(tmp_path, [rules()], SCENARIO, every="30s")


def test_every_query_of_the_dashboard_can_be_answered(tmp_path: Path) -> None:
    panels = json.loads((SHIPPED / "dashboards" / "tippingpoint.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    check_queries(
        tmp_path, [query.replace("$__rate_interval", "1m").replace("$run", ".*") for query in queries]
    )


def series(name: str, values: str, unit: str = "load-claimer/0", **labels: str) -> dict[str, str]:
    matchers = matching({**TOPOLOGY, "juju_unit": unit, **labels})
    return {"series": f"{name}{{{matchers}}}", "values": values}


OF_RUN = {"run": "r1", "plan": "p", "target": "etcd"}
FIRING = 'count by (alertname, juju_unit, run) (ALERTS{alertstate="firing"})'


def firing(at: str, *alerts: str) -> dict[str, Any]:
    return {
        "expr": FIRING,
        "eval_time": at,
        "exp_samples": [{"labels": f"{{{alert}}}", "value": 1} for alert in alerts],
    }


SCENARIO = [
    {
        "interval": "30s",
        "input_series": [
            # load-claimer/1 is down from the start; another application's agent is not ours to tell of.
            series("up", "1x20"),
            series("up", "0x20", unit="load-claimer/1"),
            series("up", "0x20", juju_application="other"),
            # 2 % time out until minute 5, then all is well; denied ones are no failures.
            series(OPERATIONS, "0+970x20", **OF_RUN, operation="extend", outcome="ok"),
            series(OPERATIONS, "0+30x10 300x10", **OF_RUN, operation="extend", outcome="timeout"),
            series(OPERATIONS, "0+500x20", **OF_RUN, operation="claim", outcome="denied"),
            series("tippingpoint_generator_busiest_worker", "0.5x10 0.95x10", **OF_RUN),
        ],
        "promql_expr_test": [
            firing("1m"),
            firing(
                "4m",
                'alertname="TippingPointAgentDown", juju_unit="load-claimer/1"',
                'alertname="TippingPointErrors", run="r1"',
            ),
            firing(
                "9m",
                'alertname="TippingPointAgentDown", juju_unit="load-claimer/1"',
                'alertname="TippingPointGeneratorSaturated", juju_unit="load-claimer/0", run="r1"',
            ),
        ],
    }
]
