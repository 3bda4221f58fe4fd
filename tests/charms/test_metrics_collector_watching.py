"""What the metrics-collector charm sends to those who watch the target by COS: a dashboard and rules of each pack."""

from __future__ import annotations

import base64
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from ops import testing

from tests.charms.collector import context, on_machine
from tippingpoint.monitoring.query_packs import shipped_packs


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_machine(monkeypatch, tmp_path)


def sent(endpoint: str, event: str = "relation_created", unit: int = 0, **state: Any) -> dict[str, str]:
    """What is in the application's bag after an event."""
    relation = testing.Relation(endpoint, remote_app_name="cos")
    ctx = context(unit)
    happens = getattr(ctx.on, event)
    event_of = happens(relation) if event.startswith("relation") else happens()
    out = ctx.run(event_of, testing.State(relations=[relation], **{"leader": True, **state}))
    return dict(out.get_relation(relation.id).local_app_data)


@pytest.mark.parametrize("event", ["relation_created", "leader_elected", "upgrade_charm"])
def test_grafana_gets_a_dashboard_of_each_pack(event: str) -> None:
    bag = sent("grafana-dashboard", event)["dashboards"]

    templates = json.loads(bag)["templates"]
    titles = {
        json.loads(lzma.decompress(base64.b64decode(each["content"])))["title"] for each in templates.values()
    }
    assert titles == {f"Tipping Point: {pack.title}" for pack in shipped_packs().values()}
    assert {each["inject_dropdowns"] for each in templates.values()} == {False}
    assert len(bag) < 60_000  # a bag's limit is 64 KiB


def test_what_is_sent_stays_as_it_is_whoever_leads() -> None:
    model = testing.Model(name="scale", uuid="5e3c9a1e-1f0b-4d56-8a52-3a0d5b1c7e11")

    first, second = (sent("grafana-dashboard", unit=unit, model=model) for unit in (0, 1))

    assert first == second


def test_prometheus_gets_rules_that_are_not_narrowed_to_us() -> None:
    bag = sent("metrics-endpoint")

    groups = json.loads(bag["alert_rules"])["groups"]
    assert groups
    assert not any(
        "juju_application" in rule.get("labels", {}) for group in groups for rule in group["rules"]
    )
    assert json.loads(bag["scrape_jobs"]) == []
    assert json.loads(bag["scrape_metadata"])["application"] == "metrics-collector"


@pytest.mark.parametrize("endpoint", ["grafana-dashboard", "metrics-endpoint"])
def test_only_the_leader_can_send_it(endpoint: str) -> None:
    assert sent(endpoint, leader=False) == {}
