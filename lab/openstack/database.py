"""The databases of an OpenStack lab, made once per version of their packages, kept in .cache, and copied."""

from __future__ import annotations

import getpass
import hashlib
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.control import LabError
from lab.openstack.places import Site, environment, write_private
from lab.openstack.services import mariadb, program
from lab.patience import PATIENCE_S
from lab.service import Service, Starter
from lab.tether import tethered

_DATABASES = ("keystone", "glance", "placement", "nova_api", "nova_cell0", "nova_cell1", "neutron")
_KEPT = ("mariadb", "keystone")
"""The states that are kept, beside the administrator's password."""
_POLL_S = 0.05

COUNTED = {
    "servers": "nova_cell1.instances WHERE deleted = 0",
    "servers-nowhere": "nova_cell0.instances WHERE deleted = 0",
    "build-requests": "nova_api.build_requests",
    "flavors": "nova_api.flavors",
    "keypairs": "nova_api.key_pairs",
    "server-groups": "nova_api.instance_groups",
    "allocations": "placement.consumers",
    "ports": "neutron.ports",
    "networks": "neutron.networks",
    "subnets": "neutron.subnets",
    "routers": "neutron.routers",
    "security-groups": "neutron.securitygroups",
    "projects": "keystone.project WHERE is_domain = 0",
    "users": "keystone.user",
    "application-credentials": "keystone.application_credential",
    "images": "glance.images WHERE deleted = 0",
}
"""The rows that are counted, which users can see. `servers-nowhere` are servers without a host."""


