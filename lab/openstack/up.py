"""Runs a private OpenStack with a Prometheus that scrapes it, for `scripts/lab up openstack`.

python -m lab.openstack.up --computes 4 --brokers 2 --release trixie --rabbitmq trixie
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from lab.openstack.cloud import OpenstackLab, asked_for
from lab.program import serve
from lab.watched import watched


@dataclass(frozen=True)
class _Up:
    lab: OpenstackLab
    prometheus: str
    """The URL of Prometheus."""


def main() -> int:
    """Run both until told to end, and return the exit code."""
    make = asked_for("lab.openstack.up", "A private OpenStack, watched.")

    @contextmanager
    def up() -> Generator[_Up]:
        with make() as lab, watched(lab) as prometheus:
            yield _Up(lab, prometheus.url)

    return serve(up, _how_to)


def _how_to(up: _Up) -> str:
    lab = up.lab
    settings = " ".join(f"--set {shlex.quote(setting)}" for setting in lab.settings())
    of = f" of {lab.release.label}" if lab.release is not None else ""
    below = f", on {lab.rabbitmq}" if lab.rabbitmq else ""
    return (
        f"OpenStack is up: {len(lab.hosts)} computes{of} at {lab.auth_url}{below}\n"
        f"{lab.places.sentence()}\n"
        f"logs and data are in {lab.directory} while it runs; Ctrl-C ends it and removes all of it\n"
        f"use it:\n"
        f"  .venv/bin/tippingpoint run openstack-boot-delete-small {settings}\n"
        f"  .venv/bin/tippingpoint run openstack-fill-small {settings}\n"
        f"with ports, which Neutron's broker has messages of: --set target.network={lab.network}\n"
        f"add the resource use of brokers and services to a run's report:\n"
        f"  .venv/bin/tippingpoint collect runs/RUN --prometheus {up.prometheus}\n"
        f"look at it (clouds are tippingpoint, tippingpoint-app and admin):\n"
        f"  OS_CLIENT_CONFIG_FILE={lab.clouds} openstack --os-cloud tippingpoint server list\n"
        f"kill, start, stop or continue one of {', '.join(lab.names)}:\n"
        f'  ./scripts/lab fault openstack {lab.socket} \'{{"do": "kill", "member": "compute-1"}}\'\n'
        f"make Keystone slow; count what is in the databases:\n"
        f'  ./scripts/lab fault openstack {lab.socket} \'{{"do": "slow", "member": "keystone", "seconds": 2}}\'\n'
        f'  ./scripts/lab fault openstack {lab.socket} \'{{"do": "count"}}\''
    )


if __name__ == "__main__":
    sys.exit(main())
