"""Cleaning trusts no ledger further than what its run can have made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tippingpoint.errors import UserError
from tippingpoint.grounds import RUN_LEASE_IDS, clean_entries, model_name, name_prefix
from tippingpoint.ledger import EtcdEntry, JujuEntry
from tippingpoint.plan import EtcdTarget, JujuTarget

OWN: dict[str, Any] = {"prefix": "/tippingpoint/r1/", "first_lease_id": RUN_LEASE_IDS, "lease_ids": 2**31}


@pytest.mark.parametrize(
    "change",
    [
        {"prefix": "/"},
        {"prefix": "/tippingpoint/"},
        {"prefix": "/tippingpoint/r2/"},
        {"first_lease_id": 0},
        {"first_lease_id": RUN_LEASE_IDS + 1},
        {"lease_ids": RUN_LEASE_IDS + 1},
        {"lease_ids": 0},
    ],
)
def test_an_entry_that_names_more_than_its_run_made_is_refused(change: dict[str, Any]) -> None:
    entry = EtcdEntry(**{**OWN, **change}, target=EtcdTarget(endpoints=["http://127.0.0.1:1"]))
    with pytest.raises(UserError, match="below /tippingpoint/r1/"):
        asyncio.run(clean_entries([entry], "r1"))


PREFIX = name_prefix("r1")
OWN_UNITS: dict[str, Any] = {"prefix": PREFIX, "model": model_name(PREFIX), "made_model": True}


@pytest.mark.parametrize(
    "change",
    [
        {"prefix": ""},
        {"prefix": "tp"},
        {"prefix": name_prefix("r2")},
        {"model": "production"},
        {"model": model_name(name_prefix("r2"))},
        {"prefix": name_prefix("r2"), "model": "shared", "made_model": False},
        {"prefix": "", "model": "shared", "made_model": False},
    ],
)
def test_a_juju_entry_that_names_more_than_its_run_made_is_refused(
    change: dict[str, Any], tmp_path: Path
) -> None:
    entry = JujuEntry(**{**OWN_UNITS, **change}, target=JujuTarget(kind="juju"), store=tmp_path)
    with pytest.raises(UserError, match=f"what this run made, named {PREFIX}"):
        asyncio.run(clean_entries([entry], "r1"))


def test_a_run_that_made_nothing_on_its_controller_has_nothing_to_clean(tmp_path: Path) -> None:
    """Given a run as one agent, whose agent.conf is gone by now, then cleaning it needs nobody's help."""
    target = JujuTarget(kind="juju", identity="agent", agent=tmp_path / "gone")
    entry = JujuEntry(prefix=PREFIX, model="", made_model=False, target=target, store=None)
    assert asyncio.run(clean_entries([entry], "r1")) == 0
