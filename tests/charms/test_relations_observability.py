"""What Prometheus, Grafana and the collectors beside us are sent; the files are what those tools take."""

from __future__ import annotations

import base64
import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest
import tippingpoint_charm
from ops import testing
from prometheus_client import CollectorRegistry

from tests.charms.related import MODEL, PORT, after, context, state
from tippingpoint.agent.exporter import Measured
from tippingpoint.plan.read import validate_plan

OPERATIONS = "tippingpoint_operations_total"
SHIPPED = Path(tippingpoint_charm.__file__).parent
LABELS = {
    "juju_model": MODEL.name,
    "juju_model_uuid": MODEL.uuid,
    "juju_application": "load-claimer",
    "juju_charm": "load-claimer",
}


def sent(relation: testing.RelationBase, **more: Any) -> Any:
    out, _ = after(context(), state(relation, **more))
    return out.get_relations(relation.endpoint)[0]


def unpacked(text: str) -> dict[str, Any]:
    return json.loads(lzma.decompress(base64.b64decode(text)))


class TestPrometheus:
    def test_the_leader_sends_job_topology_and_rules(self) -> None:
        bag = sent(testing.Relation("metrics-endpoint")).local_app_data
        assert json.loads(bag["scrape_jobs"]) == [
            {"metrics_path": "/metrics", "static_configs": [{"targets": [f"*:{PORT}"]}]}
        ]
        assert json.loads(bag["scrape_metadata"]) == {
            "model": MODEL.name,
            "model_uuid": MODEL.uuid,
            "application": "load-claimer",
            "unit": "load-claimer/0",
            "charm_name": "load-claimer",
        }
        (group,) = json.loads(bag["alert_rules"])["groups"]
        assert all(LABELS.items() <= rule["labels"].items() for rule in group["rules"])

    def test_each_unit_sends_its_address_in_the_relations_network(self) -> None:
        network = testing.Network(
            "metrics-endpoint",
            [testing.BindAddress([testing.Address("192.0.2.30")])],
            ingress_addresses=["192.0.2.31"],
        )
        relation = sent(testing.Relation("metrics-endpoint"), leader=False, networks={network})
        assert relation.local_unit_data["prometheus_scrape_unit_address"] == "192.0.2.31"
        assert relation.local_unit_data["prometheus_scrape_unit_name"] == "load-claimer/0"
        assert not relation.local_app_data

    def test_a_unit_without_an_address_sends_none(self) -> None:
        network = testing.Network("metrics-endpoint", [], ingress_addresses=[])
        relation = sent(testing.Relation("metrics-endpoint"), networks={network})
        assert "prometheus_scrape_unit_address" not in relation.local_unit_data


class TestCollector:
    @pytest.mark.parametrize("leader", [True, False])
    def test_every_unit_sends_all_in_its_own_bag(self, leader: bool) -> None:
        """Given a subordinate, which sees its own unit only, then leader or not it gets job, rules and dashboard."""
        relation = sent(testing.SubordinateRelation("cos-agent"), leader=leader)
        config = json.loads(relation.local_unit_data["config"])
        assert set(config) == {
            "metrics_alert_rules",
            "log_alert_rules",
            "dashboards",
            "metrics_scrape_jobs",
            "log_slots",
        }
        (job,) = config["metrics_scrape_jobs"]
        assert job["static_configs"] == [{"targets": [f"localhost:{PORT}"]}]
        (dashboard,) = config["dashboards"]
        assert unpacked(dashboard)["title"] == "Tipping Point"
        assert config["metrics_alert_rules"]["groups"]


class TestGrafana:
    def test_the_leader_sends_the_dashboard(self) -> None:
        content = json.loads(sent(testing.Relation("grafana-dashboard")).local_app_data["dashboards"])
        assert set(content) == {"templates", "uuid"}
        (template,) = content["templates"].values()
        assert template["charm"] == "load-claimer"
        assert template["juju_topology"]["application"] == "load-claimer"
        dashboard = unpacked(template["content"])
        # Grafana's charm keeps a uid of this form, and makes another one of any else.
        assert re.fullmatch("[0-9a-f]{40}", dashboard["uid"])
        assert "charm: load-claimer" in dashboard["tags"]

    def test_the_next_leader_sends_the_same(self) -> None:
        """Given the leader changes, then the bag does not: a change would have Grafana load all anew."""
        first = sent(testing.Relation("grafana-dashboard", id=7))
        out, _ = after(context(unit=1), state(first))
        assert out.get_relations("grafana-dashboard")[0].local_app_data == first.local_app_data

    def test_another_unit_sends_nothing(self) -> None:
        assert not sent(testing.Relation("grafana-dashboard"), leader=False).local_app_data


def rules() -> dict[str, Any]:
    relation = sent(testing.Relation("metrics-endpoint"))
    return json.loads(relation.local_app_data["alert_rules"])


def dashboard() -> dict[str, Any]:
    return json.loads((SHIPPED / "dashboards" / "tippingpoint.json").read_text())


def exported() -> set[str]:
    """The names of the series that an agent's exporter has."""
    plan = validate_plan(
        {
            "name": "small",
            "target": {"kind": "etcd"},
            "workload": {"kind": "claim"},
            "stages": [{"leases": 10, "hold": "10s"}],
        }
    )
    measured = Measured()
    measured.began("run", plan)
    registry = CollectorRegistry()
    registry.register(measured)
    return {family.name for family in registry.collect()}


class TestFiles:
    def test_rules_are_about_series_that_agents_export(self) -> None:
        names = exported()
        for rule in rules()["groups"][0]["rules"]:
            assert "%%" not in rule["expr"]
            for series in re.findall(r"tippingpoint_\w+", rule["expr"]):
                assert series in names | {f"{name}_total" for name in names}

    def test_the_dashboard_is_about_series_that_agents_export(self) -> None:
        names = exported()
        known = names | {f"{name}{end}" for name in names for end in ("_total", "_bucket")}
        shown = {
            series
            for panel in dashboard()["panels"]
            for target in panel["targets"]
            for series in re.findall(r"tippingpoint_\w+", target["expr"])
        }
        assert shown <= known
        assert names <= {re.sub("_(total|bucket)$", "", series) for series in shown}

    def test_the_dashboard_is_one_that_grafana_loads(self) -> None:
        """Given Grafana's schema 39 (Grafana 10 and later), then panels do not overlap, have ids of their own and a
        data source that people choose."""
        content = dashboard()
        assert content["schemaVersion"] >= 39
        panels = content["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        cells: set[tuple[int, int]] = set()
        for panel in panels:
            place = panel["gridPos"]
            taken = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken
            assert place["x"] + place["w"] <= 24
            cells |= taken
            assert panel["datasource"] == {"type": "prometheus", "uid": "${prometheusds}"}
        assert {variable["name"] for variable in content["templating"]["list"]} == {"prometheusds", "run"}
