"""Alert rules made of the packs, for Prometheus and COS: one for each figure that says when it is worth an alert."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tippingpoint.monitoring.query_packs import Alert, Figure, Pack

WINDOW_S = 300.0
"""The span of rates in rules: two scrapes at least, as they are no further than two minutes apart (scrape.SLOWEST)."""


def alert_rules(packs: Iterable[Pack], selector: str = "") -> dict[str, Any]:
    """The rules of packs as a rule file of Prometheus has them: `{"groups": [...]}`, none for a pack without alerts.

    They are about whatever Prometheus scrapes, so they carry no labels of Juju's topology: with these, COS would have
    them look at the publishing application's own series. `selector` narrows them, as in Figure.query.
    """
    groups = [(pack.name, _rules(pack, selector)) for pack in packs]
    return {"groups": [{"name": f"tippingpoint-{name}", "rules": rules} for name, rules in groups if rules]}


def alert_name(figure: Figure) -> str:
    """What the alert of a figure is called: EtcdHasLeader for etcd-has-leader."""
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
