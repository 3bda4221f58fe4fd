"""Installs the distribution's Prometheus if it is missing."""

from __future__ import annotations

from tippingpoint_charm.machine import Machine, MachineProblem

_SERVICE = "prometheus.service"
"""The package's own service, which would only scrape itself."""
_APT = ("apt-get", "-q", "-y", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=20")
_WITHIN_S = 600.0
"""Seconds for apt. The limit is high, because killing apt would leave packages half installed."""


def install_prometheus(machine: Machine) -> None:
    """Install it, with its service neither started nor enabled. Raises MachineProblem if that fails."""
    machine.run("systemctl", "mask", _SERVICE)
    try:
        try:
            _install(machine)
        except MachineProblem:  # package lists are missing on a new machine, or outdated
            machine.run(*_APT, "update", within=_WITHIN_S)
            _install(machine)
    finally:
        machine.run("systemctl", "unmask", _SERVICE)
    machine.run("systemctl", "disable", _SERVICE)


def _install(machine: Machine) -> None:
    machine.run(*_APT, "install", "--no-install-recommends", "prometheus", within=_WITHIN_S)
