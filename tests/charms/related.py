"""A small charm with the generators' endpoints, for tests of relations and access without the rest of a generator."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ops
from ops import testing
from tippingpoint_charm.access import TargetAccess, find_access
from tippingpoint_charm.relations import publish_all

from lab.lxd.access import make_client_certificate
from tippingpoint.targets.openstack.access import CloudAccess, from_clouds
from tippingpoint.targets.openstack.plan import OpenstackTarget

KINDS = ("juju", "lxd", "etcd", "openstack", "pacemaker")
PORT = 9477
SERVER = make_client_certificate()
CLIENT = make_client_certificate()
PASSWORD = "correct horse battery staple"
"""In every secret of these tests: it must show nowhere."""
_KEY = re.compile("[a-z](?:-?[a-z0-9]){2,}")  # core/secrets/createdata.go of Juju

META: dict[str, Any] = {
    "name": "load-claimer",
    "requires": {
        "controller": {"interface": "juju-dashboard"},
        "controller-http": {"interface": "http"},
        "lxd": {"interface": "lxd-https"},
        "identity-credentials": {"interface": "keystone-credentials"},
        "etcd": {"interface": "etcd"},
        "etcd-client": {"interface": "etcd_client"},
        "prometheus-api": {"interface": "prometheus_api"},
    },
    "provides": {
        "metrics-endpoint": {"interface": "prometheus_scrape"},
        "cos-agent": {"interface": "cos_agent", "scope": "container"},
        "grafana-dashboard": {"interface": "grafana_dashboard"},
        "scale-run": {"interface": "scale_run"},
    },
}
CONFIG = {"options": {"credentials": {"type": "secret"}, "lxd-projects": {"type": "string", "default": ""}}}
MODEL = testing.Model(name="scale", uuid="5e3c9a1e-1f0b-4d56-8a52-3a0d5b1c7e11")


class Generator(ops.CharmBase):
    """Sends what there is to send at each event, and finds what access there is."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        self.found: dict[str, TargetAccess] = {}
        for event in ("update_status", "config_changed", "secret_changed", "leader_elected"):
            framework.observe(getattr(self.on, event), self._on_any)
        for name in (*META["requires"], *META["provides"]):
            for event in ("relation_created", "relation_changed", "relation_departed", "relation_broken"):
                framework.observe(getattr(self.on[name], event), self._on_any)

    def _on_any(self, _: ops.EventBase) -> None:
        publish_all(self, port=PORT, projects=str(self.config["lxd-projects"]))
        self.found = {kind: find_access(self, kind) for kind in KINDS}


def context(charm_root: Path | None = None, unit: int = 0) -> testing.Context[Generator]:
    """The charm as a unit of load-claimer; `charm_root` is its directory, beside which the agent's agent.conf is."""
    return testing.Context(Generator, meta=META, config=CONFIG, charm_root=charm_root, unit_id=unit)


def state(*relations: testing.RelationBase, **more: Any) -> testing.State:
    """A leader with these relations."""
    return testing.State(**{"leader": True, "model": MODEL, "relations": relations, **more})


def after(
    ctx: testing.Context[Generator], before: testing.State, event: Any = None
) -> tuple[testing.State, dict[str, TargetAccess]]:
    """The state after an event (update-status), and the access found in it."""
    with ctx(event if event is not None else ctx.on.update_status(), before) as manager:
        out = manager.run()
        return out, manager.charm.found


def found(before: testing.State, kind: str, charm_root: Path | None = None) -> TargetAccess:
    """The access to a target of this kind."""
    return after(context(charm_root), before)[1][kind]


def as_the_engine_reads(access: TargetAccess, directory: Path) -> CloudAccess:
    """What the agent's engine makes of an OpenStack's files, once they are in a directory."""
    for name, text in access.files.items():
        (directory / name).touch(mode=0o600)
        (directory / name).write_text(text)
    fields = {name: value.replace("{credentials}", str(directory)) for name, value in access.target.items()}
    return from_clouds(OpenstackTarget.model_validate(fields))


def credentials(**content: str) -> dict[str, Any]:
    """Configuration and secret with this content, granted to us; `_` in names is `-`. Juju takes no shorter keys."""
    named = {name.replace("_", "-"): text for name, text in content.items()}
    assert all(_KEY.fullmatch(name) for name in named)
    secret = testing.Secret(named, owner=None)
    return {"config": {"credentials": secret.id}, "secrets": [secret]}


def everything_sent(out: testing.State) -> str:
    """All that we wrote into relation data, as one text, and the statuses."""
    bags = [
        bag
        for relation in out.relations
        for bag in (relation.local_unit_data, relation.local_app_data)  # type: ignore[attr-defined]
    ]
    return json.dumps([dict(bag) for bag in bags]) + str(out.unit_status) + str(out.app_status)
