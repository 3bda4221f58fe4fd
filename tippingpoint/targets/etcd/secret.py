"""How to reach an etcd, read from a Juju secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.secret import PLACE, Reached, Secret
from tippingpoint.util.secret_keys import Keys
from tippingpoint.util.text import listed

_FILES = {"ca": "cacert", "cert": "cert", "key": "key"}
"""The target's fields that name a TLS file, and the secret's key that holds its content."""


class EtcdSecret(Secret[EtcdTarget]):
    """Client URLs, TLS files, and a user if the cluster has authentication enabled."""

    ways = (Keys(("endpoints",), ("cacert", "cert", "key", "username", "password")),)
    example = "endpoints=https://HOST:2379 cacert#file=FILE cert#file=FILE key#file=FILE"
    names: ClassVar = {f"etcd-{field}.pem": key for field, key in _FILES.items()}

    def reached(self, content: Mapping[str, str], units: int) -> Reached:
        endpoints = listed(content["endpoints"])
        fields: dict[str, Any] = {"endpoints": endpoints}
        files: dict[str, str] = {}
        for field, key in _FILES.items():
            if content.get(key):
                fields[field] = f"{PLACE}/etcd-{field}.pem"
                files[f"etcd-{field}.pem"] = content[key]
        user = {key: content[key] for key in ("username", "password") if key in content}
        if user:
            fields["credentials"] = f"{PLACE}/etcd.yaml"
            files["etcd.yaml"] = yaml.safe_dump(user)
        return Reached(fields, files, endpoints[0] if endpoints else "")

    def read(self, section: EtcdTarget, files: Mapping[str, Path]) -> None:
        from tippingpoint.targets.etcd.access import access

        access(section)


SECRET = EtcdSecret()
