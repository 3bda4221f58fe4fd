"""Makes a Grafana dashboard of each query pack, for Grafana 10 and later (schema 39)."""

from __future__ import annotations

from typing import Any

from tippingpoint.monitoring.query_packs import Figure, Pack

_DATASOURCE = {"type": "prometheus", "uid": "${prometheusds}"}
_WINDOW = "$__rate_interval"
_UNITS = {
    "bytes": "decbytes",
    "bytes/s": "Bps",
    "bits/s": "bps",
    "cores": "short",
    "seconds": "s",
    "count": "short",
    "count/s": "cps",
    "ratio": "percentunit",
}
"""Grafana's names of units, with decimal prefixes as in reports."""
_COLUMNS, _WIDTH, _HEIGHT = 2, 12, 8


def dashboard(pack: Pack) -> dict[str, Any]:
    """Make the dashboard of a pack: a panel for each figure, charts first, with the leader's line thicker."""
    figures = sorted(pack.figures, key=lambda figure: not figure.chart)
    return {
        "title": f"Tipping Point: {pack.title}",
        "description": pack.meaning.strip(),
        "uid": f"tippingpoint-{pack.name}",
        "tags": ["tippingpoint", pack.name],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_datasource_choice()]},
        "panels": [_panel(number, figure, pack) for number, figure in enumerate(figures)],
    }


def _datasource_choice() -> dict[str, Any]:
    return {
        "name": "prometheusds",
        "label": "Prometheus datasource",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
        "current": {},
    }


def _panel(number: int, figure: Figure, pack: Pack) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": figure.title,
        "description": f"{figure.meaning.strip()} Source: {figure.source.strip()}.",
        "datasource": _DATASOURCE,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": row * _HEIGHT},
        "fieldConfig": {
            "defaults": {
                "unit": _UNITS[figure.unit],
                "min": 0,
                "custom": {
                    "drawStyle": "line",
                    "fillOpacity": 8,
                    "lineWidth": 1,
                    "showPoints": "never",
                    "thresholdsStyle": {"mode": "line" if figure.alert else "off"},
                },
                "thresholds": _thresholds(figure),
            },
            "overrides": [_thick("A")] if pack.leader else [],
        },
        "targets": _targets(figure, pack),
        "options": {
            "legend": {
                "calcs": ["max", "lastNotNull"],
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def _targets(figure: Figure, pack: Pack) -> list[dict[str, Any]]:
    query, leads = figure.query(_WINDOW), pack.leader_query()
    who = "{{host}}" + (f", {{{{{figure.part}}}}}" if figure.part else "")
    if not leads:
        return [_target("A", query, who)]
    return [
        _target("A", f"{query} and on (host) ({leads} == 1)", f"leader: {who}"),
        _target("B", f"{query} unless on (host) ({leads} == 1)", who),
    ]


def _target(ref: str, query: str, legend: str) -> dict[str, Any]:
    return {"refId": ref, "datasource": _DATASOURCE, "expr": query, "legendFormat": legend, "range": True}


def _thick(ref: str) -> dict[str, Any]:
    return {
        "matcher": {"id": "byFrameRefID", "options": ref},
        "properties": [{"id": "custom.lineWidth", "value": 3}],
    }


def _thresholds(figure: Figure) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if figure.alert is not None and figure.alert.above is not None:
        steps.append({"color": "red", "value": figure.alert.above})
    elif figure.alert is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": figure.alert.below}]
    return {"mode": "absolute", "steps": steps}
