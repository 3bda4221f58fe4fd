"""Makes alert rules of query packs for Prometheus and COS: one for each figure with an alert."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tippingpoint.monitoring.query_packs import Alert, Figure, Pack

WINDOW_S = 300.0
"""Seconds of the window of rates in rules. It has at least two scrapes, which are at most 120 s apart (SLOWEST)."""


def alert_rules(packs: Iterable[Pack], selector: str = "") -> dict[str, Any]:
    """Return the content of a Prometheus rule file: `{"groups": [...]}`, without packs that have no alerts.

    The rules cover everything that Prometheus scrapes. They have no labels of Juju's topology, because COS would then
    restrict them to the publishing application's own series. `selector` restricts them, as in Figure.query.
    """
    groups = [(pack.name, _rules(pack, selector)) for pack in packs]
    return {"groups": [{"name": f"tippingpoint-{name}", "rules": rules} for name, rules in groups if rules]}


def alert_name(figure: Figure) -> str:
    """Return the name of a figure's alert: EtcdHasLeader for etcd-has-leader."""
    return "".join(word.capitalize() for word in figure.name.split("-"))


def _rules(pack: Pack, selector: str) -> list[dict[str, Any]]:
    return [_rule(figure, figure.alert, selector) for figure in pack.figures if figure.alert is not None]


def _rule(figure: Figure, alert: Alert, selector: str) -> dict[str, Any]:
    where = "{{ $labels.host }}" + (f", {{{{ $labels.{figure.part} }}}}" if figure.part else "")
    value = '{{ $value | printf "%.3g" }}'
    return {
        "alert": alert_name(figure),
        "expr": f"{figure.query(WINDOW_S, selector)} {alert.condition}",
        "for": alert.for_,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": f"{alert.summary.strip()} ({where}).",
            "description": f"{figure.title} is {value} {figure.unit}. {figure.meaning.strip()}",
        },
    }
