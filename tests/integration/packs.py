"""The packs, and the bundle with them."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest
import yaml

CHARMS = ("load-claimer", "container-spawner", "metrics-collector")
BUNDLE = Path(__file__).parents[2] / "bundles" / "scale.yaml"
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def find_packs(directory: Path) -> dict[str, Path]:
    """Each charm's pack for this machine's architecture; the tests need all three."""
    found: dict[str, Path] = {}
    for name in CHARMS:
        packs = [path for path in sorted(directory.glob(f"{name}*.charm")) if _ARCHITECTURE in path.name]
        if not packs:
            pytest.exit(
                f"--charm-path: {directory}: expected packs of {', '.join(CHARMS)}: ./scripts/pack", 2
            )
        found[name] = packs[-1].resolve()
    return found


def with_packs(bundle: str, packs: dict[str, Path], out: Path) -> Path:
    """Write a bundle in which the suite's charms are those packs, whatever it named for them."""
    documents: list[dict[str, Any]] = [document for document in yaml.safe_load_all(bundle) if document]
    for document in documents:
        for name, application in document.get("applications", {}).items():
            if name in packs and "charm" in application:
                application["charm"] = str(packs[name])
                for key in ("channel", "revision"):
                    application.pop(key, None)
    out.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    return out
