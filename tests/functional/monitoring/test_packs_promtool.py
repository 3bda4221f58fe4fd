"""Query packs, read by Prometheus's own promtool: figures, leaders and alerts of recorded series come out as they
should, and it can answer what dashboards ask."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.monitoring.promtool import check_queries, check_rules, try_rules
from tippingpoint.monitoring import rules
from tippingpoint.monitoring.dashboards import dashboard
from tippingpoint.monitoring.query_packs import Pack, shipped_packs
from tippingpoint.monitoring.selecting import all_but_generators, applications, both, read_matchers

RECORDED = Path(__file__).resolve().parents[2] / "recorded"
PACKS = shipped_packs()
WINDOW_S = 60.0


@pytest.fixture(params=sorted(PACKS))
def pack(request: pytest.FixtureRequest) -> Pack:
    return PACKS[request.param]


def test_every_figure_of_a_pack_comes_out_of_recorded_series_as_expected(pack: Pack, tmp_path: Path) -> None:
    # Given series as they were scraped, 15 s apart
    recorded = recorded_of(pack)
    expected: dict[str, dict[str, float]] = recorded["expect"]

    # When Prometheus's engine evaluates each figure over a minute, then each host has what was worked out by hand
    assert list(expected) == [figure.name for figure in pack.figures]
    asked = [(figure.query(WINDOW_S), figure.part, expected[figure.name]) for figure in pack.figures]
    if pack.leader:
        asked.append((pack.leader_query(), "", recorded["leader"]))
    group = {
        "interval": "15s",
        "input_series": input_series(recorded["series"]),
        "promql_expr_test": [
            {"expr": f"round({query}, 0.0001)", "eval_time": "2m", "exp_samples": samples(values, part)}
            for query, part, values in asked
        ],
    }
    try_rules(tmp_path, [], [group])


@pytest.mark.parametrize("again", ["by a second job", "by a pair of Prometheus", "by a job without ports"])
def test_what_is_scraped_twice_counts_once(pack: Pack, again: str, tmp_path: Path) -> None:
    # Given series as they were scraped, and all of them once more, as other jobs or another Prometheus label them
    recorded = recorded_of(pack)
    series: dict[str, str] = recorded["series"]
    twice = series | {scraped_again(name, again): values for name, values in series.items()}
    expected: dict[str, dict[str, float]] = recorded["expect"]

    # When Prometheus's engine evaluates each figure, then it is as large as if it were scraped once. Programs and
    # targets that have no other name than their job are left out.
    named_by_job = {"prometheus-targets-down", *(figure.name for figure in PACKS["process"].figures)}
    asked = [
        (figure.query(WINDOW_S), figure.part, expected[figure.name])
        for figure in pack.figures
        if again == "by a pair of Prometheus" or figure.name not in named_by_job
    ]
    if pack.leader:
        asked.append((pack.leader_query(), "", recorded["leader"]))
    group = {
        "interval": "15s",
        "input_series": input_series(twice),
        "promql_expr_test": [
            {"expr": f"round({query}, 0.0001)", "eval_time": "2m", "exp_samples": samples(values, part)}
            for query, part, values in asked
        ],
    }
    try_rules(tmp_path, [], [group])


def test_a_selector_narrows_every_series_that_a_pack_looks_at(pack: Pack, tmp_path: Path) -> None:
    # Given the same series, of another model
    recorded = recorded_of(pack)
    selector = 'juju_model="mine",juju_charm!~"load-claimer|container-spawner"'
    queries = [figure.query(WINDOW_S, selector) for figure in pack.figures]
    queries += [pack.leader_query(selector)] if pack.leader else []

    # When a selector names a model, then nothing is found, and every expression is still one
    group = {
        "interval": "15s",
        "input_series": input_series(recorded["series"]),
        "promql_expr_test": [{"expr": query, "eval_time": "2m", "exp_samples": []} for query in queries],
    }
    try_rules(tmp_path, [], [group])


def test_alerts_fire_after_their_time_and_not_before(pack: Pack, tmp_path: Path) -> None:
    # Given series that go wrong after three minutes
    alerting = {figure.name: figure for figure in pack.figures if figure.alert is not None}
    cases: dict[str, Any] = recorded_of(pack).get("alerts", {})
    assert sorted(cases) == sorted(alerting)
    if not cases:
        return

    # When the rules look at them, then the alert is not there at first, and fires in time for whom it is about
    tests = []
    for name, case in cases.items():
        figure = alerting[name]
        alone = rules.alert_rules([pack.model_copy(update={"figures": (figure,)})])
        told = alone["groups"][0]["rules"][0]
        fires = [
            {"exp_labels": {"severity": told["labels"]["severity"], **labels_of(key, figure.part)}}
            for key in case["fires"]
        ]
        for alert in fires:
            alert["exp_annotations"] = annotations_of(told, alert["exp_labels"], case["fires"])
        tests.append(
            {
                "interval": "15s",
                "input_series": input_series(case["series"]),
                "alert_rule_test": [
                    {"eval_time": "2m45s", "alertname": rules.alert_name(figure), "exp_alerts": []},
                    {"eval_time": "8m", "alertname": rules.alert_name(figure), "exp_alerts": fires},
                ],
                "promql_expr_test": [
                    {
                        "expr": f"round({figure.query(rules.WINDOW_S)} {figure.alert.condition}, 0.0001)",
                        "eval_time": "8m",
                        "exp_samples": samples(case["fires"], figure.part),
                    }
                ],
            }
        )
    alerts = rules.alert_rules([pack])
    check_rules(tmp_path, alerts)
    try_rules(tmp_path, [alerts], tests)


def test_every_query_of_a_pack_s_dashboard_can_be_answered(pack: Pack, tmp_path: Path) -> None:
    queries = [target["expr"] for panel in dashboard(pack)["panels"] for target in panel["targets"]]
    check_queries(tmp_path, [query.replace("$__rate_interval", "1m") for query in queries])


def test_all_kinds_of_matchers_at_once_are_a_selector(tmp_path: Path) -> None:
    selector = both(
        read_matchers("only", r'a=b, c!~"x\\d+|y, z", d="say \"e\"", f=C:\g'),
        applications([("12ab", "lxd.extra-1")]),
        all_but_generators(["load-claimer/0"]),
    )
    check_queries(tmp_path, [f"up{{{selector}}}"])


def recorded_of(pack: Pack) -> dict[str, Any]:
    return yaml.safe_load((RECORDED / f"{pack.name}.yaml").read_text())


def input_series(series: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": str(values)} for name, values in series.items()]


def scraped_again(series: str, again: str) -> str:
    """The name of a series as a second scrape has it."""
    if again == "by a pair of Prometheus":
        return series.replace("{", '{prometheus_replica="b",', 1)
    other = re.sub(r'job="([^"]*)"', r'job="\1-again"', series)
    without_port = re.sub(r'instance="(10\.[0-9.]+):[0-9]+"', r'instance="\1"', other)
    return without_port if again == "by a job without ports" else other


def labels_of(key: str, part: str) -> dict[str, str]:
    """The labels of `HOST` or `HOST|PART`; a host without a part has no label of it."""
    host, _, of = key.partition("|")
    return {"host": host, **({part: of} if of else {})}


def samples(values: dict[str, float], part: str) -> list[dict[str, Any]]:
    return [{"labels": written(labels_of(key, part)), "value": value} for key, value in values.items()]


def written(labels: dict[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"


def annotations_of(rule: dict[str, Any], labels: dict[str, str], fires: dict[str, float]) -> dict[str, str]:
    """What a rule's annotations become for these labels."""
    (value,) = fires.values()

    def filled(text: str) -> str:
        for name, label in labels.items():
            text = text.replace(f"{{{{ $labels.{name} }}}}", label)
        return text.replace('{{ $value | printf "%.3g" }}', f"{value:.3g}")

    return {name: filled(text) for name, text in rule["annotations"].items()}
