"""The action `probe` on a real cluster: it times a login, the status, an update and a ticket, and leaves nothing."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.pacemaker.cluster import PacemakerLab
from tests.functional.program import until
from tippingpoint.agent.probing import probe
from tippingpoint.errors import TargetError

VERSIONS = re.compile(r' (?:epoch|num_updates|cib-last-written|update-\w+)="[^"]*"')


def section(credentials: Path, **more: str) -> dict[str, Any]:
    return {"kind": "pacemaker", "credentials": str(credentials), "tls": "anonymous", **more}


def epoch(cib: str) -> int:
    """The version of the configuration."""
    return int(cib.partition(' epoch="')[2].partition('"')[0])


def is_settled(lab: PacemakerLab) -> bool:
    """Whether a new cluster has done what it does by itself: it starts its fencing device last."""
    now = lab.status()
    return now.idle and bool(now.resources["fence-lab"].active)


def probed(target: Mapping[str, Any]) -> list[str]:
    return asyncio.run(probe(target)).splitlines()


def test_each_request_is_timed_and_the_cib_is_as_it_was_but_for_its_versions(pacemaker: PacemakerLab) -> None:
    # Given a cluster of three, in which nothing happens any more
    until(lambda: is_settled(pacemaker), "the cluster is idle")
    before = pacemaker.cib()

    # When it is probed twice
    for _ in range(2):
        lines = probed(section(pacemaker.credentials))

    # Then each request has a time, and the status tells who is there
    login, status, update, ticket = lines
    assert re.fullmatch(rf"login [\d.]+ ms, at {pacemaker.address('node1')}:9898", login)
    assert re.fullmatch(rf"status [\d.]+ ms, \d+ bytes, 3 nodes online, DC {pacemaker.leader()}", status)
    assert re.fullmatch(r"update [\d.]+ ms", update)
    assert re.fullmatch(r"ticket [\d.]+ ms", ticket)
    # and each probe changed the configuration and changed it back, and nothing of it is left
    after = pacemaker.cib()
    assert epoch(after) == epoch(before) + 4
    assert VERSIONS.sub("", after) == VERSIONS.sub("", before)


def test_a_node_that_does_not_answer_is_left_for_the_next(pacemaker: PacemakerLab, tmp_path: Path) -> None:
    credentials = changed(pacemaker, tmp_path, addresses=["127.0.0.1", pacemaker.address("node2")])

    assert f"at {pacemaker.address('node2')}:9898" in probed(section(credentials))[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"password": "wrong"},
            "refused: expected the password of a user in the cluster's group haclient (hacluster)",
        ),
        (
            {"addresses": ["127.0.0.1"]},
            "127.0.0.1:9898: Connection refused: expected at least one node that answers",
        ),
    ],
)
def test_a_cluster_that_does_not_let_us_in_is_told_in_a_line(
    pacemaker: PacemakerLab, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(TargetError) as refused:
        probed(section(changed(pacemaker, tmp_path, **given)))

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def changed(lab: PacemakerLab, directory: Path, **fields: Any) -> Path:
    """The lab's credentials with other fields."""
    path = directory / "credentials.yaml"
    path.touch(0o600)
    path.write_text(json.dumps({**json.loads(lab.credentials.read_text()), **fields}))
    return path
