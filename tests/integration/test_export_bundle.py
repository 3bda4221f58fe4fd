"""What was deployed deploys again: `juju export-bundle` into another model."""

from __future__ import annotations

from pathlib import Path

import jubilant
import pytest
import yaml

from tests.integration.packs import BUNDLE, CHARMS, with_packs
from tests.integration.scene import DEPLOYED

pytestmark = pytest.mark.timeout(1200)


def test_the_exported_bundle_is_the_one_that_was_deployed(
    juju: jubilant.Juju, packs: dict[str, Path], tmp_path: Path
) -> None:
    """Given the bundle, deployed, when it is exported and deployed beside, then the same is there again.

    An export names a charm that came from a file by a name that only its own model knows: as any user must, we put
    the packs in their place. The machines are not waited for, as they are those of test_scale.
    """
    juju.deploy(with_packs(BUNDLE.read_text(), packs, tmp_path / "scale.yaml"))
    exported = exported_bundle(juju)
    again = with_packs(exported, packs, tmp_path / "again.yaml")
    for name in CHARMS:
        juju.remove_application(name, force=True)
    juju.wait(lambda status: not status.apps, timeout=DEPLOYED, delay=5)

    juju.deploy(again)

    assert shape(exported_bundle(juju)) == shape(exported)
    assert set(juju.status().apps) == set(CHARMS)


def exported_bundle(juju: jubilant.Juju) -> str:
    """What Juju exports; a controller that does not (Juju 4.0 says so) cannot be tested for it."""
    try:
        return juju.cli("export-bundle")
    except jubilant.CLIError as problem:
        if "support exporting bundles" in problem.stderr:
            pytest.skip(" ".join(problem.stderr.split()))
        raise


def shape(text: str) -> tuple[dict[str, tuple[object, object]], list[list[str]]]:
    """What a bundle asks for, but for where its charms come from and the machines it happened to get."""
    bundle = next(iter(yaml.safe_load_all(text)))
    applications = {
        name: (application.get("constraints"), application.get("options"))
        for name, application in bundle["applications"].items()
    }
    return applications, sorted(sorted(relation) for relation in bundle["relations"])
