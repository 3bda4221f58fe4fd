"""`clean` on a real etcd removes what the run made, and nothing on the word of a ledger that somebody else wrote."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.etcd.cluster import EtcdLab
from tests.functional.program import WITHIN_S, etcd_call, keys, leases
from tests.unit.play.run_directories import OTHER, RUN, clean, expect_one_line, put_run, spoilt
from tippingpoint.targets.etcd.ledger import RUN_LEASE_IDS, EtcdEntry, first_lease_id, key_prefix
from tippingpoint.targets.etcd.plan import EtcdTarget

_LIFE_S = 600
_THEIRS = 7 * RUN_LEASE_IDS
"""Where another application's lease ids begin."""


def entry_of(etcd: EtcdLab, run: str, **fields: Any) -> EtcdEntry:
    known = {"prefix": key_prefix(run), "first_lease_id": first_lease_id(run), "lease_ids": RUN_LEASE_IDS}
    target = EtcdTarget(endpoints=etcd.endpoints)
    return EtcdEntry.model_validate({**known, **fields, "target": target})


def grant(etcd: EtcdLab, lease: int, *names: str) -> None:
    """A lease with keys of these names, or without any."""
    etcd_call(etcd.endpoints[0], "/v3/lease/grant", {"ID": lease, "TTL": _LIFE_S})
    for name in names:
        put(etcd, name, lease)


def put(etcd: EtcdLab, name: str, lease: int = 0) -> None:
    key = base64.b64encode(name.encode()).decode()
    etcd_call(etcd.endpoints[0], "/v3/kv/put", {"key": key, "value": "eA==", "lease": lease})


def there(etcd: EtcdLab) -> tuple[list[int], list[str]]:
    return sorted(leases(etcd.endpoints[0])), sorted(keys(etcd.endpoints[0]))


def v2_keys(etcd: EtcdLab) -> list[str]:
    """What the other API has, which sees none of that."""

    def below(node: dict[str, Any]) -> list[str]:
        return (
            [name for each in node.get("nodes", []) for name in below(each)]
            if "dir" in node
            else [node["key"]]
        )

    with urllib.request.urlopen(f"{etcd.endpoints[0]}/v2/keys/?recursive=true", timeout=WITHIN_S) as answer:
        return sorted(below(json.load(answer)["node"]))


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdLab]:
    """One member, which has nothing but what these tests put there."""
    with EtcdLab(members=1) as lab:
        yield lab


@pytest.fixture
def others(etcd: EtcdLab) -> Iterator[tuple[list[int], list[str]]]:
    """What others have: an application, and another run."""
    grant(etcd, _THEIRS + 1, "/app/lock")
    grant(etcd, _THEIRS + 2)
    grant(etcd, first_lease_id(OTHER) + 1, f"{key_prefix(OTHER)}1")
    put(etcd, "/tippingpoint/other")
    yield there(etcd)
    for lease in leases(etcd.endpoints[0]):
        etcd_call(etcd.endpoints[0], "/v3/lease/revoke", {"ID": lease})


def test_a_block_of_another_application_is_not_the_run_s(
    etcd: EtcdLab, others: tuple[list[int], list[str]], tmp_path: Path
) -> None:
    """Given a ledger of a run whose lease ids are edited to be another application's, then its leases live."""
    whole = put_run(tmp_path / "whole", entry_of(etcd, RUN, first_lease_id=_THEIRS))
    code, out, err = clean(whole)
    assert (code, out) == (2, "")
    assert err == (
        f"tippingpoint: ledger: {RUN_LEASE_IDS} lease ids from {_THEIRS}: expected this run's, from "
        f"{first_lease_id(RUN)}\n"
    )
    assert there(etcd) == others


def test_a_lease_in_a_run_s_block_that_others_have_keys_by_stays(
    etcd: EtcdLab, others: tuple[list[int], list[str]], tmp_path: Path
) -> None:
    """Given leases in a run's own block: with a key of the run's, with none, and with one of somebody else's, as two
    of 2**22 blocks may be the same, then the first two go."""
    start = first_lease_id(RUN)
    grant(etcd, start, f"{key_prefix(RUN)}0")
    grant(etcd, start + 1)
    grant(etcd, start + 2, "/app/lock3")
    assert clean(put_run(tmp_path / "run", entry_of(etcd, RUN))) == (0, "removed 2\n", "")
    assert there(etcd) == (sorted([*others[0], start + 2]), sorted([*others[1], "/app/lock3"]))


@pytest.mark.parametrize("api", ["v2", "v3"])
def test_whatever_is_made_of_a_ledger_nothing_of_others_goes(
    etcd: EtcdLab, others: tuple[list[int], list[str]], tmp_path: Path, api: str
) -> None:
    for name in (f"{key_prefix(OTHER)}1", "/app/lock"):
        request = urllib.request.Request(f"{etcd.endpoints[0]}/v2/keys{name}", b"value=x", method="PUT")
        urllib.request.urlopen(request, timeout=WITHIN_S).close()
    own, foreign = (json.loads(entry_of(etcd, run).model_dump_json()) for run in (RUN, OTHER))
    for entry in (own, foreign):
        entry["target"]["api"] = api

    @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def never(data: st.DataObject) -> None:
        directory = put_run(tmp_path / "run", own)
        data.draw(spoilt(own, foreign))(directory)
        expect_one_line(*clean(directory))
        assert (there(etcd), v2_keys(etcd)) == (others, known)

    known = v2_keys(etcd)
    assert len(known) == 2
    never()
