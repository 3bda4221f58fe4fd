"""MAAS's access to libvirt by SSH: a real sshd takes the key that a run lends, and gives it libvirt only."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.maas.simulator import MaasLab
from lab.ports import free_ports
from tests.functional.maas.test_maas_virtme import directories, everything, plan_of, settings
from tests.functional.program import CHECKOUT, WITHIN_S, command, until
from tests.functional.spawn_runs import crash, going, wait_for
from tests.functional.virsh import virsh

_UNPACKED = CHECKOUT / ".cache" / "packages" / "openssh-server"
_INSIDE = """
mount --bind "$1/passwd" /etc/passwd
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd /run/libvirt
ln -s "$2" /run/libvirt/libvirt-sock
exec "$3" -D -e -f "$1/sshd_config"
"""


@dataclass
class Sshd:
    """An sshd on loopback. For what runs beside it root has another home, and libvirt's socket its usual path."""

    pid: int
    port: int
    home: Path

    @property
    def keys(self) -> Path:
        return self.home / ".ssh" / "authorized_keys"

    def beside(self, *line: str | Path) -> list[str]:
        """The command line of something that is to run there."""
        return ["nsenter", f"--target={self.pid}", "--mount", f"--wd={CHECKOUT}", "--", *map(str, line)]

    def run(self, *line: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.beside(*line),
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture
def sshd(libvirt: MaasLab, tmp_path: Path) -> Iterator[Sshd]:
    """An sshd that knows a key of root's already, and whose own key root knows."""
    home, (port,) = tmp_path / "home", free_ports(1)
    (home / ".ssh").mkdir(mode=0o700, parents=True)
    for name in ("host", "theirs", "racks"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    own = (tmp_path / "host.pub").read_text()
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {own}")
    shutil.copy(tmp_path / "theirs.pub", home / ".ssh" / "authorized_keys")
    users = Path("/etc/passwd").read_text().splitlines()
    others = [line for line in users if not line.startswith(("root:", "sshd:"))]
    ours = [f"root:x:0:0:root:{home}:/bin/bash", "sshd:x:105:65534::/run/sshd:/usr/sbin/nologin"]
    (tmp_path / "passwd").write_text("\n".join([*ours, *others, ""]))
    (tmp_path / "passwd").chmod(0o644)
    parts = _UNPACKED / "usr" / "lib" / "openssh"
    split = [
        (name, parts / path)
        for name, path in (("SshdSessionPath", "sshd-session"), ("SshdAuthPath", "sshd-auth"))
    ]
    (tmp_path / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {tmp_path / 'host'}\nPidFile none\nUsePAM no\n"
        + "".join(f"{name} {path}\n" for name, path in split if path.exists())  # from OpenSSH 9.8 on
    )
    program = shutil.which("sshd") or str(_UNPACKED / "usr" / "sbin" / "sshd")
    assert libvirt.libvirt is not None
    inside = ["sh", "-e", "-c", _INSIDE, "sh", str(tmp_path), str(libvirt.libvirt.daemon.socket), program]
    libraries = ":".join(str(path) for path in (_UNPACKED / "usr" / "lib").glob("*-linux-gnu"))
    with (tmp_path / "sshd.log").open("w") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--propagation=private", *inside],
            stdin=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
        )

    def serves() -> bool:
        assert process.poll() is None, (tmp_path / "sshd.log").read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    try:
        until(serves, "sshd")
        yield Sshd(process.pid, port, home)
    finally:
        process.kill()
        process.wait(WITHIN_S)


def test_the_racks_key_reaches_libvirt_and_nothing_else_until_the_run_is_cleaned(
    libvirt: MaasLab, sshd: Sshd, tmp_path: Path
) -> None:
    # given a run that lends the racks' key
    before, keys = (everything(libvirt), directories(libvirt)), sshd.keys.read_bytes()
    host = f"root@127.0.0.1:{sshd.port}"
    key = (tmp_path / "racks.pub").read_text().strip()
    more = [f"target.made.power_address=qemu+ssh://{host}/system", f"target.made.authorized_key={key}"]
    plan, out = plan_of(tmp_path, stages=[{"instances": 2, "hold": "20m"}]), tmp_path / "run"
    line = sshd.beside(*command("run", plan, *settings(libvirt, *more), "--out", out))
    with going(subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)) as process:
        directory = wait_for(out, process, "stage", phase="hold")
        # when the racks log in with it, then they reach libvirt, in whichever way their virsh asks for it
        for proxy in ("auto", "native", "netcat"):
            address = f"qemu+ssh://{host}/system?keyfile={tmp_path / 'racks'}&proxy={proxy}"
            listed = sshd.run("virsh", "-q", "-c", address, "list", "--all", "--name")
            assert len(listed.stdout.split()) == 2, listed.stderr
        # and nothing else: no command, and no port
        ssh = ["ssh", "-i", tmp_path / "racks", "-p", str(sshd.port), "-o", "BatchMode=yes", "root@127.0.0.1"]
        assert "uid=" not in sshd.run(*ssh, "id").stdout
        assert sshd.run(*ssh, "-W", f"127.0.0.1:{sshd.port}").stdout == ""
        # when the run is killed and cleaned
        crash(process)
    assert sshd.keys.read_bytes() != keys
    done = sshd.run(*command("clean", directory))
    # then the racks are not let in any more, and the other key is as it was
    assert done.returncode == 0, done.stderr
    assert sshd.keys.read_bytes() == keys
    assert "Permission denied" in sshd.run(*ssh, "id").stderr
    assert (everything(libvirt), directories(libvirt)) == before
    assert virsh(libvirt, "list", "--all", "--name") == ""
