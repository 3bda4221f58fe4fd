"""The page as a systemd service, with a dynamic user, and secrets passed as systemd credentials.

The service may read what is collected, as everybody may, and write nothing but its cache.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tippingpoint_charm.machine import Machine
from tippingpoint_charm.systemd import COPIES, HARDENED, PREFIX, PYTHON, UNITS, UnitFiles

from tippingpoint.collect.page.access import checked_token
from tippingpoint.collect.page.tls import Pair, find_or_make, fingerprint, server_context, write_private
from tippingpoint.errors import UserError

PORT = 9480
OPTION = "page-token"
_SERVICE = """\
[Unit]
Description=Tipping Point page of {unit}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={python} -P -s -m tippingpoint.collect.page.server --runs /var/lib/{state}/runs --token %d/token \
--certificate %d/certificate --key %d/key --state /var/cache/{name} --listen 0.0.0.0:{port}
LoadCredential=token:{secrets}/token
LoadCredential=certificate:{certificate}
LoadCredential=key:{key}
Environment=PYTHONPATH={copies}/{copy} PYTHONPYCACHEPREFIX=/var/cache/{name}
DynamicUser=yes
CacheDirectory={name}
CacheDirectoryMode=0700
UMask=0077
LimitNOFILE=4096
TasksMax=256
MemoryMax=2G
OOMScoreAdjust=500
Restart=on-failure
RestartSec=5
WatchdogSec=180
KillMode=mixed
TimeoutStopSec=30
OOMPolicy=continue
{hardened}
[Install]
WantedBy=multi-user.target
"""


class Page:
    """The page of one unit. Its methods raise MachineProblem or OSError if the machine fails."""

    def __init__(self, machine: Machine, unit: str, state: str) -> None:
        """`state` is the unit's directory in /var/lib."""
        self._machine = machine
        self._unit = unit
        self._state = state
        self._secrets = f"/var/lib/{state}/page"
        self.name = f"{PREFIX}{unit.replace('/', '-')}-page"

    @property
    def is_on(self) -> bool:
        """Whether it is set up."""
        return self._machine.path(f"{UNITS}/{self.name}.service").exists()

    def fingerprint(self) -> str:
        """The fingerprint of its certificate. Raises UserError if that cannot be read."""
        own, made = self._given.certificate, self._made.certificate
        return fingerprint("certificate", own if own.exists() else made)

    @property
    def given(self) -> dict[str, str]:
        """The certificate and private-key that it was given; empty if it has its own."""
        pair = self._given
        if not pair.certificate.exists():
            return {}
        return {
            "certificate": pair.certificate.read_text().strip(),
            "private-key": pair.key.read_text().strip(),
        }

    def keep(self, secret: Mapping[str, str], names: Sequence[str], copy: str) -> None:
        """Run it from a copy of the pack, with a secret's token and optional certificate and private-key.

        `names` are its host names and addresses. Raises UserError for an unusable secret, without its content.
        """
        token = checked_token(f"{OPTION}: token", secret["token"])
        secrets = self._machine.path(self._secrets)
        secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
        secrets.chmod(0o700)
        changed = _replaced(secrets / "token", token.encode())
        pair, other = self._pair(secret, names)
        changed |= other
        files = UnitFiles(self._machine, {f"{self.name}.service": self._text(copy, pair)})
        files.run(f"{self.name}.service", anew="restart" if changed else "")

    def start(self) -> None:
        """Start it if it is not running."""
        if self.is_on:
            self._machine.run("systemctl", "start", f"{self.name}.service")

    def remove(self) -> None:
        """Remove it and its token. Its certificate stays with the unit's state, so that a later page has the same."""
        UnitFiles(self._machine, {f"{self.name}.service": ""}).remove(f"{self.name}.service")
        self._machine.path(f"{self._secrets}/token").unlink(missing_ok=True)
        for place in (f"/var/cache/{self.name}", f"/var/cache/private/{self.name}"):
            path = self._machine.path(place)
            path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)

    @property
    def _given(self) -> Pair:
        secrets = self._machine.path(self._secrets)
        return Pair(secrets / "given.crt", secrets / "given.key")

    @property
    def _made(self) -> Pair:
        secrets = self._machine.path(self._secrets)
        return Pair(secrets / "page.crt", secrets / "page.key")

    def _pair(self, secret: Mapping[str, str], names: Sequence[str]) -> tuple[Pair, bool]:
        """Return its certificate and key, and whether they have changed."""
        given = self._given
        if "certificate" not in secret:
            shown = given.certificate.exists()
            given.certificate.unlink(missing_ok=True)
            given.key.unlink(missing_ok=True)
            return find_or_make(self._machine.path(self._secrets), names), shown
        changed = _replaced(given.key, f"{secret['private-key']}\n".encode())
        changed |= _replaced(given.certificate, f"{secret['certificate']}\n".encode())
        try:
            server_context(given)
        except UserError:
            given.certificate.unlink(missing_ok=True)
            given.key.unlink(missing_ok=True)
            accepted = "a certificate (PEM) whose key, without a password, is private-key"
            raise UserError(f"{OPTION}: certificate", "(not shown)", accepted) from None
        return given, changed

    def _text(self, copy: str, pair: Pair) -> str:
        return _SERVICE.format(
            unit=self._unit,
            name=self.name,
            state=self._state,
            secrets=self._secrets,
            certificate=f"{self._secrets}/{pair.certificate.name}",
            key=f"{self._secrets}/{pair.key.name}",
            port=PORT,
            python=PYTHON,
            copies=COPIES,
            copy=copy,
            hardened=HARDENED,
        )


def _replaced(path: Path, content: bytes) -> bool:
    """Write content into a file of mode 0600. Return whether it changed."""
    if path.exists() and path.read_bytes() == content:
        return False
    write_private(path, content)
    return True
