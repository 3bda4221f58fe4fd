"""All things of a region that only lie there: zones, pools, tags, fabrics, domains, and whatever else it describes.

A collection is a path whose description has `create`; its things are at the path with one more placeholder. They are
created with the parameters that the description has, read, changed and deleted, and nothing else happens to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lab.maas.description import Description, Resource
from lab.maas.refusal import Refused, invalid, missing, not_found

_LABELS = {"zones": "Physical zone", "resourcepools": "Resource pool"}
_SECRET = {"password"}
_NUMBERS = {"vid", "mtu", "ttl", "priority"}
_TRUE_OR_FALSE = {"is_superuser", "authoritative", "managed", "dhcp_on", "enabled", "is_default"}
_MORE: dict[str, dict[str, Any]] = {
    "Tags": {"definition": "", "comment": "", "kernel_opts": ""},
    "Zones": {"description": ""},
    "ResourcePools": {"description": ""},
    "Fabrics": {"class_type": None, "vlans": []},
    "Spaces": {"vlans": [], "subnets": []},
    "Domains": {"authoritative": True, "ttl": None, "is_default": False, "resource_record_count": 0},
    "Users": {"is_local": True},
}
_SEEDS: tuple[tuple[str, dict[str, str]], ...] = (
    ("zones", {"name": "default"}),
    ("resourcepools", {"name": "default", "description": "Default pool"}),
    ("domains", {"name": "maas", "is_default": "1"}),
    ("fabrics", {"name": "fabric-0"}),
    ("fabrics/0/vlans", {"vid": "0", "name": "untagged"}),
    ("subnets", {"cidr": "10.0.0.0/16", "name": "10.0.0.0/16"}),
    ("users", {"username": "admin", "email": "admin@localhost", "is_superuser": "1", "password": "-"}),
)
_FROM_0 = {"ResourcePools", "Domains", "Fabrics"}
_WITHOUT_ID = {"Tags", "Users"}
_NEVER_DELETED = {
    "zones/default/": "This zone is the default zone, it cannot be deleted.",
    "resourcepool/0/": "This is the default pool, it cannot be deleted.",
    "domains/0/": "This domain is the default domain, it cannot be deleted.",
    "fabrics/0/": "This fabric is the default fabric, it cannot be deleted.",
}
"""What a region says of things that it cannot be without (zone.py, resourcepool.py, ... in src/maasserver/models)."""


class Shelves:
    """The things by the path of their collection, and then by key."""

    def __init__(self, description: Description, root: str) -> None:
        self._root = root
        self._things: dict[str, dict[str, dict[str, Any]]] = {}
        self._numbers: dict[str, int] = {}
        items: dict[str, str] = {}
        for resource in description.resources:
            head, mark, tail = resource.path.rstrip("/").rpartition("/{")
            if mark and "/" not in tail:
                items[head] = tail.rstrip("}")
        singular = {"resourcepools": "resourcepool", "license-keys": "license-key"}
        self._items: dict[str, tuple[str, str]] = {}
        for resource in description.resources:
            if ("POST", None) in resource.calls:
                path = resource.path.rstrip("/")
                head, _, last = path.rpartition("/")
                item = f"{head}/{singular.get(last, last)}"
                if item in items:
                    self._items[resource.name] = (singular.get(last, last), items[item])
        for path, fields in _SEEDS:
            found = description.find(f"{root}/{path}/")
            assert found is not None
            self.create(found[0], f"{root}/{path}/", fields)

    def holds(self, resource: Resource) -> bool:
        """Tell whether a collection is one of these."""
        return resource.name in self._items

    def collection(self, description: Description, path: str) -> tuple[str, str] | None:
        """Return the path of the collection that has the thing of a path, and the thing's key."""
        head, _, key = path.rstrip("/").rpartition("/")
        for single, several in (("/resourcepool", "/resourcepools"), ("", "")):
            if single and not head.endswith(single):
                continue
            whole = f"{head.removesuffix(single)}{several}/"
            found = description.find(whole)
            if found and self.holds(found[0]):
                return whole, key
        return None

    def all(self, path: str) -> list[dict[str, Any]]:
        """Return the things of a collection."""
        return list(self._things.get(path, {}).values())

    def names(self, path: str) -> list[str]:
        """Return the names of a collection's things, by the path below the API's."""
        return [str(thing.get("name", "")) for thing in self.all(f"{self._root}/{path}/")]

    def count(self, path: str) -> int:
        """Return the number of a collection's things, by the path below the API's."""
        return len(self._things.get(f"{self._root}/{path}/", {}))

    def get(self, path: str, key: str) -> dict[str, Any]:
        """Return one thing."""
        things = self._things.get(path, {})
        if key not in things:
            raise not_found(_word(path))
        return things[key]

    def create(self, resource: Resource, path: str, fields: Mapping[str, str]) -> dict[str, Any]:
        """Add a thing with the parameters of a form."""
        call = resource.calls["POST", None]
        if lacking := [name for name in sorted(call.required) if not fields.get(name)]:
            raise missing(lacking)
        item, place = self._items[resource.name]
        unique = "username" if place == "username" else "name"
        self._check_double(path, unique, fields.get(unique, ""))
        number = self._numbers.get(path, 0 if resource.name in _FROM_0 else 1)
        self._numbers[path] = number + 1
        key = fields[place] if place in fields else str(number)
        if key in self._things.get(path, {}):
            raise invalid(place, f"{_word(path)} with this {place.capitalize()} already exists.")
        identity = {} if resource.name in _WITHOUT_ID else {"id": number}
        thing = identity | _MORE.get(resource.name, {}) | _kept(fields)
        if resource.name in ("Fabrics", "Spaces") and "name" not in thing:
            thing["name"] = f"{_word(path).lower()}-{number}"
        head = path.rstrip("/").rpartition("/")[0]
        thing["resource_uri"] = f"{head}/{item}/{key}/"
        self._things.setdefault(path, {})[key] = thing
        return thing

    def update(self, path: str, key: str, fields: Mapping[str, str]) -> dict[str, Any]:
        """Change a thing."""
        thing, things = self.get(path, key), self._things[path]
        old, new = str(thing.get("name", "")), fields.get("name", "")
        if new and new != old:
            self._check_double(path, "name", new)
        thing |= _kept(fields)
        if new and key == old:  # its path has its name
            things[new] = things.pop(key)
            head = str(thing["resource_uri"]).removesuffix(f"{key}/")
            thing["resource_uri"] = f"{head}{new}/"
        return thing

    def delete(self, path: str, key: str) -> None:
        """Delete a thing, with what lies below it. The defaults of a region cannot be deleted."""
        thing = self.get(path, key)
        if said := _NEVER_DELETED.get(thing["resource_uri"].removeprefix(f"{self._root}/")):
            raise Refused(400, said)
        del self._things[path][key]
        for below in [other for other in self._things if other.startswith(f"{path}{key}/")]:
            del self._things[below]

    def _check_double(self, path: str, unique: str, value: str) -> None:
        if value and any(thing.get(unique) == value for thing in self.all(path)):
            raise invalid(unique, f"{_label(path)} with this {unique.capitalize()} already exists.")


def _kept(fields: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: _typed(name, value) for name, value in fields.items() if name not in _SECRET and name != "op"
    }


def _typed(name: str, value: str) -> Any:
    """Return a field's value as a region answers it: forms have only texts."""
    if name in _NUMBERS and value.isdigit():
        return int(value)
    return value.lower() in ("1", "true", "on") if name in _TRUE_OR_FALSE else value


def _word(path: str) -> str:
    """Return the word for one thing of a collection, such as Tag."""
    last = path.rstrip("/").rpartition("/")[2]
    words = {"resourcepools": "ResourcePool", "ipaddresses": "IPAddress", "vlans": "VLAN"}
    return words.get(last) or re.sub(r"s$", "", last).capitalize()


def _label(path: str) -> str:
    """Return what a form calls one thing of a collection, such as Physical zone."""
    return _LABELS.get(path.rstrip("/").rpartition("/")[2]) or _word(path)
