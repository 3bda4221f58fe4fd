"""The tables of docs/reference/actions.md and docs/reference/configuration.md."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from scripts._reference.markdown import code, one_line, table
from tippingpoint.plan.packages import BUILT_IN, module_of

ROOT = Path(__file__).resolve().parents[2]
CHARMS = ("load-claimer", "container-spawner", "metrics-collector")
ROLES = ("requires", "provides", "peers")


@functools.cache
def charmcraft(name: str) -> Mapping[str, Any]:
    """The charmcraft.yaml of a charm."""
    return yaml.safe_load((ROOT / "charms" / name / "charmcraft.yaml").read_text(encoding="utf-8"))


@functools.cache
def results() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """The keys of the results of each charm's actions, with their meanings, as charms/results.yaml has them."""
    read = yaml.safe_load((ROOT / "charms" / "results.yaml").read_text(encoding="utf-8"))
    return {
        charm: {
            action: {key: meaning for key, meaning in keys.items() if meaning}
            for action, keys in read[charm].items()
            if keys
        }
        for charm in CHARMS
    }


def endpoints(name: str) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """The endpoints of a charm: the role of each, and what charmcraft.yaml says of it."""
    charm = charmcraft(name)
    return {end: (role, about) for role in ROLES for end, about in charm.get(role, {}).items()}


def actions() -> str:
    """A section for each charm, with its actions, their parameters and the keys of their results."""
    parts: list[str] = []
    for charm in CHARMS:
        parts += [f"## {charm}", ""]
        for name, action in charmcraft(charm).get("actions", {}).items():
            parts += [f"### {name}", "", one_line(action["description"]), ""]
            needed = action.get("required", [])
            rows = [
                [code(key), _type(about), _default(about, key in needed), about["description"]]
                for key, about in action.get("params", {}).items()
            ]
            if rows:
                parts += [table(["parameter", "type", "default", "meaning"], rows), ""]
            told = [[code(key), meaning] for key, meaning in results()[charm][name].items()]
            parts += [table(["result", "meaning"], told), ""]
    return "\n".join(parts)


def options() -> str:
    """A section for each charm, with its options and endpoints."""
    parts: list[str] = []
    for charm in CHARMS:
        parts += [f"## {charm}", "", "Options:", ""]
        rows = [
            [code(key), about["type"], _default(about, False), about["description"]]
            for key, about in charmcraft(charm)["config"]["options"].items()
        ]
        parts += [table(["option", "type", "default", "meaning"], rows), "", "Endpoints:", ""]
        rows = [
            [code(name), role, code(about["interface"]), about["description"]]
            for name, (role, about) in endpoints(charm).items()
        ]
        parts += [table(["endpoint", "role", "interface", "meaning"], rows), ""]
    return "\n".join(parts)


def logins() -> str:
    """The keys of the secret that the option `credentials` names, by target."""
    rows = [
        [code(kind), _keys(way.required), _keys(way.optional)]
        for kind in BUILT_IN
        for way in module_of(kind, "secret").SECRET.ways
    ]
    return table(["target", "required keys", "optional keys"], rows)


def _keys(keys: tuple[str, ...]) -> str:
    return ", ".join(map(code, keys))


def _type(about: Mapping[str, Any]) -> str:
    if "enum" in about:
        return ", ".join(map(code, about["enum"]))
    least, most = about.get("minimum"), about.get("maximum")
    return about["type"] + (f", {least:,} to {most:,}" if least is not None and most is not None else "")


def _default(about: Mapping[str, Any], needed: bool) -> str:
    value = about.get("default", "")
    if needed:
        return "required"
    return code(str(value).lower() if isinstance(value, bool) else value)


PARTS: dict[str, Callable[[], str]] = {"actions": actions, "options": options, "logins": logins}
