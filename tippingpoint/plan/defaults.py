"""The target and the Prometheus that commands use if none is named: from the environment, or from a lab's file.

A lab writes `.tippingpoint` into the directory in which it is started, and removes it when it stops. Each line is one
`key=value`, as `--set` takes them, with the target's kind as `target.kind` and a Prometheus as `prometheus`.
TIPPINGPOINT_TARGET names another such file, and TIPPINGPOINT_PROMETHEUS another Prometheus. If empty, they disable the
default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from tippingpoint.errors import UserError

FILE = ".tippingpoint"
TARGET, PROMETHEUS = "TIPPINGPOINT_TARGET", "TIPPINGPOINT_PROMETHEUS"
_MOST = 1 << 16


class Defaults(NamedTuple):
    """The target that a file describes."""

    kind: str
    settings: Mapping[str, str]
    """The fields of a plan that lead to it."""
    prometheus: str
    """The URL of a Prometheus that scrapes it; empty for none."""
    file: Path


def prometheus_url() -> str:
    """Return the URL of the Prometheus that is used if no option names one; empty for none."""
    found = os.environ.get(PROMETHEUS)
    if found is not None:
        return found
    defaults = read_defaults()
    return "" if defaults is None else defaults.prometheus


def read_defaults() -> Defaults | None:
    """Return the defaults in the file; None without a file, or if its lab is gone. UserError for an invalid file."""
    named = os.environ.get(TARGET)
    if named == "":
        return None
    file = Path(named or FILE)
    try:
        if named is None and file.stat().st_uid != os.geteuid():  # somebody else would choose the target
            return None
        with file.open(encoding="utf-8") as opened:
            text = opened.read(_MOST)
    except OSError as problem:
        if named is None:
            return None
        raise UserError(TARGET, named, f"a readable file ({problem.strerror})") from None
    except UnicodeDecodeError:
        raise UserError(TARGET if named else FILE, str(file), "a text") from None
    settings: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if not line.strip() or line.startswith("#"):
            continue
        if not equals:
            raise UserError(
                str(file), line, "key=value in each line, such as target.endpoints=[http://HOST:2379]"
            )
        settings[key.strip()] = value.strip()
    kind, url = settings.pop("target.kind", ""), settings.pop("prometheus", "")
    lab = settings.get("lab")
    if lab is not None and not Path(lab).exists():
        return None  # the lab was killed, and could not remove the file
    return Defaults(kind, settings, url, file)


def defaults_of(defaults: Defaults, fields: object, *, shipped: bool) -> Sequence[str]:
    """Return the settings for a plan with these fields: all for a shipped plan, otherwise those that it leaves out."""
    plan = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}
    target: object = plan.get("target")
    section = cast("dict[str, Any]", target) if isinstance(target, dict) else {}
    if section.get("kind", "etcd") != defaults.kind:
        return []
    return [
        f"{key}={value}"
        for key, value in defaults.settings.items()
        if shipped or (key.removeprefix("target.") not in (section if key.startswith("target.") else plan))
    ]
