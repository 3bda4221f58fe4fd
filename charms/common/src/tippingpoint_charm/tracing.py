"""Traces of the charm's hooks, sent to the Tempo that `charm-tracing` relates, by ops' own tracing.

Wherever ops finds `ops_tracing` it imports it, and OpenTelemetry with it, which takes almost as much CPU time as all of
ops. So a charm imports this module before ops, and it hides `ops_tracing` from a hook of a unit without that relation.
A file in the charm's directory says whether there is one. The hooks of the relation itself, and those after which the
file may be missing, look for themselves.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ops

NAME = "charm-tracing"
AUTHORITIES = "receive-ca-cert"
_MARK = ".charm-tracing"
_LOOKS = ("install", "start", "upgrade-charm")


def _may_trace() -> bool:
    hook = os.environ.get("JUJU_DISPATCH_PATH", "").rpartition("/")[2]
    if hook in _LOOKS or hook.startswith((f"{NAME}-", f"{AUTHORITIES}-")):
        return True
    return Path(os.environ.get("JUJU_CHARM_DIR", ""), _MARK).exists()


if "ops" not in sys.modules and not _may_trace():
    sys.modules["ops_tracing"] = None  # pyright: ignore[reportArgumentType]  (so an import of it fails)


def follow(charm: ops.CharmBase) -> ops.Object | None:
    """Trace this hook if the unit has the relation, and note for the next hooks whether it has.

    Returns what observes the relation, which the charm has to keep.
    """
    import ops

    if ops.tracing is None:
        return None
    follows = ops.tracing.Tracing(charm, NAME, ca_relation_name=AUTHORITIES)
    mark = Path(charm.charm_dir, _MARK)
    if any(relation.active for relation in charm.model.relations[NAME]):
        mark.touch()
    else:
        mark.unlink(missing_ok=True)
    return follows
