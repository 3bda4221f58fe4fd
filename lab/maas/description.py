"""What a region says of its API: which calls there are, and which parameters they need.

api.json has the facts of a real region's `describe/` document, without its prose, because MAAS is under the AGPL:
names, paths, methods, and each parameter with whether it is required. It was made from MAAS 3.3.11 by

    python -m lab.maas.description DESCRIBE.json 3.3.11 > /tmp/api.json
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

_FACTS = Path(__file__).with_name("api.json")
_PARAMETER = re.compile(r"^\s*:param (\w+): (Required|Optional)\.", re.MULTILINE)
_NOT_ALWAYS = {
    ("VmHosts", "create"): {"power_user", "power_pass"},
    ("Pods", "create"): {"power_user", "power_pass"},
}
"""What the description has as required, and a region does not require of hosts that need no password."""


@dataclass(frozen=True)
class Call:
    """One call of a resource. `required` are the parameters without which it is refused."""

    resource: str
    name: str
    method: str
    op: str | None
    required: frozenset[str]


@dataclass
class Resource:
    """One path, such as /MAAS/api/2.0/machines/{system_id}/. `anonymous` are the calls without a key."""

    name: str
    path: str
    calls: dict[tuple[str, str | None], Call] = field(default_factory=dict[tuple[str, str | None], Call])
    anonymous: dict[tuple[str, str | None], Call] = field(default_factory=dict[tuple[str, str | None], Call])

    @property
    def methods(self) -> set[str]:
        """The HTTP methods of all calls."""
        return {method for method, _ in (*self.calls, *self.anonymous)}


class Description:
    """All resources of a region, found by path."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.version = str(facts["version"])
        self.hash = str(facts["hash"])
        self.resources: list[Resource] = []
        self._paths: dict[int, list[tuple[list[str], Resource]]] = {}
        for given in facts["resources"]:
            resource = Resource(given["name"], given["path"])
            for who, calls in (("auth", resource.calls), ("anon", resource.anonymous)):
                for name, method, op, parameters in given[who]:
                    required = {name for name, needed in parameters.items() if needed}
                    required -= _NOT_ALWAYS.get((resource.name, name), set())
                    calls[method, op] = Call(resource.name, name, method, op, frozenset(required))
            self.resources.append(resource)
            parts = resource.path.split("/")
            self._paths.setdefault(len(parts), []).append((parts, resource))

    def find(self, path: str) -> tuple[Resource, dict[str, str]] | None:
        """Return the resource of a path, and what its placeholders stand for; None if there is no such path."""
        parts = path.split("/")
        for wanted, resource in self._paths.get(len(parts), ()):
            if all(
                want == part or (want[:1] == "{" and part) for want, part in zip(wanted, parts, strict=True)
            ):
                places = zip(wanted, parts, strict=True)
                return resource, {want[1:-1]: part for want, part in places if want[:1] == "{"}
        return None

    def document(self, url: str) -> dict[str, Any]:
        """Return the answer to `describe/`, with the region's own URL and without prose."""
        resources: list[dict[str, Any]] = []
        for resource in self.resources:
            described: dict[str, Any] = {"name": f"{resource.name}Handler", "anon": None, "auth": None}
            for who, calls in (("anon", resource.anonymous), ("auth", resource.calls)):
                if calls:
                    described[who] = {
                        "actions": [_action(call) for call in calls.values()],
                        "doc": "Simulated.",
                        "name": f"{'Anon' if who == 'anon' and resource.calls else ''}{resource.name}Handler",
                        "params": re.findall(r"\{(\w+)\}", resource.path),
                        "path": resource.path,
                        "uri": f"{url}{resource.path}",
                    }
            resources.append(described)
        return {"doc": "MAAS API (simulated)", "handlers": [], "hash": self.hash, "resources": resources}


def _action(call: Call) -> dict[str, Any]:
    return {
        "doc": "Simulated.",
        "method": call.method,
        "name": call.name,
        "op": call.op,
        "restful": call.op is None,
    }


def read_description() -> Description:
    """Return the API that the lab simulates."""
    return Description(json.loads(_FACTS.read_bytes()))


def reduced(document: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the facts of a `describe/` document of a region of some version."""
    resources: list[dict[str, Any]] = []
    for given in cast(list[dict[str, Any]], document["resources"]):
        one = given["auth"] or given["anon"]
        found: dict[str, Any] = {"name": one["name"].removesuffix("Handler"), "path": one["path"]}
        for who in ("auth", "anon"):
            actions = cast(list[dict[str, Any]], given[who]["actions"] if given[who] else [])
            found[who] = [_facts(action) for action in actions]
        resources.append(found)
    return {
        "source": f"the describe/ document of MAAS {version}, reduced to its facts by lab/maas/description.py",
        "version": version,
        "hash": document["hash"],
        "resources": sorted(resources, key=lambda resource: str(resource["path"])),
    }


def _facts(action: Mapping[str, Any]) -> list[Any]:
    parameters = {name: need == "Required" for name, need in _PARAMETER.findall(action["doc"])}
    return [action["name"], action["method"], action["op"], parameters]


def _written(facts: Mapping[str, Any]) -> str:
    """Return api.json: one call a line, so that a newer version's difference can be read."""
    text = json.dumps(facts, indent=1)
    return re.sub(
        r"\n {4}\[\n(.*?)\n {4}\]",
        lambda found: "\n    [" + re.sub(r"\s*\n\s*", " ", found[1]).strip() + "]",
        text,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    source = Path(sys.argv[1])
    print(_written(reduced(json.loads(source.read_bytes()), sys.argv[2])))
