"""What scripts do with their arguments before anything is fetched: accept them, print help, or refuse one in a line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from lab.arguments import CERTIFICATES, HELPED, PROFILES, main
from lab.juju import store, tls

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "line",
    [
        "lab up etcd --members 5 --tls --prometheus",
        "lab up juju --profile 2.5.0 --rate-limit 10,0.25",
        "lab up incus --release 6.0.4 --cpus 1-3",
        "lab up maas --machines 0 --commissioning 0.5",
        "lab up openstack --brokers 2 --release 31 --rabbitmq 4.0",
        "lab up openstack --no-prometheus",
        "lab up pacemaker --property cluster-ipc-limit=20000 --property a=b",
        "lab releases",
        "lab releases etcd bookworm 3.6",
        'lab fault etcd SOCKET {"do":"members"}',
        "demo",
        "demo lxd --members 8 --set stages.0.hold=1s",
        "compare-etcd --set stages.6.leases=20000",
        "compare-releases etcd 3.4 3.5 --plan etcd-leases-small --cpu 0.05",
        "export-deployer --cloud bundles/overlays/maas.yaml",
    ],
)
def test_what_the_pages_show_is_accepted_in_silence(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("lab", "up "),
        ("lab -h", "fault "),
        ("lab up", "openstack"),
        ("lab up openstack --help", "--rabbitmq NAME"),
        ("lab up etcd --members 3 --help", "--prometheus"),
        ("lab fault --help", '{"do": "kill", "member": "m2"}'),
        ("demo --help", "--members N"),
        ("compare-etcd --help", "usage: compare-etcd "),
        ("compare-brokers --help", "usage: compare-brokers "),
        ("compare-releases", "--repeats N"),
        ("export-deployer --help", "juju-deployer -c clouds.yaml"),
    ],
)
def test_help_has_several_lines(line: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == HELPED
    out, err = capsys.readouterr()
    assert named in out
    assert out.count("\n") > 3
    assert err == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("lab up ectd", "lab up: argument TARGET: invalid choice: 'ectd'"),
        ("lab up etcd --member 3", "lab: unrecognized arguments: --member 3"),
        ("lab up etcd --members 0", "lab up etcd: argument --members: 0: expected 1 to 1000"),
        (
            "lab up lxd --release 9.9",
            "lab: release: lxd 9.9: expected a suite or version of Debian: bookworm",
        ),
        ("lab up openstack --rabbitmq 9", "lab: release: rabbitmq 9: expected a suite"),
        ("lab up juju --prometheus", "lab: unrecognized arguments: --prometheus"),
        ("lab up juju --rate-limit 10", "lab up juju: argument --rate-limit: 10: expected MAX,SECONDS"),
        ("lab up pacemaker --property a", "lab up pacemaker: argument --property: a: expected NAME=VALUE"),
        ("lab up maas --timeout soon", "lab up maas: argument --timeout: soon: expected a number of seconds"),
        ("lab releases etc", "lab releases: argument TARGET: invalid choice: 'etc'"),
        ("demo --members 5", "demo: options without a target: expected etcd, lxd, incus or pacemaker first"),
        ("demo etcd --set hold", "demo: argument --set: hold: expected KEY=VALUE"),
        ("compare-etcd more", "compare-etcd: unrecognized arguments: more"),
        ("compare-releases etcd 3.4 1.0 --plan P", "compare-releases: release: etcd 1.0: expected a suite"),
    ],
)
def test_a_bad_argument_is_refused_in_one_line(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(said)


def test_the_profiles_of_the_simulated_juju_are_accepted() -> None:
    assert tuple(store.PROFILES) == PROFILES
    assert get_args(tls.Certificate) == CERTIFICATES


def test_arguments_are_read_with_the_standard_library_alone() -> None:
    """Given a machine without any package (-S), as before the first fetch."""
    done = subprocess.run(
        [sys.executable, "-S", "-m", "lab.arguments", "lab", "up", "etcd"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("lab", 0),
        ("lab up openstack --help", 0),
        ("lab up openstack --helm", 2),
        ("demo --help", 0),
        ("demo etdc", 2),
        ("compare-etcd --help", 0),
        ("compare-brokers --bogus", 2),
        ("compare-releases --help", 0),
        ("export-deployer --help", 0),
        ("export-deployer --clout FILE", 2),
        ("pack --help", 0),
        ("simulate -h", 0),
        ("make-reference --help", 0),
        ("test --help", 0),
    ],
)
def test_a_script_fetches_nothing_for_help_or_a_bad_argument(line: str, code: int, tmp_path: Path) -> None:
    """Given programs that would fetch or install something, and record that they were called."""
    called = tmp_path / "called"
    for name in ("uv", "apt-get", "pip", "dpkg-deb"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho $0 >>{called}\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    script, *rest = line.split()
    done = subprocess.run(
        [ROOT / "scripts" / script, *rest],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, called.exists()) == (code, False)
    assert (done.stdout == "") == (code != 0)
    assert done.stderr.count("\n") == (code != 0)
