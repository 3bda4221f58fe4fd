"""Prepares a unit's machine for a plan that needs more of it than the charm brings: packages and groups.

Nothing of it happens when the charm is installed, or with any other plan.
"""

from __future__ import annotations

from collections.abc import Callable

from tippingpoint.plan.kinds import MachineNeeds
from tippingpoint_charm.agent import Refused
from tippingpoint_charm.machine import Machine
from tippingpoint_charm.service import USER, Service

_APT = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=2")
_WITHIN_S = 1800.0
"""Seconds for apt. The limit is high, because killing apt would leave packages half installed."""
_KVM = "/dev/kvm"


class Preparation:
    """What a plan needs of a machine, as far as the machine lacks it."""

    def __init__(self, machine: Machine, needs: MachineNeeds) -> None:
        self._machine = machine
        self._needs = needs

    @property
    def impossible(self) -> str:
        """Why this machine cannot be prepared, in one line; empty if it can."""
        if self._needs.virtualises and not self._machine.path(_KVM).exists():
            return (
                f"no {_KVM} on this machine: expected one that virtualises (VT-x or AMD-V; in a virtual machine, "
                "nested)"
            )
        return ""

    @property
    def lacking(self) -> list[str]:
        """The packages that are not installed, and the groups that the agent's user is not in."""
        groups = [group for group in self._needs.groups if not self._machine.is_member(USER, group)]
        return [*self._packages, *(f"{USER} in group {group}" for group in groups)]

    def prepare(self, service: Service, log: Callable[[str], None]) -> str:
        """Install the packages, and put the agent's user into the groups; the agent starts anew then.

        Returns what was done. Raises Refused if the machine will not do, MachineProblem if something failed.
        """
        if self.impossible:
            raise Refused(self.impossible)
        done: list[str] = []
        packages = self._packages
        if packages:
            log(f"installing {', '.join(packages)}")
            self._machine.run(*_APT, "update", within=_WITHIN_S)
            self._machine.run(*_APT, "install", "--no-install-recommends", *packages, within=_WITHIN_S)
            done.append(f"installed {', '.join(packages)}")
        joined = [group for group in self._needs.groups if not self._machine.is_member(USER, group)]
        for group in joined:
            self._machine.run("usermod", "--append", "--groups", group, USER)
            done.append(f"{USER} is in group {group}")
        if joined:  # a process has the groups that it began with
            service.restart()
        return "; ".join(done) or "nothing was lacking"

    @property
    def _packages(self) -> list[str]:
        return self._machine.missing_packages(*self._needs.packages)
