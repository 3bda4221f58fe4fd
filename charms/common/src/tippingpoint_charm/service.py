"""The agent as a systemd service: its user, the copy of the pack that it runs from, and its unit files.

After a refresh of the charm, the unit file names the new copy (systemd.py) as soon as no run is in progress. Beside the
service, a .path unit watches the file by which the agent wakes its charm. It starts a oneshot service, which runs as
root and dispatches the charm's `agent_changed` event. If the .path unit fails, a timer takes its place and looks for
the file every few seconds, until a hook has repaired it.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from tippingpoint.util.authorized_keys import lend, take_back
from tippingpoint_charm.machine import Machine, MachineProblem
from tippingpoint_charm.systemd import (
    COPIES,
    HARDENED,
    PREFIX,
    PYTHON,
    UNITS,
    Copies,
    UnitFiles,
    copies_in,
    make_user,
    text_of,
)

USER = "tippingpoint"
_KEYS = "/root/.ssh/authorized_keys"

# UMask lets `juju scp`, which runs as another user, read reports. Secrets are in a directory of mode 0700.
# If the kernel kills a worker for lack of memory, the report says so, and the agent continues (OOMPolicy).
# Python cannot write beside a copy, so it keeps its bytecode in the cache directory.
_SERVICE = """\
[Unit]
Description=Tipping Point agent of {unit}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={python} -P -s -m tippingpoint agent --state /var/lib/{name} --socket /run/{name}/agent.sock \
--wake /run/{name}/wake --unit {unit} --metrics 0.0.0.0:{port}
Environment=PYTHONPATH={copies}/{copy} PYTHONPYCACHEPREFIX=/var/cache/{name}
WorkingDirectory=/var/lib/{name}
User={user}
Group={user}
StateDirectory={name}
StateDirectoryMode=0755
RuntimeDirectory={name}
RuntimeDirectoryMode=0755
CacheDirectory={name}
CacheDirectoryMode=0700
UMask=0022
LimitNOFILE=1048576
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

# PathExists, with the file removed before the hook, instead of PathChanged: news during a hook wakes the charm again.
# A juju-exec at the start of a refresh may never be answered (seen with 4.0.15). It is given up and retried before the
# unit counts as silent (run_state.silent_after).
_WAKE_PATH = """\
[Unit]
Description=Tipping Point agent of {unit} has news
OnFailure={name}-wake.timer

[Path]
PathExists=/run/{name}/wake
Unit={name}-wake.service

[Install]
WantedBy=multi-user.target
"""

# A path unit needs an inotify instance. All unprivileged containers of an LXD host share its limit
# fs.inotify.max_user_instances, 128 by default, which nine of them use up (seen with Juju 4.0.15). A timer needs none.
# It is a calendar timer, because the others are not armed again after a service whose condition was not met.
_WAKE_TIMER = """\
[Unit]
Description=Look for news of the Tipping Point agent of {unit}, as its path unit has failed

[Timer]
OnCalendar=*:*:0/10
AccuracySec=1s
Unit={name}-wake.service
"""

_WAKE_SERVICE = """\
[Unit]
Description=Wake the charm of {unit}
ConditionPathExists=/run/{name}/wake
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStartPre=/bin/rm -f /run/{name}/wake
ExecStart=/usr/bin/juju-exec -u {unit} 'JUJU_DISPATCH_PATH=hooks/agent_changed ./dispatch'
TimeoutStartSec=60
"""

_UNITS = {
    ".service": _SERVICE,
    "-wake.path": _WAKE_PATH,
    "-wake.timer": _WAKE_TIMER,
    "-wake.service": _WAKE_SERVICE,
}
_DOWN = ("failed", "inactive")
"""The states in which systemd does nothing more for a unit by itself."""
_EXHAUSTED = "Too many open files"
"""The end of what systemd logs when a path unit gets no inotify instance."""
_INOTIFY = "/proc/sys/fs/inotify/max_user_instances"


