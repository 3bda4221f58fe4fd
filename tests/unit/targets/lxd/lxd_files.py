"""Certificates and the lxc client's configuration, as files, for tests of who we are to LXD."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import yaml

from lab.lxd.access import ClientCertificate, make_client_certificate

DAY = datetime.timedelta(days=1)
SERVER = make_client_certificate()
CLIENT = make_client_certificate()
OTHER = make_client_certificate()


def that_ends(after: datetime.timedelta) -> ClientCertificate:
    """A certificate that expires after this time from now, or has; it is valid from four days before that."""
    return make_client_certificate(datetime.datetime.now(datetime.UTC) + after)


def written(path: Path, content: object, mode: int = 0o600) -> Path:
    """A file with this text, or with this as YAML."""
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    path.chmod(mode)
    return path


def credentials(**changed: Any) -> dict[str, Any]:
    """What a file of target.credentials holds; a field that is None is left out."""
    whole = {
        "addresses": ["192.0.2.1:8443", "192.0.2.2:8443"],
        "certificate": SERVER.certificate,
        "client_certificate": CLIENT.certificate,
        "client_key": CLIENT.key,
    }
    return {name: value for name, value in (whole | changed).items() if value is not None}


def configuration(directory: Path, **remotes: Any) -> Path:
    """The lxc client's configuration directory, with these remotes beside `cluster`, which is its default."""
    (directory / "servercerts").mkdir(parents=True)
    ours = {"addr": "https://192.0.2.1:8443", "auth_type": "tls", "project": "default", "protocol": "lxd"}
    written(
        directory / "config.yml", {"default-remote": "cluster", "remotes": {"cluster": ours} | remotes}, 0o644
    )
    written(directory / "client.crt", CLIENT.certificate, 0o644)
    written(directory / "client.key", CLIENT.key)
    for name in ("cluster", *remotes):
        written(directory / "servercerts" / f"{name}.crt", SERVER.certificate, 0o644)
    return directory
