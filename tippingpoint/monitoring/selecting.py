"""Builds label matchers that select the target's series in a Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tippingpoint.errors import UserError
from tippingpoint.monitoring.scrape.jobs import GENERATORS_JOB, is_label

MOST_TEXT = 4000
"""The most characters of a list of matchers."""
_ACCEPTED = "LABEL=VALUE, or with != =~ !~, separated by commas; a VALUE with a comma in double quotes"
_MATCHER = re.compile(r'\s*+([^\s=!~,"]++)\s*+(=~|!~|!=|=)\s*+(?:"((?:[^"\\]|\\.)*+)"|([^,"\n]*+))\s*+(,|\Z)')
_CHARMS = "load-claimer|container-spawner|metrics-collector"


def read_matchers(field: str, text: str) -> str:
    r"""Return the PromQL for a list of matchers as people write it: `juju_model=lxd, instance=~10\.0\..*`; empty for
    an empty list.

    Raises UserError, which names `field`, for anything else.
    """
    if not text.strip():
        return ""
    if len(text) > MOST_TEXT:
        raise UserError(field, f"{len(text)} characters", f"at most {MOST_TEXT}")
    found: list[str] = []
    at = 0
    while at < len(text):
        read = _MATCHER.match(text, at)
        if read is None:
            raise UserError(field, text, _ACCEPTED)
        label, operator, quoted, plain = read.group(1, 2, 3, 4)
        value = plain.rstrip() if quoted is None else re.sub(r'\\(["\\])', r"\1", quoted)
        if not is_label(label):
            raise UserError(field, label, f"the name of a label; {_ACCEPTED}")
        if operator.endswith("~"):
            _check_expression(field, value)
        found.append(f'{label}{operator}"{_escaped(value)}"')
        at = read.end()
    return ",".join(found)


def applications(known: Iterable[tuple[str, str]]) -> str:
    """Return matchers for these Juju applications, given by model uuid and name; empty for none."""
    known = list(known)
    models, names = (sorted({pair[place] for pair in known} - {""}) for place in (0, 1))
    matchers = (("juju_model_uuid", models), ("juju_application", names))
    return ",".join(f'{label}=~"{_any_of(values)}"' for label, values in matchers if values)


def all_but_generators(units: Iterable[str]) -> str:
    """Return matchers without generators' charms and a run's units, whose machines are not the target's."""
    own = [f'job!="{GENERATORS_JOB}"', f'juju_charm!~"{_CHARMS}"']
    named = sorted(set(units))
    return ",".join([*own, f'juju_unit!~"{_any_of(named)}"'] if named else own)


def both(*matchers: str) -> str:
    """Join these matchers."""
    return ",".join(each for each in matchers if each)


def _check_expression(field: str, value: str) -> None:
    """Check a regular expression by Python's syntax; Prometheus' syntax (RE2) is nearly a subset of it."""
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as problem:
        raise UserError(field, value, f"a regular expression ({problem})") from None


def _any_of(values: Iterable[str]) -> str:
    return _escaped("|".join(map(re.escape, values)))


def _escaped(value: str) -> str:
    """Escape a text for the double quotes of PromQL."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
