"""The four Terraform modules under OpenTofu: formatted, valid, and their own tests pass; and what the product module
plans is the bundle.

The provider is provider.py's stand-in. Nothing is deployed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.terraform.provider import serving

ROOT = Path(__file__).resolve().parents[2]
CHARMS = ["container-spawner", "load-claimer", "metrics-collector"]
MODULES = ["terraform", *(f"charms/{charm}/terraform" for charm in CHARMS)]
TOFU = os.environ.get("TIPPINGPOINT_TOFU") or shutil.which("tofu") or str(ROOT / ".cache/bin/tofu")
OVERLAYS = sorted(path.stem for path in (ROOT / "bundles/overlays").glob("*.yaml"))
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
"""The environment without what a user has set for OpenTofu."""
PLAN = """
mock_provider "juju" {{}}

run "planned" {{
  command = plan
  variables {{
    model_uuid = "11111111-2222-4333-8444-555555555555"
    channel    = "latest/candidate"
    overlays   = {overlays}
  }}
}}
"""


class Tofu:
    """OpenTofu in a copy of the modules and bundles, where it leaves its files."""

    def __init__(self, copy: Path, environment: dict[str, str]) -> None:
        self.copy = copy
        self._environment = CLEAN | environment | {"TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}

    def run(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a module, made ready before."""
        if not (self.copy / module / ".terraform").exists():
            self._call(module, "init", "-backend=false", "-input=false", "-no-color").check_returncode()
        return self._call(module, *arguments)

    def _call(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [TOFU, f"-chdir={self.copy / module}", *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def tofu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tofu]:
    copy = tmp_path_factory.mktemp("modules")
    for folder in ("bundles", *MODULES):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns(".terraform*"))
    with serving() as environment:
        yield Tofu(copy, environment)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_formatted(module: str) -> None:
    done = subprocess.run(
        [TOFU, "fmt", "-check", "-diff", "-recursive", ROOT / module],
        env=CLEAN,
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_valid(tofu: Tofu, module: str) -> None:
    done = tofu.run(module, "validate", "-json")

    said = json.loads(done.stdout)
    assert said["valid"], said["diagnostics"]
    assert said["diagnostics"] == []


@pytest.mark.parametrize("module", MODULES)
def test_a_modules_own_tests_pass(tofu: Tofu, module: str) -> None:
    done = tofu.run(module, "test", "-no-color")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in done.stdout
    assert " 0 passed" not in done.stdout


@pytest.mark.parametrize(
    "overlays", [[], *([each] for each in OVERLAYS), OVERLAYS], ids=lambda each: "+".join(each) or "none"
)
def test_the_product_module_plans_the_bundle_application_by_application_and_relation_by_relation(
    tofu: Tofu, overlays: list[str]
) -> None:
    layers = [yaml.safe_load((ROOT / "bundles/scale.yaml").read_text())]
    layers += [yaml.safe_load((ROOT / f"bundles/overlays/{each}.yaml").read_text()) for each in overlays]
    (tofu.copy / "terraform/tests/plan.tftest.hcl").write_text(PLAN.format(overlays=json.dumps(overlays)))

    done = tofu.run("terraform", "test", "-json", "-verbose", "-filter=tests/plan.tftest.hcl")

    assert done.returncode == 0, done.stdout
    (plan,) = [said["test_plan"] for said in map(json.loads, done.stdout.splitlines()) if "test_plan" in said]
    resources = list(planned(plan["planned_values"]["root_module"]))
    assert {each["values"]["name"]: application(each) for each in of_type(resources, "application")} == (
        applications_of(layers)
    )
    assert sorted(map(ends, of_type(resources, "integration"))) == relations_of(layers)
    assert sorted(
        (each["index"], each["values"]["base"], each["values"]["constraints"])
        for each in of_type(resources, "machine")
    ) == sorted(
        (number, machine["base"], machine["constraints"])
        for layer in layers
        for number, machine in layer.get("machines", {}).items()
    )


def planned(module: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The resources of a module and of those in it."""
    yield from module.get("resources", [])
    for child in module.get("child_modules", []):
        yield from planned(child)


def of_type(resources: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in resources if each["type"] == f"juju_{kind}"]


def application(resource: dict[str, Any]) -> dict[str, Any]:
    values = resource["values"]
    (charm,) = values["charm"]
    return {
        **{field: charm[field] for field in ("name", "channel", "base")},
        **{field: values.get(field) for field in ("units", "constraints")},
        "config": values["config"],
    }


def applications_of(layers: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What Juju deploys of a bundle and its overlays: a later one replaces fields, and adds to options."""
    said: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for name, fields in layer.get("applications", {}).items():
            before = said.setdefault(name, {})
            options = before.get("options", {}) | fields.get("options", {})
            before.update(fields, options=options)
    return {
        name: {
            "name": name if name in CHARMS else fields["charm"],
            "channel": fields.get("channel", "latest/candidate"),
            "base": fields.get("base", layers[0]["default-base"]),
            # what is placed on machines has as many units as machines
            "units": None if "to" in fields else fields.get("num_units"),
            "constraints": fields.get("constraints"),
            "config": {
                option: str(value).lower() if isinstance(value, bool) else str(value)
                for option, value in fields["options"].items()
            },
        }
        for name, fields in said.items()
    }


def ends(integration: dict[str, Any]) -> list[str]:
    """The two ends of a relation, each as application:endpoint or as the URL of an offer."""
    return sorted(
        each["offer_url"] if each.get("offer_url") else f"{each['name']}:{each['endpoint']}"
        for each in integration["values"]["application"]
    )


def relations_of(layers: list[dict[str, Any]]) -> list[list[str]]:
    offers = {name: offer["url"] for layer in layers for name, offer in layer.get("saas", {}).items()}
    return sorted(
        sorted(offers.get(end.partition(":")[0], end) for end in pair)
        for layer in layers
        for pair in layer.get("relations", [])
    )
