"""How to reach a Pacemaker, read from a Juju secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tippingpoint.errors import UserError
from tippingpoint.targets.pacemaker.plan import INTERCEPTED, PacemakerTarget
from tippingpoint.targets.secret import PLACE, Reached, Secret
from tippingpoint.util.secret_keys import Keys
from tippingpoint.util.text import listed

_TLS = {"cacert": "ca", "cert": "cert", "key": "key"}
"""Keys of a secret, and their names in a file of credentials. Juju accepts no key of two letters."""


class PacemakerSecret(Secret[PacemakerTarget]):
    """The nodes' addresses, a user of the group haclient with a password, and PEM texts where the cluster has any.

    `remotes` are addresses of a pacemaker_remote each, for plans that add remote nodes.

    `tls=anonymous` allows TLS without certificates, as the plan's field of this name does.
    """

    ways = (Keys(("addresses", "user", "password"), ("port", "tls", *_TLS, "remotes")),)
    example = "addresses=HOST,HOST user=hacluster password#file=FILE cacert#file=FILE"
    names: ClassVar = {f"{name}, cert": f"{key}, cert" for key, name in _TLS.items() if key != name}

    def reached(self, content: Mapping[str, str], units: int) -> Reached:
        addresses = listed(content["addresses"])
        if not addresses:
            raise UserError("addresses", "", "HOST,HOST")
        known: dict[str, Any] = {"addresses": addresses}
        if port := content.get("port"):
            if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
                raise UserError("port", "", "a number from 1 to 65535")
            known["port"] = int(port)
        known |= {key: content[key] for key in ("user", "password")}
        if remotes := listed(content.get("remotes", "")):
            known["remotes"] = remotes
        known |= {name: content[key] for key, name in _TLS.items() if content.get(key)}
        fields = {"credentials": f"{PLACE}/pacemaker.yaml"}
        if tls := content.get("tls"):
            if tls not in ("anonymous", "verified"):
                raise UserError("tls", "", "anonymous or verified")
            fields["tls"] = tls
        if tls != "anonymous" and not content.get("cacert"):
            raise UserError(
                "cacert", "", "the nodes' CA (PEM), or tls=anonymous, which a man in the middle can read"
            )
        text = yaml.safe_dump(known)
        danger = INTERCEPTED if tls == "anonymous" else ""
        return Reached(fields, {"pacemaker.yaml": text}, addresses[0], danger)

    def read(self, section: PacemakerTarget, files: Mapping[str, Path]) -> None:
        from tippingpoint.targets.pacemaker.access import access

        access(section)


SECRET = PacemakerSecret()
