"""Renders a report as one HTML file that loads nothing: text, tables, and charts drawn from its own data."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import orjson
from jinja2 import Environment
from markupsafe import Markup

from tippingpoint.plan.kinds import facts_of, target_name
from tippingpoint.report import figures
from tippingpoint.report.sections.landing import host_name
from tippingpoint.util.templates import template_environment
from tippingpoint.util.text import singular

_KNOWN_OPERATIONS = {
    **{"claim": 1, "extend": 2, "connect": 3},
    **{"add-machine": 4, "deploy": 8, "add-unit": 1, "relate": 2, "status": 6, "full-status": 7},
    **{"create": 1, "start": 2, "reachable": 3, "probe": 4, "launch": 5, "delete": 1, "evict": 6, "poll": 6},
    **{"cluster-list": 1, "list-fast": 2, "list": 3, "operation-list": 4, "exec": 5},
    **{"network-leases": 6, "network-list": 7},
    **{"enlist": 1, "commission": 2, "release": 4, "remove": 1, "power-off": 6, "power-on": 7},
    **{"machine-list": 3, "machine": 1, "event-list": 4, "tag-list": 2, "fabric-list": 6},
    **{"tag-machines": 5, "untag-machines": 5},
    **{"create_server": 1, "await_active": 2, "boot_server": 5, "delete_server": 4, "total": 3},
    **{"server-list": 3, "flavor-list": 4, "image-list": 5, "service-list": 1, "agent-list": 2},
    **{"remove-machine": 4, "remove-application": 5, "remove-unit": 1, "remove-relation": 2},
}
"""The colours of operations. Removing something uses the colour of creating it."""
_MOST_SIZES = 12
_OUTCOME = re.compile(r"^(Met|Missed|Withheld|Failed): ")
_FILTERS = (
    *(
        "number",
        "amount",
        "two_digits",
        "latency",
        "milliseconds",
        "share",
        "confidence",
        "rate",
        "seconds",
        "clock",
    ),
    *("measured", "limit_name", "change", "interval", "published", "load"),
    *("of", "offset", "quantity", "times", "three_digits", "seconds_of"),
)


def render_html(document: dict[str, Any], *, live: bool = False) -> str:
    """Render the page of a run's, a comparison's or a trend's document.

    A `live` page fetches its own address every second and applies what changed.
    """
    of_kind = document["kind"]
    style = _assets("uPlot.min.css", "report.css", f"{of_kind}.css")
    scripts = ["tables.js", "charts.js", f"{of_kind}.js", *(["live.js"] if live else [])]
    script = page_script(_assets(*scripts))
    operations: list[str] = document["operations"]
    stages: list[dict[str, Any]] = document.get("stages", [])
    sizes = [stage["size"] for stage in stages]

    def op_class(name: str) -> str:
        return _operation_class(name, operations)

    return (
        _environment()
        .get_template(f"{of_kind}.html.j2")
        .render(
            doc=document,
            live=live,
            data=embedded(document),
            style=Markup(style),
            script=Markup(script),
            # Only these exact texts may run as script or style, so injected markup can do nothing.
            style_hash=_hash(style),
            script_hash=_hash(script),
            op_class=op_class,
            outcomes=_occurred(document),
            facts_of=facts_of,
            target_name=target_name,
            sizes_text=_sizes(stages, document["run"]["load_unit"]) if stages else "",
            log_load=bool(sizes) and max(sizes) > 10 * min(sizes) > 0,
        )
    )


@cache
def _environment() -> Environment:
    environment = template_environment("tippingpoint.report")
    environment.filters["host_name"] = host_name
    environment.filters["without_outcome"] = _without_outcome
    for name in _FILTERS:
        environment.filters[name] = _unbroken(getattr(figures, name))
    return environment


def _occurred(document: dict[str, Any]) -> list[str]:
    """Return the outcomes that occurred in any operation of a run, and `ok`."""
    counted = [figures for stage in document.get("stages", []) for figures in stage["operations"].values()]
    return [
        outcome
        for outcome in document.get("outcomes", [])
        if outcome == "ok" or any(figures[outcome] for figures in counted)
    ]


def _without_outcome(sentence: str) -> str:
    """Drop the outcome at the start of a verdict's sentence if a badge next to it shows it."""
    return _OUTCOME.sub("", sentence)


def _unbroken(shown: Callable[..., str]) -> Callable[..., str]:
    """Keep a figure and its unit on one line."""

    def filtered(*values: Any) -> str:
        return shown(*values).replace(" ", "\u00a0")

    return filtered


@cache
def _assets(*names: str) -> str:
    """Read these asset files and join them."""
    directory = resources.files("tippingpoint.report") / "assets"
    return "\n".join((directory / name).read_text(encoding="utf-8") for name in names)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def page_script(*ours: str) -> str:
    """Build the script of a page with charts: the chart library, and the page's own scripts in a strict-mode function.

    Inside the function, their names cannot clash with other names.
    """
    joined = "\n".join(ours)
    return f'{_assets("uPlot.iife.min.js")}\n(function () {{\n"use strict";\n{joined}}})();\n'


def embedded(document: dict[str, Any]) -> Markup:
    """Return a document as JSON that cannot end its script element, with any strings in it."""
    text = orjson.dumps(document).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _operation_class(name: str, operations: list[str]) -> str:
    """Return the colour of an operation, which is the same in every report and in charts.js."""
    others = [operation for operation in operations if operation not in _KNOWN_OPERATIONS]
    return f"op-{_KNOWN_OPERATIONS.get(name) or 3 + (others.index(name) if name in others else 0) % 4}"


def _sizes(stages: list[dict[str, Any]], unit: str) -> str:
    """List the stages' sizes in order, without the middle of a long list: 1 lease; 100, 200 leases."""
    if len(stages) == 1:
        unit = singular(unit) if stages[0]["size"] == 1 else unit
    words = [
        figures.number(stage["size"]) + (" (removed)" if stage["kind"] == "destroy" else "")
        for stage in stages
    ]
    if len(words) > _MOST_SIZES:
        words = [*words[: _MOST_SIZES - 3], "…", *words[-2:]]
    return f"{', '.join(words)} {unit}"
