"""The Terraform modules: each says of its charm what charmcraft.yaml does, and the product module deploys the bundle.

This reads the files. tests/terraform runs OpenTofu on them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import hcl2
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
CHARMS = ["container-spawner", "load-claimer", "metrics-collector"]
PRODUCT = ROOT / "terraform"
EVERYWHERE = {
    "model_uuid",
    "app_name",
    "channel",
    "revision",
    "base",
    "units",
    "machines",
    "constraints",
    "config",
}
"""The variables of a charm's module, by Canonical's conventions (CC006) and for placement."""


def module_of(charm: str) -> Path:
    return ROOT / "charms" / charm / "terraform"


def plain(value: Any) -> Any:
    """A value of a file in Terraform's language; expressions stay as they are written."""
    match value:
        case dict():
            return {plain(key): plain(of) for key, of in value.items() if plain(key)[:2] != "__"}
        case list():
            return [plain(each) for each in value]
        case str() if value.startswith('"') and not value.startswith('"<<'):
            return json.loads(value)
        case _:
            return value


def blocks(module: Path, kind: str) -> dict[str, dict[str, Any]]:
    """The blocks of a kind with one label, in all files of a module."""
    return {
        name: block
        for path in sorted(module.glob("*.tf"))
        for labelled in plain(hcl2.loads(path.read_text())).get(kind, [])
        for name, block in labelled.items()
    }


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("charm", CHARMS)
def test_outputs_are_the_endpoints_of_the_charm(charm: str) -> None:
    meta = read(ROOT / "charms" / charm / "charmcraft.yaml")
    outputs = blocks(module_of(charm), "output")

    assert set(outputs) == {"app_name", "provides", "requires"}
    for role in ("provides", "requires"):
        assert outputs[role]["value"] == {name.replace("-", "_"): name for name in meta[role]}


@pytest.mark.parametrize("charm", CHARMS)
def test_variables_are_those_of_the_convention_with_the_bundles_values(charm: str) -> None:
    of_bundle = read(ROOT / "bundles" / "scale.yaml")["applications"][charm]
    platforms = read(ROOT / "charms" / charm / "charmcraft.yaml")["platforms"]
    variables = blocks(module_of(charm), "variable")

    assert set(variables) == EVERYWHERE
    assert all(variable["description"] and variable["type"] for variable in variables.values())
    assert [name for name, variable in variables.items() if "default" not in variable] == ["model_uuid"]
    assert variables["app_name"]["default"] == charm
    assert variables["units"]["default"] == of_bundle["num_units"]
    assert variables["constraints"]["default"] == of_bundle["constraints"]
    assert variables["base"]["default"] in {platform.partition(":")[0] for platform in platforms}


def test_the_product_module_passes_each_charm_what_the_bundle_says_of_it() -> None:
    modules = blocks(PRODUCT, "module")

    assert {module["source"] for module in modules.values()} == {
        f"../charms/{charm}/terraform" for charm in CHARMS
    }
    for module in modules.values():
        charm = module["source"].split("/")[2]
        assert set(module) - {"source"} == EVERYWHERE - {"app_name"}
        for field in ("base", "units", "constraints", "config"):
            assert module[field] == f'${{local.applications["{charm}"].{field}}}'


def test_applications_and_relations_are_read_from_the_bundle_and_its_overlays() -> None:
    text = (PRODUCT / "main.tf").read_text()

    assert '"${path.module}/../bundles"' in text
    assert '["scale.yaml"]' in text
    assert '"overlays/${name}.yaml"' in text
    # and it names no application besides ours
    named = set(re.findall(r'"([a-z]+(?:-[a-z]+)*)"', text)) - set(CHARMS)
    assert not named & {
        name
        for path in (ROOT / "bundles/overlays").glob("*.yaml")
        for name in read(path).get("applications", {})
    }


@pytest.mark.parametrize("module", [PRODUCT, *map(module_of, CHARMS)], ids=lambda path: path.parent.name)
def test_every_variable_is_used_and_every_used_one_is_there(module: Path) -> None:
    text = "\n".join(path.read_text() for path in module.glob("*.tf"))

    assert set(re.findall(r"\bvar\.(\w+)", text)) == set(blocks(module, "variable"))
    assert set(re.findall(r"\blocal\.(\w+)", text)) == set(blocks(module, "locals"))
