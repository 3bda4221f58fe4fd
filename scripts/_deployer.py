"""Writes the output of ./scripts/export-deployer.

The format is that of deployer/config.py and deployer/deployment.py in juju-deployer 0.11: a file of named deployments
with `services`, `relations`, `series`, and `inherits`, which names the deployments to merge.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from lab.arguments import deployer_parser

ROOT = Path(__file__).resolve().parents[1]
BUNDLE = ROOT / "bundles" / "scale.yaml"
OVERLAYS = ROOT / "bundles" / "overlays"
BASE = "tipping-point"

SERIES = {"ubuntu@22.04": "jammy", "ubuntu@24.04": "noble", "ubuntu@26.04": "resolute"}

Stanza = dict[str, Any]


class ExportError(Exception):
    """There is no file; the message says why in one line."""


def read_bundle(path: Path) -> Stanza:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ExportError(f"{path}: {problem.strerror}: expected a bundle's file") from problem
    except (ValueError, yaml.YAMLError) as problem:
        raise ExportError(f"{path}: {' '.join(str(problem).split())}: expected YAML") from problem
    if not isinstance(content, dict) or not isinstance(content.get("applications", {}), dict):
        raise ExportError(f"{path}: expected a bundle: YAML with `applications`, `relations` or both")
    return content


def series_of(base: str) -> str:
    """Return the series of a base such as ubuntu@24.04 or ubuntu@24.04/stable."""
    name = base.partition("/")[0]
    if name not in SERIES:
        raise ExportError(f"base: {base}: expected {', '.join(SERIES)}, whose series are known here")
    return SERIES[name]


def packed_for(bundle: Stanza) -> list[str]:
    """Return the series that all local charms of the bundle are packed for."""
    found: list[set[str]] = []
    for name in bundle["applications"]:
        charm = yaml.safe_load((ROOT / "charms" / name / "charmcraft.yaml").read_text(encoding="utf-8"))
        found.append({series_of(platform.partition(":")[0]) for platform in charm["platforms"]})
    return sorted(set.intersection(*found))


def as_service(application: Stanza, default_base: str) -> Stanza:
    """Convert an application to a service, without channel and placement, which version 3 cannot express.

    Version 3 only knows existing machines, so `constraints` must find them.
    """
    service: Stanza = {}
    charm = application.get("charm")
    if charm:
        # A local charm must be unpacked at $JUJU_REPOSITORY/SERIES/NAME.
        service["charm"] = Path(charm).stem if charm.startswith((".", "/")) else f"cs:{charm}"
    if application.get("base", default_base) != default_base:
        service["series"] = series_of(application["base"])
    if "constraints" in application:
        service["constraints"] = application["constraints"].replace("cores=", "cpu-cores=")
    kept = ("num_units", "options", "expose", "annotations", "bindings", "storage")
    return service | {key: application[key] for key in kept if key in application}


def as_stanza(bundle: Stanza, default_base: str) -> Stanza:
    stanza: Stanza = {}
    if bundle.get("applications"):
        applications = bundle["applications"].items()
        stanza["services"] = {name: as_service(each or {}, default_base) for name, each in applications}
    if bundle.get("relations"):
        stanza["relations"] = bundle["relations"]
    return stanza


def overlays(cloud: Path | None) -> Iterator[tuple[str, Stanza]]:
    """Yield the overlays that juju-deployer can express, without one named like the cloud, and report the others."""
    for path in sorted(OVERLAYS.glob("*.yaml")):
        if cloud is None or path.stem != cloud.stem:
            overlay = read_bundle(path)
            if "saas" in overlay:
                print(
                    f"export-deployer: {path.name}: left out, as juju-deployer knows no relations across models (saas)",
                    file=sys.stderr,
                )
            else:
                yield path.stem, overlay


def export(cloud: Path | None) -> Stanza:
    bundle = read_bundle(BUNDLE)
    base = bundle["default-base"]
    deployments: Stanza = {BASE: as_stanza(bundle, base)}
    parent = BASE
    if cloud is not None:
        described = read_bundle(cloud)
        if "saas" in described:
            raise ExportError(
                f"{cloud}: saas: expected none, as juju-deployer knows no relations across models"
            )
        parent = f"{BASE}-{cloud.stem}"
        deployments[parent] = {"inherits": BASE} | as_stanza(described, base)
    found = dict(overlays(cloud))
    for name, overlay in found.items():
        deployments[f"{BASE}-{name}"] = {"inherits": parent} | as_stanza(overlay, base)
    for series in packed_for(bundle):
        deployments[series] = {"inherits": parent, "series": series}
        for name in found:
            deployments[f"{series}-{name}"] = {"inherits": f"{BASE}-{name}", "series": series}
    return deployments


def main(arguments: Sequence[str]) -> int:
    options = deployer_parser().parse_args(arguments)
    try:
        deployments = export(options.cloud)
    except ExportError as problem:
        print(f"export-deployer: {problem}", file=sys.stderr)
        return 2
    print("# Written by ./scripts/export-deployer, for juju-deployer.")
    print(yaml.safe_dump(deployments, sort_keys=False), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
