"""Query packs: named figures of a target's hosts, each with a unit, PromQL and a meaning.

A pack is a YAML file in the folder `query_packs` of its target, or in `packs` here if several targets use it. A
figure's expression is written for a single host. Figure.query turns it into one series for each host (and process,
vhost ...), with any scraper. `host` is the label `host` of a series, else `juju_unit`, else `instance` without its
port. A loopback address keeps its port, because the hosts of a lab share it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.packages import shipped_files
from tippingpoint.rundir.resources import Limit
from tippingpoint.util.strict_yaml import StrictLoader
from tippingpoint.util.text import nearest

Unit = Literal["bytes", "bytes/s", "bits/s", "cores", "seconds", "count", "count/s", "ratio"]
Over = Literal["sum", "max", "min"]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,60}$")]
Line = Annotated[str, Field(pattern=r"^\S(?:[^\n]{0,400}\S)?\n?$")]
Expression = Annotated[str, Field(min_length=1, max_length=4000)]
Label = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")]

MAX_TEXT = 1 << 18
"""The most characters of a pack."""
_LOOPBACK = r"(?:127\\.|localhost:|\\[::1\\]:)"
_HOST = rf"([^|]+)\\|.*|\\|([^|]+)\\|.*|\\|\\|({_LOOPBACK}.*)|\\|\\|(.*?)(?::[0-9]+)?"
"""Matches the host in `host|juju_unit|instance` of a series by one of four groups; the others are empty."""
_HOST_READ = re.compile(_HOST.replace("\\\\", "\\"))
_NAMING = ("host", "juju_unit", "instance")
_SCRAPE = ("job", "metrics_path", "prometheus", "prometheus_replica", "replica")
"""The labels that distinguish scrapes of the same thing: by two jobs, at two paths, by each Prometheus of a pair. Pairs
may use labels of any name; these are the labels of Prometheus' operator and of Thanos. No metric of a pack has such a
label of its own."""
_VARIABLE = re.compile(r"\$([a-z_]+)")
_NO_YAML = (
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
)
"""The errors of YAML's constructors for malformed values, such as the date 2001-99-99."""


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Alert(_Fields):
    """An alert on a figure that is beyond a threshold for some time."""

    above: float | None = None
    below: float | None = None
    """The threshold, in the figure's unit: exactly one of `above` and `below`."""
    for_: Annotated[str, Field(alias="for", pattern=r"^[1-9][0-9]*[smh]$")]
    severity: Literal["warning", "critical"] = "warning"
    summary: Line
    """One line for people, which begins with the problem; the host is added."""

    @model_validator(mode="after")
    def _one_threshold(self) -> Alert:
        if (self.above is None) == (self.below is None):
            raise ValueError("one of above and below")
        return self

    @property
    def condition(self) -> str:
        """The threshold as PromQL: `> 0.9`."""
        return f"> {self.above:g}" if self.above is not None else f"< {self.below:g}"


class Bound(Limit):
    """The limit of a figure, as in a pack."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    because: Line


class Figure(_Fields):
    """One resource measure. It has one series for each combination of the labels `by`."""

    name: Name
    title: Line
    unit: Unit
    meaning: Line
    source: Line
    """The exporter of its metrics."""
    expr: Expression
    """PromQL, with $window for the window of a rate and $selector as the last matcher of every selector. Its series
    must keep the labels host, juju_unit and instance from their scrape."""
    over: Over = "sum"
    """The aggregation of a host's series into one."""
    by: Annotated[tuple[Label, ...], Field(min_length=1, max_length=2)] = ("host",)
    chart: bool = True
    """Whether a report draws it."""
    cost: Literal["", "load", "operations"] = ""
    """Whether a cost is computed per unit of load (a lease, a container) or per operation."""
    optional: bool = False
    """Whether only some versions of a target or rare exporters provide it: then its absence is not reported."""
    limit: Bound | None = None
    """The value from which on its host is exhausted. A report uses it to name what saturated."""
    alert: Alert | None = None

    @field_validator("by")
    @classmethod
    def _host_first(cls, by: tuple[str, ...]) -> tuple[str, ...]:
        if by[0] != "host" or len(set(by)) != len(by):
            raise ValueError("host, then at most one other label")
        return by

    @field_validator("expr")
    @classmethod
    def _selects(cls, expr: str) -> str:
        if "$selector}" not in expr:
            raise ValueError("PromQL whose selectors end with $selector, such as up{$selector}")
        unknown = set(_VARIABLE.findall(expr)) - {"window", "selector"}
        if unknown:
            raise ValueError(f"${', $'.join(sorted(unknown))} among the words of the pack")
        return expr.strip()

    @property
    def part(self) -> str:
        """The label that distinguishes a host's series, such as `vhost`; empty if a host has one series."""
        return self.by[1] if len(self.by) > 1 else ""

    def query(self, window: float | str, selector: str = "") -> str:
        """Return the complete PromQL. Its series have exactly the labels `by`, unless these are empty.

        `window` is the window of rates: seconds, or a Grafana variable. `selector` are label matchers for every
        selector, without braces: `juju_model="lxd",juju_charm!="load-claimer"`.
        """
        span = window if isinstance(window, str) else f"{max(1, round(window))}s"
        return by_host(self.expr.replace("$window", span), self.over, self.by, selector)


