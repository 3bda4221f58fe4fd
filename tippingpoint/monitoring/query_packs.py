"""Query packs: named figures of a target's hosts, each with a unit, PromQL and a meaning.

A pack is a YAML file in the folder `query_packs` of its target, or in `packs` here where it is of several. A figure's
expression is written as if there were one host; Figure.query makes it one series for each host (and process,
vhost ...), whoever scraped them: `host` is the label `host` where a series has it,
else `juju_unit`, else `instance` without its port. A loopback address keeps its port: many hosts of a lab share it.
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
from tippingpoint.util.text import nearest

Unit = Literal["bytes", "bytes/s", "bits/s", "cores", "seconds", "count", "count/s", "ratio"]
Over = Literal["sum", "max", "min"]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,60}$")]
Line = Annotated[str, Field(pattern=r"^\S(?:[^\n]{0,400}\S)?\n?$")]
Expression = Annotated[str, Field(min_length=1, max_length=4000)]
Label = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")]

MAX_TEXT = 1 << 18
"""Characters of a pack."""
_LOOPBACK = r"(?:127\\.|localhost:|\\[::1\\]:)"
_HOST = rf"([^|]+)\\|.*|\\|([^|]+)\\|.*|\\|\\|({_LOOPBACK}.*)|\\|\\|(.*?)(?::[0-9]+)?"
"""What `host|juju_unit|instance` of a series names as its host; of the four groups the others are empty."""
_HOST_READ = re.compile(_HOST.replace("\\\\", "\\"))
_NAMING = ("host", "juju_unit", "instance")
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
"""What YAML's own constructors raise on values that only look like theirs, such as the date 2001-99-99."""


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Alert(_Fields):
    """When a figure is worth waking somebody: it is beyond a threshold for a time."""

    above: float | None = None
    below: float | None = None
    """The threshold, in the figure's unit: exactly one of the two."""
    for_: Annotated[str, Field(alias="for", pattern=r"^[1-9][0-9]*[smh]$")]
    severity: Literal["warning", "critical"] = "warning"
    summary: Line
    """One line for people, beginning with what is wrong; the host is added."""

    @model_validator(mode="after")
    def _one_threshold(self) -> Alert:
        if (self.above is None) == (self.below is None):
            raise ValueError("one of above and below")
        return self

    @property
    def condition(self) -> str:
        """The threshold as PromQL: `> 0.9`."""
        return f"> {self.above:g}" if self.above is not None else f"< {self.below:g}"


class Figure(_Fields):
    """One resource measure. Its series are one for each combination of the labels `by`."""

    name: Name
    title: Line
    unit: Unit
    meaning: Line
    source: Line
    """Which exporter's metrics it is made of."""
    expr: Expression
    """PromQL, with $window in place of the span of a rate and $selector as the last matcher of every selector. Its
    series still have the labels host, juju_unit and instance that their scrape gave them."""
    over: Over = "sum"
    """What makes one series of a host's many."""
    by: Annotated[tuple[Label, ...], Field(min_length=1, max_length=2)] = ("host",)
    chart: bool = True
    """Whether a report draws it."""
    cost: Literal["", "load", "operations"] = ""
    """Whether it is told per unit of load (a lease, a container) or per operation, too."""
    optional: bool = False
    """Whether only some versions of a target, or exporters that few have, give it: then its absence is no news."""
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
        """The label that tells a host's series apart, such as `vhost`; empty where a host has one series."""
        return self.by[1] if len(self.by) > 1 else ""

    def query(self, window: float | str, selector: str = "") -> str:
        """The whole PromQL. Its series have exactly the labels `by`, as far as they are not empty.

        `window` is the span of rates: seconds, or a variable of Grafana's. `selector` are label matchers for every
        selector, without braces: `juju_model="lxd",juju_charm!="load-claimer"`.
        """
        span = window if isinstance(window, str) else f"{max(1, round(window))}s"
        return by_host(self.expr.replace("$window", span), self.over, self.by, selector)


class Pack(_Fields):
    """The figures of one target, or of something that any target has, such as hosts."""

    name: Name
    title: Line
    meaning: Line
    targets: tuple[Name, ...]
    """Kinds of targets whose runs it belongs to, as in plans; empty: every target."""
    leader: Expression | None = None
    """PromQL that is 1 for the host that leads and 0 for others, as far as metrics tell."""
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
        """PromQL with one series for each host: 1 where it leads, 0 where not. Empty where metrics do not tell."""
        return by_host(self.leader.strip(), "max", ("host",), selector) if self.leader else ""


def by_host(expr: str, over: Over, by: Sequence[str] = ("host",), selector: str = "") -> str:
    """PromQL that makes one series, by `over`, of an expression's that agree in their labels `by`.

    What `host` is among them is said at the top of this module.
    """
    of_scrape = ", ".join((*_NAMING, *by[1:]))
    # First within each scrape: naming the host of every series, such as of every core, takes ten times as long.
    scraped = f"{over} by ({of_scrape}) ({expr.replace('$selector', selector)})"
    labels = ", ".join(f'"{label}"' for label in _NAMING)
    joined = f'label_join({scraped}, "host", "|", {labels})'
    named = f'label_replace({joined}, "host", "$1$2$3$4", "host", "{_HOST}")'
    return f"{over} by ({', '.join(by)}) ({named})"


def host_of(labels: Mapping[str, str]) -> str:
    """The host that a series, or a scraped target, with these labels is of: as by_host names it."""
    named = _HOST_READ.fullmatch("|".join(labels.get(label, "") for label in _NAMING))
    return next((group for group in named.groups() if group), "") if named else ""


def load_pack(text: str, source: str) -> Pack:
    """The pack that a text is; UserError, which names `source` and the field, when it is none."""
    if len(text) > MAX_TEXT:
        raise UserError(source, f"{len(text)} characters", f"at most {MAX_TEXT}")
    try:
        fields: Any = yaml.safe_load(text)
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
    """A pack without its `words`: what expressions have in common, `cards: device!="lo"` for $cards in them."""
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
        model = {1: Pack, 3: Figure}.get(len(error["loc"]), Alert)
        known = [known.alias or name for name, known in model.model_fields.items()]
        last = str(error["loc"][-1])
        return UserError(field, "given", f"one of {', '.join(known)}{nearest(last, known)}")
    accepted = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return UserError(field, error["input"], accepted)


def shipped_packs() -> dict[str, Pack]:
    """The packs that come with the suite, by name."""
    of_all = (resources.files("tippingpoint.monitoring") / "packs").iterdir()
    files = (file for file in [*of_all, *shipped_files("query_packs")] if file.name.endswith(".yaml"))
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    packs = [load_pack(text, name) for name, text in sorted(texts.items())]
    return {pack.name: pack for pack in packs}


def packs_for(target_kind: str) -> list[Pack]:
    """The shipped packs of a run of that target, its own before those that every target has."""
    packs = [pack for pack in shipped_packs().values() if not pack.targets or target_kind in pack.targets]
    return sorted(packs, key=lambda pack: (not pack.targets, pack.name))
