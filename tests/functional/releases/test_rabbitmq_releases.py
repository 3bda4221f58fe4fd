"""RabbitMQ of another release than this machine's lets clients in, tells messages by virtual host, and ends."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from lab.rabbitmq import RabbitLab
from tests.functional.program import until
from tests.functional.releases.images import attached_to

pytestmark = pytest.mark.images


def told(lab: RabbitLab, *parts: str) -> list[str]:
    """The figures with all of these parts, as the exporter has them now."""
    with urllib.request.urlopen(lab.per_object) as answer:
        return [line for line in answer.read().decode().splitlines() if all(part in line for part in parts)]


def test_a_release_serves_in_place_of_the_machines_and_leaves_nothing() -> None:
    # given the oldest release, whose exporter has one path only
    with RabbitLab("3.8") as lab:
        assert lab.release is not None
        version = lab.release.version
        assert version.startswith("3.8.")
        # then it is what was asked for, in place of the machine's for its own processes only
        assert told(lab, "rabbitmq_build_info", f'rabbitmq_version="{version}"')
        assert Path(f"/proc/{lab.service.pid}/comm").read_text() == "beam.smp\n"
        image = lab.release.path
        assert str(image) not in Path("/proc/mounts").read_text()
        # and its messages are told by virtual host
        with lab.client("nova") as nova:
            nova.publish("conductor", 10)
            until(lambda: told(lab, "rabbitmq_channel_messages_published_total", 'vhost="nova"', " 10"))
    # and no loop device is left
    until(lambda: not attached_to(image))
