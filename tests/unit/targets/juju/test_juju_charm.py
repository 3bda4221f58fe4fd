"""The hollow charm's archive."""

from __future__ import annotations

import io
import zipfile

import yaml

from tippingpoint.targets.juju.api.charm import NAME, PEER, PROVIDES, REQUIRES, archive


def test_the_archive_is_the_same_bytes_every_time() -> None:
    assert archive() == archive()


def test_the_archive_is_what_a_controller_takes_for_a_charm() -> None:
    """Given the archive, then it has a name, a base, and a dispatch that may be executed."""
    charm = zipfile.ZipFile(io.BytesIO(archive()))
    assert charm.testzip() is None
    metadata = yaml.safe_load(charm.read("metadata.yaml"))
    assert metadata["name"] == NAME
    assert metadata["summary"]
    assert metadata["description"]
    bases = yaml.safe_load(charm.read("manifest.yaml"))["bases"]
    assert {base["channel"] for base in bases} == {"22.04", "24.04"}
    assert all("amd64" in base["architectures"] for base in bases)
    assert (charm.getinfo("dispatch").external_attr >> 16) & 0o111 == 0o111


def test_any_two_applications_of_it_can_be_related() -> None:
    """Given the endpoints, then what one provides another requires, with one interface, and there is a peer."""
    charm = zipfile.ZipFile(io.BytesIO(archive()))
    metadata = yaml.safe_load(charm.read("metadata.yaml"))
    assert metadata["provides"][PROVIDES]["interface"] == metadata["requires"][REQUIRES]["interface"]
    assert list(metadata["peers"]) == [PEER]
