"""Dashboards that are made of packs: Grafana can load them, and Prometheus can answer what they ask."""

from __future__ import annotations

import pytest

from tippingpoint.monitoring.dashboards import dashboard
from tippingpoint.monitoring.query_packs import Pack, shipped_packs

PACKS = shipped_packs()


@pytest.fixture(params=sorted(PACKS))
def pack(request: pytest.FixtureRequest) -> Pack:
    return PACKS[request.param]


def test_every_figure_has_a_panel_and_no_two_are_in_one_place(pack: Pack) -> None:
    panels = dashboard(pack)["panels"]

    assert sorted(panel["title"] for panel in panels) == sorted(figure.title for figure in pack.figures)
    assert sorted(panel["id"] for panel in panels) == list(range(1, len(panels) + 1))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_panels_ask_the_data_source_that_people_choose(pack: Pack) -> None:
    content = dashboard(pack)
    (choice,) = content["templating"]["list"]

    assert choice["type"] == "datasource"
    for panel in content["panels"]:
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": f"${{{choice['name']}}}"}


def test_the_leader_is_a_line_of_its_own_where_metrics_tell_who_leads() -> None:
    (memory, *_) = dashboard(PACKS["etcd"])["panels"]
    leader, followers = memory["targets"]

    assert leader["legendFormat"] == "leader: {{host}}"
    assert followers["legendFormat"] == "{{host}}"
    assert memory["fieldConfig"]["overrides"][0]["matcher"]["options"] == leader["refId"]
    assert [len(panel["targets"]) for panel in dashboard(PACKS["lxd"])["panels"]] == [1] * len(
        PACKS["lxd"].figures
    )


def test_a_part_is_in_the_legend() -> None:
    published = dashboard(PACKS["rabbitmq"])["panels"][0]

    assert published["targets"][0]["legendFormat"] == "{{host}}, {{vhost}}"


def test_an_alert_s_threshold_is_drawn() -> None:
    panels = {
        panel["title"]: panel["fieldConfig"]["defaults"] for panel in dashboard(PACKS["etcd"])["panels"]
    }

    assert panels["Log fsync, 99th percentile"]["thresholds"]["steps"][-1] == {"color": "red", "value": 0.5}
    assert panels["Sees a leader"]["thresholds"]["steps"][0] == {"color": "red", "value": None}
    assert panels["CPU"]["custom"]["thresholdsStyle"] == {"mode": "off"}
