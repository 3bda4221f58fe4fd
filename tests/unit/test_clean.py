"""Cleaning trusts no ledger further than what its run can have made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tippingpoint.errors import UserError
from tippingpoint.grounds import RUN_LEASE_IDS, clean_entries
from tippingpoint.ledger import EtcdEntry
from tippingpoint.plan import EtcdTarget

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
