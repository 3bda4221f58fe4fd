"""The machine that a unit is on: its files and programs. Tests use another root and another runner."""

from __future__ import annotations

import grp
import json
import pwd
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import cast

_GOAL_STATE_WITHIN = 10.0
_PACKAGES_WITHIN = 60.0
_ANSWERS_WITHIN = 3.0


class MachineProblem(Exception):
    """A command or change on the machine failed; the message says what and why in one line."""


class Machine:
    """This machine, as root sees it."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is the root of its file tree."""
        self._root = root

    def path(self, absolute: str) -> Path:
        """Return the path of a file of this machine below `root`."""
        return self._root / absolute.lstrip("/")

    def run(self, *command: str, within: float = 120.0) -> None:
        """Run a program to its end. Raises MachineProblem if it is missing, fails, or takes over `within` seconds."""
        self._output(*command, within=within)

    def _output(self, *command: str, within: float = 120.0) -> str:
        try:
            return subprocess.run(
                command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within
            ).stdout
        except subprocess.CalledProcessError as failed:
            said = str(failed.stderr or failed.stdout).strip().splitlines()
            why = said[-1][:200] if said else f"exit code {failed.returncode}"
            raise MachineProblem(f"{' '.join(command[:3])}: {why}") from None
        except subprocess.TimeoutExpired:
            raise MachineProblem(f"{' '.join(command[:3])}: not done after {within:g} s") from None
        except OSError as problem:
            raise MachineProblem(f"{command[0]}: {problem.strerror}") from None

    def unit_states(self, *units: str) -> dict[str, str]:
        """Return systemd's active state of each unit, such as active, activating, inactive or failed.

        Raises MachineProblem if systemd does not answer.
        """
        said = self._output("systemctl", "show", "--property=ActiveState", "--value", *units)
        states = said.split()
        if len(states) != len(units):
            raise MachineProblem(f"systemctl show: {said!r:.100}: expected {len(units)} states")
        return dict(zip(units, states, strict=True))

    def last_words(self, unit: str) -> str:
        """Return the last warning or error in the journal of a systemd unit, in one line; empty if there is none."""
        command = ("journalctl", "--quiet", "--unit", unit, "--lines=1", "--priority=warning", "--output=cat")
        try:
            said = self._output(*command)
        except MachineProblem:
            return ""
        return " ".join(said.split())[:200]

    def unanswered(self, addresses: Mapping[str, str], port: int) -> dict[str, str]:
        """Return why units do not accept a connection at this port, by unit; none of a unit that does.

        `addresses` are IP addresses by unit. All are tried at the same time.
        """
        from concurrent.futures import ThreadPoolExecutor

        def try_one(address: str) -> str:
            try:
                socket.create_connection((address, port), timeout=_ANSWERS_WITHIN).close()
            except TimeoutError:
                return f"no answer at {address} within {_ANSWERS_WITHIN:g} s"
            except OSError as problem:
                return f"no answer at {address}: {problem.strerror or problem}"
            return ""

        with ThreadPoolExecutor(max(1, min(64, len(addresses)))) as pool:
            found = dict(zip(addresses, pool.map(try_one, addresses.values()), strict=True))
        return {unit: why for unit, why in found.items() if why}

    def units_to_stay(self) -> set[str] | None:
        """Return the units of the application that Juju means to keep, by `goal-state`; None if unknown.

        `relation-list` of Juju 4.0.15 still names units that were removed, and sends no event of their removal.
        """
        try:
            said = subprocess.run(
                ["goal-state", "--format=json"],
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_GOAL_STATE_WITHIN,
            ).stdout
            match json.loads(said):
                case {"units": {**units}}:
                    return {
                        str(name)
                        for name, goal in units.items()
                        if isinstance(goal, dict) and cast("dict[str, object]", goal).get("status") != "dying"
                    }
                case _:
                    return None
        except (OSError, subprocess.SubprocessError, ValueError):
            return None

    def user(self, name: str) -> tuple[int, int] | None:
        """Return the ids of a user and its group; None if there is no such user."""
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            return None
        return entry.pw_uid, entry.pw_gid

    def is_member(self, user: str, group: str) -> bool:
        """Tell whether a user is in a group by name, beside its own group."""
        try:
            return user in grp.getgrnam(group).gr_mem
        except KeyError:
            return False

    def missing_packages(self, *packages: str) -> list[str]:
        """Return those of these packages of the distribution that are not installed."""
        if not packages:
            return []
        shown = ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *packages]
        try:
            # It fails if it knows nothing of one of them, and still shows the others.
            said = subprocess.run(
                shown, check=False, capture_output=True, text=True, timeout=_PACKAGES_WITHIN
            )
        except (OSError, subprocess.SubprocessError):
            return [*packages]
        installed = {line.removesuffix(" installed") for line in said.stdout.splitlines()}
        return [package for package in packages if package not in installed]

    def has(self, program: str) -> bool:
        """Tell whether a program of this name is on PATH."""
        return shutil.which(program) is not None
