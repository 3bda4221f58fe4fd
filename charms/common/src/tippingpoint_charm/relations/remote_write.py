"""The relation `receive-remote-write` (prometheus_remote_write): those that cos-agent feeds send us their samples.

Each unit of ours writes where into its own bag, as JSON: {"url": ...}. The interface has no login.
"""

from __future__ import annotations

import json

import ops

from tippingpoint_charm.relations.databag import own_address, send, spoken

NAME = "receive-remote-write"


def is_related(charm: ops.CharmBase) -> bool:
    """Whether anybody is to send us samples."""
    return any(relation.active for relation in spoken(charm, NAME))


def publish(charm: ops.CharmBase, port: int | None) -> None:
    """Say where samples go, or with None that there is nowhere."""
    for relation in spoken(charm, NAME):
        if not relation.active:
            continue
        address = own_address(charm, relation)
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{port}/api/v1/write" if port is not None and address else ""
        send(relation, charm.unit, {"remote_write": json.dumps({"url": url}) if url else ""})