class Service:
    """The service of one unit. Its methods raise MachineProblem or OSError if the machine fails."""

    def __init__(self, machine: Machine, unit: str, port: int) -> None:
        """`unit` is the Juju unit's name, `port` the exporter's port."""
        self._machine = machine
        self._unit = unit
        self._port = port
        self._copies = Copies(machine)
        self.name = PREFIX + unit.replace("/", "-")
        self.state = machine.path(f"/var/lib/{self.name}")
        self.socket = machine.path(f"/run/{self.name}/agent.sock")

    @property
    def state_path(self) -> str:
        """The absolute path of the agent's state on the machine."""
        return f"/var/lib/{self.name}"

    @property
    def copy_path(self) -> str:
        """The path of the copy that the service runs from; empty without a service."""
        found = copies_in(text_of(self._path(".service")))
        return f"{COPIES}/{found[0]}" if found else ""

    def copy(self, pack: Path) -> str:
        """Copy the pack, completely or not at all, and return the copy's name, which is its digest."""
        return self._copies.keep(pack)

    def is_installed(self, copy: str) -> bool:
        """Tell whether the unit files for this copy are in place."""
        return self._files(copy).are_right

    def install(self, copy: str) -> None:
        """Make the service run from a copy. A running service is restarted. `repair` starts the .path unit."""
        make_user(self._machine, USER)
        self._files(copy).write()
        self._machine.run("systemctl", "enable", f"{self.name}.service", f"{self.name}-wake.path")
        self._machine.run("systemctl", "stop", f"{self.name}-wake.path")
        self._machine.run("systemctl", "restart", f"{self.name}.service")
        self._copies.prune(copy)

    def repair(self) -> str:
        """Start the service and its .path unit if they are not running, failed ones too.

        Return why news of the agent still reach the charm late, in one line; empty if they do not. Raises
        MachineProblem if the service itself cannot be started.
        """
        service, path, timer = f"{self.name}.service", f"{self.name}-wake.path", f"{self.name}-wake.timer"
        states = self._machine.unit_states(service, path, timer)
        if states[service] in _DOWN:
            self._start(service)
        late = ""
        if states[path] in _DOWN:
            try:
                self._start(path)
            except MachineProblem as problem:
                late = self._why_late(path, problem)
                self._machine.run("systemctl", "start", timer)  # in case systemd could not
        if not late and states[timer] not in _DOWN:
            self._machine.run("systemctl", "stop", timer)
        return late

    def _start(self, unit: str) -> None:
        with suppress(MachineProblem):  # it has not failed
            self._machine.run("systemctl", "reset-failed", unit)
        self._machine.run("systemctl", "start", unit)

    def _why_late(self, path: str, problem: MachineProblem) -> str:
        """Say why the .path unit does not start; systemctl itself only refers to the journal."""
        why = self._machine.last_words(path) or str(problem)
        if _EXHAUSTED not in why:
            return f"hears its agent late: {why}"
        allowed = text_of(self._machine.path(_INOTIFY)).strip()
        now = f" ({allowed})" if allowed else ""
        return f"hears its agent late: raise fs.inotify.max_user_instances{now} on its host"

    def restart(self) -> None:
        """Start the service anew."""
        self._machine.run("systemctl", "restart", f"{self.name}.service")

    def lend_libvirt(self, key: str) -> None:
        """Let whoever has this public key of SSH reach the machine's libvirt, as root; nobody any more if it is empty.

        The agent is not root, and cannot.
        """
        path, mark = self._machine.path(_KEYS), f"tippingpoint:{self._unit}"
        if key:
            lend(path, key, mark)
        else:
            take_back(path, mark)

    def remove(self, *, keep_state: bool) -> None:
        """Stop and remove the service. The last such service on a machine removes the user, too.

        With `keep_state` the state, the copy and the user stay, so that the target can be cleaned up by hand.
        """
        copies = copies_in(text_of(self._path(".service")))
        with suppress(MachineProblem):  # the service or systemd is missing
            self._machine.run(
                "systemctl", "disable", "--now",
                *(f"{self.name}{suffix}" for suffix in ("-wake.path", "-wake.timer", "-wake.service", ".service")),
            )  # fmt: skip
        for suffix in _UNITS:
            self._path(suffix).unlink(missing_ok=True)
        with suppress(MachineProblem):
            self._machine.run("systemctl", "daemon-reload")
        shutil.rmtree(self._machine.path(f"/var/cache/{self.name}"), ignore_errors=True)
        if keep_state:
            self._copies.prune(*copies)
            return
        shutil.rmtree(self.state, ignore_errors=True)
        if self._copies.remove_with_the_last() and self._machine.user(USER) is not None:
            with suppress(MachineProblem):  # a user that cannot log in and owns nothing does no harm
                self._machine.run("userdel", USER)

    def _files(self, copy: str) -> UnitFiles:
        fields = {
            "unit": self._unit,
            "name": self.name,
            "user": USER,
            "port": self._port,
            "copies": COPIES,
            "copy": copy,
            "python": PYTHON,
            "hardened": HARDENED,
        }
        texts = {f"{self.name}{suffix}": text.format_map(fields) for suffix, text in _UNITS.items()}
        return UnitFiles(self._machine, texts)

    def _path(self, suffix: str) -> Path:
        return self._machine.path(f"{UNITS}/{self.name}{suffix}")
