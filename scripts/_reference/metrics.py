"""The tables of docs/reference/metrics.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import yaml

from scripts._reference.markdown import code, one_line, sentence, table
from tippingpoint.agent.exporter import Measured
from tippingpoint.monitoring.query_packs import Figure, Pack, shipped_packs
from tippingpoint.plan.read import load_plan

ROOT = Path(__file__).resolve().parents[2]
_ALERTS = ROOT / "charms/common/src/tippingpoint_charm/alert_rules/tippingpoint.yaml"
_SUFFIXES = {"counter": "_total", "gauge": "", "histogram": ""}


def packs() -> str:
    """A section for each query pack."""
    return "\n".join(_pack(pack) for pack in shipped_packs().values())


def exported() -> str:
    """The metrics of an agent, as they are when a run begins."""
    measured = Measured()
    measured.began("RUN", load_plan("etcd-demo"))
    rows = [
        [
            code(f"{family.name}{_SUFFIXES[family.type]}"),
            family.type,
            ", ".join(map(code, family._labelnames)),
            sentence(family.documentation),
        ]
        for family in measured.collect()
    ]
    return table(["metric", "type", "labels", "meaning"], rows)


def alerts() -> str:
    """The alert rules of the generators."""
    groups = yaml.safe_load(_ALERTS.read_text(encoding="utf-8"))["groups"]
    rows = [
        [
            code(rule["alert"]),
            rule["labels"]["severity"],
            rule["for"],
            re.sub(r"{{ [$]labels[.](\w+) }}", r"\1", rule["annotations"]["summary"]),
        ]
        for group in groups
        for rule in group["rules"]
    ]
    return table(["alert", "severity", "for", "meaning"], rows)


def _pack(pack: Pack) -> str:
    whose = f"For runs on {', '.join(pack.targets)}." if pack.targets else "For every run."
    return "\n".join(
        [
            f"### {pack.title} (`{pack.name}`)",
            "",
            f"{one_line(pack.meaning)} {whose} [An example](prometheus/{pack.name}.yml) scrapes it.",
            "",
            table(["figure", "unit", "meaning", "from"], [_figure(figure) for figure in pack.figures]),
            "",
        ]
    )


def _figure(figure: Figure) -> list[str]:
    said = [one_line(figure.meaning)]
    if figure.part:
        said.append(f"One for each {figure.part}.")
    if figure.cost:
        said.append("Also per unit of load." if figure.cost == "load" else "Also per operation.")
    if figure.limit:
        said.append(f"Limit: {figure.limit.words} {figure.limit.value:g} ({one_line(figure.limit.because)})")
    if figure.alert:
        said.append(f"Alert: {figure.alert.condition} for {figure.alert.for_}.")
    return [code(figure.name), figure.unit, " ".join(said), one_line(figure.source)]


PARTS: dict[str, Callable[[], str]] = {"packs": packs, "exported": exported, "alerts": alerts}
