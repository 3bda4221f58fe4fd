"""The access to a Prometheus that knows the figures of a plan's thresholds: from a relation, with a login in a secret.

The relation has a URL and nothing else. The charm writes the login and the certificate to files for the agent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import ops

from tippingpoint.targets.secret import PLACE
from tippingpoint.util.secret_keys import Keys
from tippingpoint_charm.relations import prometheus_api
from tippingpoint_charm.relations.databag import NotThere, shown
from tippingpoint_charm.secrets import read_secret

CREDENTIALS = "prometheus-credentials"
"""The option that names the secret with the login."""
_FILES = {"cacert": "prometheus-ca.pem", "password": "prometheus-password", "token": "prometheus-token"}
"""The file of the agent that has the content of each key."""
_FIELDS = {"cacert": "ca", "password": "password_file", "token": "token_file"}


@dataclass(frozen=True)
class FigureAccess:
    """The access to a Prometheus."""

    fields: dict[str, str]
    """Those of the agent's PrometheusAccess; PLACE in a value stands for the directory with the files."""
    files: dict[str, str] = field(repr=False)
    """Name and content of the files that `fields` name, to be kept with mode 0600."""


def read_login(charm: ops.CharmBase) -> dict[str, str]:
    """Return the login at a Prometheus, and the authority of its certificate; empty if neither is configured.

    Raises NotThere if the secret cannot be read.
    """
    return (
        read_secret(
            charm,
            CREDENTIALS,
            Keys(("username", "password"), ("cacert",)),
            Keys(("token",), ("cacert",)),
            Keys(("cacert",)),
        )
        or {}
    )


def find_prometheus(charm: ops.CharmBase) -> FigureAccess:
    """Return the access to the related Prometheus. Raises NotThere, which says what is missing, and what to do."""
    url = prometheus_api.read(charm)
    if not url:
        endpoint = f"{charm.app.name}:{prometheus_api.NAME}"
        raise NotThere(f"a Prometheus that scrapes the target: juju integrate {endpoint} PROMETHEUS")
    login = read_login(charm)
    only = charm.config.get("prometheus-only", "")
    fields = {"url": url, "username": login.get("username", "")}
    fields |= {_FIELDS[key]: f"{PLACE}/{name}" for key, name in _FILES.items() if key in login}
    try:
        fields["only"] = prometheus_api.matchers("prometheus-only", str(only))
    except ValueError as wrong:
        raise NotThere(f"prometheus-only: {shown(str(only))}: {wrong}") from None
    return FigureAccess(fields, {name: login[key] for key, name in _FILES.items() if key in login})
