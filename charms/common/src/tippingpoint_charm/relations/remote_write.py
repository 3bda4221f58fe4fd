"""The relation `receive-remote-write` (prometheus_remote_write): receives samples, for example from COS agents.

Each of our units writes its URL into its own bag, as JSON: {"url": ...}. The interface has no login.
"""

from __future__ import annotations

import json

import ops

from tippingpoint_charm.relations.databag import own_address, send, spoken

NAME = "receive-remote-write"


def is_related(charm: ops.CharmBase) -> bool:
    """Tell whether any application is related that sends samples."""
    return any(relation.active for relation in spoken(charm, NAME))


def publish(charm: ops.CharmBase, port: int | None) -> None:
    """Publish the URL for samples, or with None withdraw it."""
    for relation in spoken(charm, NAME):
        if not relation.active:
            continue
        address = own_address(charm, relation)
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{port}/api/v1/write" if port is not None and address else ""
        send(relation, charm.unit, {"remote_write": json.dumps({"url": url}) if url else ""})
