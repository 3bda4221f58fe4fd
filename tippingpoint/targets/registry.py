"""The targets there are, by the kind that plans name them by."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from tippingpoint.plan.fields import Section
from tippingpoint.plan.targets import EtcdTarget, JujuTarget, LxdTarget, OpenstackTarget
from tippingpoint.targets.target import Target

SECTIONS: dict[str, type[Section]] = {
    "etcd": EtcdTarget, "juju": JujuTarget, "lxd": LxdTarget, "openstack": OpenstackTarget
}  # fmt: skip


@cache
def target_of(kind: str) -> Target[Any, Any, Any]:
    """The target of this kind."""
    return import_module(f"tippingpoint.targets.{kind}.target").TARGET