class Database:
    """The databases, available after `start`."""

    def __init__(self, site: Site, starter: Starter) -> None:
        self._site = site
        self._service = mariadb(site, starter)
        self.administrator = ""
        """The password of Keystone's user `admin`."""

    @property
    def service(self) -> Service:
        """MariaDB."""
        return self._service

    def start(self) -> None:
        """Start with databases as after a new installation of all services."""
        kept = self._site.programs.databases / _key(self._site)
        if not kept.exists():
            self._make()
            self._keep(kept)
        else:
            for name in _KEPT:
                shutil.copytree(kept / name, self._site.state(name), dirs_exist_ok=True)
            self.administrator = (kept / "administrator").read_text()
        _drop_others(kept)
        self._open()
        self.query(f"UPDATE keystone.endpoint SET url = '{self._site.url('keystone')}/v3'")

    def query(self, statement: str) -> list[list[str]]:
        """Return the rows of a query. Raises LabError if it fails."""
        line = ["mariadb", "--no-defaults", f"--socket={self._site.database}", "-N", "-B", "-e", statement]
        return [row.split("\t") for row in self._run(*line).splitlines()]

    def number(self, counted: str) -> int:
        """Count rows; `counted` is the SQL after FROM."""
        return int(self.query(f"SELECT COUNT(*) FROM {counted}")[0][0])

    def counts(self) -> dict[str, int]:
        """Return all counts by name."""
        statement = " UNION ALL ".join(
            f"SELECT '{name}', COUNT(*) FROM {rows}" for name, rows in COUNTED.items()
        )
        return {name: int(number) for name, number in self.query(statement)}

    def _open(self) -> None:
        self._service.start()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.query("SELECT 1")
                return
            except LabError:
                self._service.check()
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)

    def _make(self) -> None:
        site = self._site
        install = ["mariadb-install-db", "--no-defaults", "--skip-test-db", f"--user={getpass.getuser()}"]
        self._run(*install, f"--datadir={site.state('mariadb')}", "--auth-root-authentication-method=normal")
        self._open()
        for name in _DATABASES:
            self.query(f"CREATE DATABASE {name} CHARACTER SET utf8mb3")
        self.administrator = secrets.token_urlsafe(16)
        with ThreadPoolExecutor(5) as pool:
            for made in [
                pool.submit(make)
                for make in (self._nova, self._keystone, self._neutron, self._glance, self._placement)
            ]:
                made.result()
        self._service.end()  # so that the copy is complete

    def _keep(self, kept: Path) -> None:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix="new-", dir=kept.parent))
        try:
            for name in _KEPT:
                shutil.copytree(self._site.state(name), new / name)
            write_private(new / "administrator", self.administrator)
            new.rename(kept)
        except OSError:  # another lab was faster, and its copy is as good
            shutil.rmtree(new, ignore_errors=True)

    def _keystone(self) -> None:
        for name in ("fernet-keys", "credential-keys"):
            self._site.state("keystone", name).chmod(0o700)
        user = getpass.getuser()
        owner = [f"--keystone-user={user}", f"--keystone-group={user}"]
        self._manage_keystone("db_sync")
        self._manage_keystone("fernet_setup", *owner)
        self._manage_keystone("credential_setup", *owner)
        nowhere = [f"--bootstrap-{kind}-url=http://localhost" for kind in ("admin", "internal", "public")]
        region = "--bootstrap-region-id=RegionOne"
        secret = {"OS_BOOTSTRAP_PASSWORD": self.administrator}
        self._manage_keystone("bootstrap", *nowhere, region, **secret)

    def _nova(self) -> None:
        # Templates, which each service fills in from its own configuration, so that a copy has no fixed paths.
        database = "{scheme}://{username}@{hostname}/%s?{query}"
        broker = "{scheme}://{username}:{password}@{hostname}:{port}/{path}"
        cell0 = f"--database_connection={database % 'nova_cell0'}"
        cell1 = [f"--database_connection={database % 'nova_cell1'}", f"--transport-url={broker}"]
        for arguments in (
            ["api_db", "sync"],
            ["cell_v2", "map_cell0", cell0],
            ["db", "sync"],
            ["cell_v2", "create_cell", "--name=cell1", *cell1],
        ):
            self._manage("nova-manage", "nova.cmd.manage", ("nova", "nova.conf"), arguments)

    def _neutron(self) -> None:
        files = ("neutron", "neutron.conf", "ml2.ini")
        self._manage("neutron-db-manage", "neutron.db.migration.cli", files, ["upgrade", "heads"])

    def _glance(self) -> None:
        self._manage("glance-manage", "glance.cmd.manage", ("glance", "glance-api.conf"), ["db_sync"])

    def _placement(self) -> None:
        self._manage(
            "placement-manage", "placement.cmd.manage", ("placement", "placement.conf"), ["db", "sync"]
        )

    def _manage_keystone(self, *arguments: str, **secret: str) -> None:
        self._manage(
            "keystone-manage", "keystone.cmd.manage", ("keystone", "keystone.conf"), arguments, **secret
        )

    def _manage(
        self, name: str, module: str, files: tuple[str, ...], arguments: Sequence[str], **secret: str
    ) -> None:
        _run(self._site, [*program(self._site, name, module, *files), *arguments], **secret)

    def _run(self, *command: str) -> str:
        return _run(self._site, self._site.programs.line(*command))


def _drop_others(kept: Path) -> None:
    """Remove this user's copies of other versions, which are no longer needed."""
    for path in kept.parent.glob(f"*-{os.getuid()}"):
        if path != kept:
            shutil.rmtree(path, ignore_errors=True)


def _key(site: Site) -> str:
    """Return a key for the databases: the versions of the packages, and the code that makes them."""
    made = hashlib.sha256(site.programs.version_key() + Path(__file__).read_bytes())
    return f"{made.hexdigest()[:16]}-{os.getuid()}"


def _run(site: Site, line: Sequence[str], **secret: str) -> str:
    """Run a program and return its output. Raises LabError if it fails or takes too long.

    `secret` values are passed in its environment.
    """
    told = {**environment(site), **secret}
    try:
        ran = subprocess.run(
            tethered(line), env=told, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"{' '.join(line)}: no end in {PATIENCE_S:g} s", "an end") from None
    if ran.returncode != 0:
        said = " | ".join((ran.stderr + ran.stdout).splitlines()[-5:])
        raise LabError(f"{' '.join(line)}: {said}", "success")
    return ran.stdout
