"""The figures that a person would try by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.targets.maas.maas_stub import answering, stub_region, way_file
from tippingpoint.errors import TargetError
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.targets.maas.target import TARGET


async def test_every_list_is_timed_and_one_that_fails_is_told(tmp_path: Path) -> None:
    async with stub_region() as stub:
        for path in ("machines", "events", "tags"):
            stub.answers[f"GET api/2.0/{path}/"] = answering([])
        stub.answers["GET api/2.0/fabrics/"] = answering("no", 500)
        target = MaasTarget(kind="maas", credentials=way_file(stub.url, tmp_path))
        told = await TARGET.probe(target, None)
        assert {call.method for call in stub.calls} == {"GET"}
    assert [line.split()[0] for line in told] == ["machine-list", "event-list", "tag-list", "fabric-list:"]
    assert all(line.endswith(" ms") for line in told[:3])
    assert told[3] == "fabric-list: GET fabrics/: no (HTTP 500)"


async def test_a_region_that_refuses_the_key_is_told_once(tmp_path: Path) -> None:
    async with stub_region() as stub:
        target = MaasTarget(
            kind="maas", credentials=way_file(stub.url, tmp_path, api_key="consumer:token:other")
        )
        with pytest.raises(TargetError, match="Invalid API key"):
            await TARGET.probe(target, None)