class Pack(_Fields):
    """The figures of one target, or of a part of any target, such as hosts."""

    name: Name
    title: Line
    meaning: Line
    targets: tuple[Name, ...]
    """The kinds of target that the pack is for, as in plans; empty for every target."""
    leader: Expression | None = None
    """PromQL that is 1 for the leading host and 0 for others; None if metrics do not show it."""
    figures: Annotated[tuple[Figure, ...], Field(min_length=1)]

    @field_validator("figures")
    @classmethod
    def _named_once(cls, figures: tuple[Figure, ...]) -> tuple[Figure, ...]:
        names = [figure.name for figure in figures]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"each name once ({', '.join(twice)} is there again)")
        return figures

    def leader_query(self, selector: str = "") -> str:
        """Return PromQL with one series per host: 1 for the leader, otherwise 0. Empty if metrics do not show it."""
        return by_host(self.leader.strip(), "max", ("host",), selector) if self.leader else ""


def by_host(expr: str, over: Over, by: Sequence[str] = ("host",), selector: str = "") -> str:
    """Return PromQL that aggregates, with `over`, the series of an expression that share the labels `by`.

    The label `host` is defined at the top of this module. Sums are made within a job: two jobs of one host count as two
    views of the same thing, and the larger value counts.
    """
    within = tuple(label for label in _SCRAPE if label not in by) if over == "sum" else ()
    # Aggregate within each scrape first: naming the host of every series, such as every core, takes ten times as long.
    of_scrape = ", ".join((*_NAMING, *by[1:], *within))
    scraped = f"{over} by ({of_scrape}) ({expr.replace('$selector', selector)})"
    labels = ", ".join(f'"{label}"' for label in _NAMING)
    joined = f'label_join({scraped}, "host", "|", {labels})'
    named = f'label_replace({joined}, "host", "$1$2$3$4", "host", "{_HOST}")'
    of_host = f"{over} by ({', '.join((*by, *within))}) ({named})"
    return f"max by ({', '.join(by)}) ({of_host})" if within else of_host


def host_of(labels: Mapping[str, str]) -> str:
    """Return the host of a series, or of a scraped target, with these labels, named as in by_host."""
    named = _HOST_READ.fullmatch("|".join(labels.get(label, "") for label in _NAMING))
    return next((group for group in named.groups() if group), "") if named else ""


def load_pack(text: str, source: str) -> Pack:
    """Read a pack from a text. Raises UserError, which names `source` and the field, if it is wrong."""
    if len(text) > MAX_TEXT:
        raise UserError(source, f"{len(text)} characters", f"at most {MAX_TEXT}")
    try:
        fields: Any = yaml.load(text, StrictLoader)
    except _NO_YAML as problem:
        raise UserError(source, " ".join(str(problem).split())[:200], "YAML") from None
    if not isinstance(fields, dict):
        raise UserError(
            source, type(fields).__name__, "a mapping with name, title, meaning, targets and figures"
        )
    try:
        return Pack.model_validate(_written_out(cast(dict[str, Any], fields)))
    except ValidationError as problem:
        raise _explained(problem, source) from None


def _written_out(fields: dict[str, Any]) -> dict[str, Any]:
    """Replace a pack's `words`, the common parts of expressions, such as `cards: device!="lo"` for $cards."""
    words: Any = fields.get("words", {})
    if not isinstance(words, dict):
        return fields

    texts = {f"${name}": str(text) for name, text in cast(dict[Any, Any], words).items()}

    def expand(expression: Any) -> str:
        return _VARIABLE.sub(lambda found: texts.get(found[0], found[0]), str(expression))

    plain = {name: value for name, value in fields.items() if name != "words"}
    if "leader" in plain:
        plain["leader"] = expand(plain["leader"])
    if isinstance(plain.get("figures"), list):
        plain["figures"] = [
            {**cast(dict[str, Any], figure), "expr": expand(cast(dict[str, Any], figure)["expr"])}
            if isinstance(figure, dict) and "expr" in figure
            else figure
            for figure in cast(list[Any], plain["figures"])
        ]
    return plain


def _explained(problem: ValidationError, source: str) -> UserError:
    error = problem.errors(include_url=False)[0]
    field = ".".join([source, *map(str, error["loc"])])
    if error["type"] == "missing":
        return UserError(field, "missing", "a value")
    if error["type"] == "extra_forbidden":
        model = Bound if "limit" in error["loc"] else {1: Pack, 3: Figure}.get(len(error["loc"]), Alert)
        known = [known.alias or name for name, known in model.model_fields.items()]
        last = str(error["loc"][-1])
        return UserError(field, "given", f"one of {', '.join(known)}{nearest(last, known)}")
    accepted = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return UserError(field, error["input"], accepted)


def shipped_packs() -> dict[str, Pack]:
    """Return the packs that come with the suite, by name."""
    of_all = (resources.files("tippingpoint.monitoring") / "packs").iterdir()
    files = (file for file in [*of_all, *shipped_files("query_packs")] if file.name.endswith(".yaml"))
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    packs = [load_pack(text, name) for name, text in sorted(texts.items())]
    return {pack.name: pack for pack in packs}


def packs_for(target_kind: str) -> list[Pack]:
    """Return the shipped packs for a kind of target; its own come before those for every target."""
    packs = [pack for pack in shipped_packs().values() if not pack.targets or target_kind in pack.targets]
    return sorted(packs, key=lambda pack: (not pack.targets, pack.name))
