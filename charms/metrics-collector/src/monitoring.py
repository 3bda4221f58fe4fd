"""The collector's own Prometheus: the distribution's program with a configuration made of relations and settings.

It runs while it has something to scrape or receive, as a separate user, with its data in the unit's state. Broken parts
of its configuration are left out and reported.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from packages import install_prometheus
from tippingpoint_charm.machine import Machine, MachineProblem
from tippingpoint_charm.relations.prometheus import Scraped
from tippingpoint_charm.systemd import HARDENED, PREFIX, UNITS, UnitFiles, make_user

from tippingpoint.errors import OperationFailed, UserError
from tippingpoint.monitoring.scrape.check import checked, install
from tippingpoint.monitoring.scrape.jobs import Found, ScrapeAccess, exporters, itself, static_targets
from tippingpoint.monitoring.scrape.relation import jobs_of_relation
from tippingpoint.monitoring.scrape.server import Serving, command, find_program, problems

PORT = 9481
"""The port of this Prometheus; the distribution's own service has 9090."""
USER = "tippingpoint-prometheus"
_SERVICE = """\
[Unit]
Description=Tipping Point Prometheus of {unit}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
User={user}
Group={user}
StateDirectory={state}/data
StateDirectoryMode=0700
UMask=0077
LimitNOFILE=65536
Restart=on-failure
RestartSec=5
TimeoutStopSec=60
{hardened}
[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Wanted:
    """The wanted work of Prometheus."""

    scraped: Sequence[Scraped] = ()
    """The jobs of related applications."""
    targets: str = ""
    """The targets that the configuration lists."""
    access: ScrapeAccess | None = None
    """The login and the authorities for these targets."""
    generators: Mapping[str, str] = field(default_factory=dict[str, str])
    """HOST:PORT of generators' exporters, by unit."""
    receives: bool = False
    """Whether others send samples."""
    alerts: Found = field(default_factory=Found)
    """Rules of our own."""
    retention: str = "15d"
    interval: int = 15

    @property
    def anything(self) -> bool:
        """Whether there is anything to do. The generators' own figures alone are no reason to run Prometheus."""
        return bool(self.scraped or self.targets.strip() or self.receives)


class Monitoring:
    """The Prometheus of one unit. Its methods raise MachineProblem or OSError if the machine fails."""

    def __init__(self, machine: Machine, unit: str, state: str) -> None:
        """`state` is the unit's directory in /var/lib."""
        self._machine = machine
        self._unit = unit
        self._state = state
        self.name = f"{PREFIX}{unit.replace('/', '-')}-prometheus"

    @property
    def is_on(self) -> bool:
        """Whether it is set up."""
        return self._machine.path(f"{UNITS}/{self.name}.service").exists()

    @property
    def url(self) -> str:
        """The URL of Prometheus on this machine."""
        return f"http://127.0.0.1:{PORT}"

    def keep(self, wanted: Wanted) -> list[str]:
        """Make it run and scrape what is wanted. Return problems, a line each; one that stops it comes first."""
        why = ""
        try:
            if None in _programs():
                why = self._install()
            prometheus, promtool = _programs()
        except UserError as wrong:
            return [str(wrong)]
        if prometheus is None or promtool is None:
            return [
                f"Prometheus is not installed{why}: juju exec --unit {self._unit} -- apt install -y prometheus"
            ]
        make_user(self._machine, USER)
        try:
            made = checked(_found(wanted), promtool, wanted.interval)
        except OperationFailed as failed:
            return [str(failed)]
        changed = install(self._configuration, made, self._machine.user(USER))
        line = " ".join(command(prometheus, self._serving(wanted)))
        text = _SERVICE.format(unit=self._unit, command=line, user=USER, state=self._state, hardened=HARDENED)
        files = UnitFiles(self._machine, {f"{self.name}.service": text})
        files.run(f"{self.name}.service", anew="reload-or-restart" if changed else "")
        return made.problems

    def troubles(self) -> list[str]:
        """Return the problems of the running service, a line each. Start it if it is not running."""
        if not self.is_on:
            return []
        self._machine.run("systemctl", "start", f"{self.name}.service")
        configuration, data = self._configuration, self._machine.path(f"/var/lib/{self._state}/data")
        return problems(Serving(configuration, data, address=f"127.0.0.1:{PORT}"))

    def stop(self) -> None:
        """Stop it and remove its secrets. Its samples stay with the unit's state."""
        UnitFiles(self._machine, {f"{self.name}.service": ""}).remove(f"{self.name}.service")
        shutil.rmtree(self._configuration, ignore_errors=True)

    def remove(self) -> None:
        """Stop it, and remove its user."""
        self.stop()
        if self._machine.user(USER) is not None:
            with suppress(MachineProblem):  # a user that cannot log in does no harm
                self._machine.run("userdel", USER)

    def _install(self) -> str:
        """Install the distribution's program. Return why that failed; empty if it did not."""
        try:
            install_prometheus(self._machine)
        except MachineProblem as problem:
            return f" ({problem})"
        return ""

    @property
    def _configuration(self) -> Path:
        return self._machine.path(f"/var/lib/{self._state}/prometheus")

    def _serving(self, wanted: Wanted) -> Serving:
        return Serving(
            Path(f"/var/lib/{self._state}/prometheus"),
            Path(f"/var/lib/{self._state}/data"),
            address=f"{'0.0.0.0' if wanted.receives else '127.0.0.1'}:{PORT}",
            retention=wanted.retention,
            remote_write=wanted.receives,
        )


def _found(wanted: Wanted) -> list[Found]:
    found = [jobs_of_relation(one.owner, one.application, one.units) for one in wanted.scraped]
    found += [static_targets(wanted.targets, wanted.access), exporters("scale-run", wanted.generators)]
    return [*found, wanted.alerts, itself(f"127.0.0.1:{PORT}")]


def _programs() -> tuple[Path | None, Path | None]:
    return find_program("prometheus"), find_program("promtool")
