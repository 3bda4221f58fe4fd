"""The distribution's Prometheus, installed on the machine where it is missing."""

from __future__ import annotations

from tippingpoint_charm.machine import Machine, MachineProblem

_SERVICE = "prometheus.service"
"""The package's own, which would scrape itself beside ours."""
_APT = ("apt-get", "-q", "-y", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=20")
_WITHIN_S = 600.0
"""Seconds for apt: to end it while it installs would leave packages half installed."""


def install_prometheus(machine: Machine) -> None:
    """Install it, with its service neither started nor enabled; MachineProblem where it cannot be."""
    machine.run("systemctl", "mask", _SERVICE)
    try:
        try:
            _install(machine)
        except MachineProblem:  # a new machine has no lists of packages, another one old ones
            machine.run(*_APT, "update", within=_WITHIN_S)
            _install(machine)
    finally:
        machine.run("systemctl", "unmask", _SERVICE)
    machine.run("systemctl", "disable", _SERVICE)


def _install(machine: Machine) -> None:
    machine.run(*_APT, "install", "--no-install-recommends", "prometheus", within=_WITHIN_S)
