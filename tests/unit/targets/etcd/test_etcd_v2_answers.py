"""What is made of an etcd's answers by API v2 that no etcd gives."""

from __future__ import annotations

import gzip
import json

import pytest
from aiohttp import web

from tests.unit.monitoring.answers import answering
from tippingpoint.errors import TargetError
from tippingpoint.targets.etcd import v2, v2_link
from tippingpoint.targets.etcd.plan import EtcdTarget


async def refused(body: bytes, **headers: str) -> str:
    """Why leases cannot be removed from a server that answers everything so."""

    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=body, headers={name.replace("_", "-"): headers[name] for name in headers})

    async with answering(handler) as url:
        with pytest.raises(TargetError) as problem:
            await v2.clean_v2(EtcdTarget(endpoints=[url], api="v2"), "/tippingpoint/run/")
    return str(problem.value)


async def test_an_answer_that_is_too_large_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v2_link, "LARGEST", 1 << 20)
    why = await refused(b" " * ((1 << 20) + 1))
    assert "an answer of more than 1 MiB" in why
    assert "\n" not in why


async def test_a_compressed_answer_is_not_unpacked() -> None:
    assert "\n" not in await refused(gzip.compress(bytes(1 << 20)), Content_Encoding="gzip")


@pytest.mark.parametrize("index", [10**400, "x", None, [1], 1.5])
async def test_an_index_that_is_none_is_no_traceback(index: object) -> None:
    body = json.dumps({"errorCode": 300, "message": "busy", "index": index}).encode()
    assert "\n" not in await refused(body, X_Etcd_Index="9" * 5000)
