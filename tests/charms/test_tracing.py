"""Traces of hooks: none, and nothing imported for them, unless a Tempo is related."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ops import testing

from tests.charms.generators import Unit, metadata

ROOT = Path(__file__).resolve().parents[2]
_IMPORTED = """
import sys, charm
print(*[name for name in ("ops_tracing", "opentelemetry.sdk") if sys.modules.get(name)])
"""


def imported(charm: str, hook: str, directory: Path) -> list[str]:
    """What a hook of a charm imports for traces."""
    paths = [ROOT, ROOT / "charms/common/src", ROOT / "charms" / charm / "src"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "JUJU_DISPATCH_PATH": hook,
        "JUJU_CHARM_DIR": str(directory),
    }
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize("charm", ["load-claimer", "container-spawner", "metrics-collector"])
def test_a_hook_imports_tracing_only_once_the_unit_has_the_relation(charm: str, tmp_path: Path) -> None:
    everything = ["ops_tracing", "opentelemetry.sdk"]

    assert imported(charm, "hooks/update-status", tmp_path) == []
    assert imported(charm, "hooks/charm-tracing-relation-created", tmp_path) == everything
    assert imported(charm, "hooks/upgrade-charm", tmp_path) == everything
    (tmp_path / ".charm-tracing").touch()
    assert imported(charm, "hooks/update-status", tmp_path) == everything


def tempo() -> testing.Relation:
    receivers = [{"protocol": {"name": "otlp_http", "type": "http"}, "url": "http://192.0.2.9:4318"}]
    return testing.Relation("charm-tracing", remote_app_data={"receivers": json.dumps(receivers)})


def test_a_related_tempo_is_asked_for_its_address_and_the_next_hooks_know_of_it(
    unit: Unit, tmp_path: Path
) -> None:
    relation = tempo()
    state = testing.State(leader=True, relations=[relation, testing.PeerRelation("units")])
    context = testing.Context(unit.charm, **metadata("load-claimer"), charm_root=tmp_path)

    out = context.run(context.on.relation_changed(relation, remote_unit=0), state)

    assert json.loads(out.get_relation(relation.id).local_app_data["receivers"]) == ["otlp_http"]
    assert (tmp_path / ".charm-tracing").exists()

    context.run(context.on.relation_broken(relation), state)
    assert not (tmp_path / ".charm-tracing").exists()
