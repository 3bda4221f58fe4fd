"""How the agent's news reach the charm, by a real systemd with the charm's own unit files.

It is the systemd of a user, in namespaces of its own, in which the kernel gives out as many inotify instances as a test
says. No hook runs: a stand-in for juju-exec notes that it was called.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tippingpoint_charm.machine import Machine
from tippingpoint_charm.service import Service

from tests.functional.program import until

NAME = "tippingpoint-load-claimer-0"
_NAMESPACE = """
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/{name} $XDG_RUNTIME_DIR
chmod 700 $XDG_RUNTIME_DIR
/lib/systemd/systemd --user --log-target=console >{place}/log 2>&1 &
trap "kill $! 2>/dev/null; wait" EXIT
while IFS= read -r line; do eval "$line"; echo "done $?"; done
"""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/lib/systemd/systemd").exists() or shutil.which("unshare") is None,
    reason="needs root, systemd and unshare",
)


class Files(Machine):
    """A machine of which only files are written."""

    def run(self, *command: str, within: float = 120.0) -> None:
        pass

    def user(self, name: str) -> tuple[int, int] | None:
        return (os.getuid(), os.getgid())


class UserSystemd:
    """A systemd with the charm's unit files, and a shell beside it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        pack = place / "pack"
        (pack / "tippingpoint").mkdir(parents=True)
        machine = Files(place / "root")
        service = Service(machine, "load-claimer/0", 9477)
        service.install(service.copy(pack))
        units = machine.path("/etc/systemd/system")
        wake = units / f"{NAME}-wake.service"
        self._woken = place / "woken"
        wake.write_text(wake.read_text().replace("/usr/bin/juju-exec", f"/bin/sh -c 'echo >>{self._woken}'"))
        self._shell = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--cgroup", "--fork", "--mount-proc",
             "--kill-child", "bash", "-c", _NAMESPACE.format(name=NAME, place=place)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": "/run/user", "SYSTEMD_UNIT_PATH": f"{units}:"},
        )  # fmt: skip

    def tell(self, line: str) -> str:
        """Run a line of shell beside it, and return what it prints."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{line} 2>&1\n")
        self._shell.stdin.flush()
        said = ""
        for answer in self._shell.stdout:
            if answer.startswith("done "):
                return said
            said += answer
        raise AssertionError(f"the namespace has ended: {said}")

    def systemctl(self, *words: str) -> str:
        return self.tell(f"systemctl --user {' '.join(words)}").strip()

    def allow_inotify(self, instances: int) -> None:
        self.tell(f"echo {instances} >/proc/sys/user/max_inotify_instances")

    def state(self, suffix: str) -> str:
        return self.systemctl("show", "--property=ActiveState", "--value", f"{NAME}{suffix}")

    def agent_has_news(self) -> None:
        self.tell(f"touch /run/{NAME}/wake")

    @property
    def hooks(self) -> int:
        """How many times the charm was woken."""
        return len(self._woken.read_text().splitlines()) if self._woken.exists() else 0

    def close(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait(600)


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[UserSystemd]:
    systemd = UserSystemd(tmp_path)
    try:
        until(lambda: systemd.state("-wake.path") == "inactive", "an answer of systemd", every=0.2)
        yield systemd
    finally:
        systemd.close()


def test_news_wake_the_charm(systemd: UserSystemd) -> None:
    systemd.systemctl("start", f"{NAME}-wake.path")
    for hooks in (1, 2):
        systemd.agent_has_news()
        until(lambda hooks=hooks: systemd.hooks == hooks, "a hook", every=0.2)
    assert systemd.state("-wake.timer") == "inactive"


@pytest.mark.parametrize("already", [False, True], ids=["from the start", "while it waits"])
def test_news_wake_the_charm_when_no_inotify_instance_is_left(systemd: UserSystemd, already: bool) -> None:
    # Given a path unit that systemd gives up
    if already:
        systemd.systemctl("start", f"{NAME}-wake.path")
    systemd.allow_inotify(0)
    if already:
        systemd.agent_has_news()  # after the hook systemd has to watch anew, and cannot
        until(lambda: systemd.hooks == 1, "a hook", every=0.2)
    else:
        systemd.systemctl("start", f"{NAME}-wake.path")
    until(lambda: systemd.state("-wake.path") == "failed", "the failure", every=0.2)
    before = systemd.hooks

    # When the agent has news, then the timer wakes the charm, again and again
    for hooks in (before + 1, before + 2):
        systemd.agent_has_news()
        until(lambda hooks=hooks: systemd.hooks == hooks, "a hook", every=0.2)

    # And once there are instances, what a hook does to repair it gives the news to the path unit again
    systemd.allow_inotify(128)
    systemd.systemctl("reset-failed", f"{NAME}-wake.path")
    systemd.systemctl("start", f"{NAME}-wake.path")
    systemd.systemctl("stop", f"{NAME}-wake.timer")
    systemd.agent_has_news()
    until(lambda: systemd.hooks == before + 3, "a hook", every=0.2)
    assert systemd.state("-wake.path") == "active"
