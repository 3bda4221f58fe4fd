"""The run's tag, as a region sees it made: in parts that it takes, and never twice at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from tests.unit.targets.maas.maas_stub import MaasStub, answering, stub_region, way_file
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.errors import MaasError
from tippingpoint.targets.maas.names import tag_name
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.targets.maas.tagging import AT_ONCE, Tagging
from tippingpoint.targets.maas.workspace import MaasWorkspace

PREFIX, RUN = "tp0123abcd", "the-run"
TAG = f"api/2.0/tags/{tag_name(PREFIX)}/"


def tagging(stub: MaasStub, directory: Path) -> tuple[Tagging, MaasClient]:
    target = MaasTarget(kind="maas", credentials=way_file(stub.url, directory))
    client = MaasClient(access(target))
    return Tagging(client, MaasWorkspace(run=RUN, prefix=PREFIX, target=target)), client


async def test_many_machines_are_tagged_in_parts_and_none_twice(tmp_path: Path) -> None:
    ids = [f"i{number}" for number in range(2 * AT_ONCE + 1)]
    async with stub_region() as stub:
        stub.answers["POST api/2.0/tags/"] = answering({})
        stub.answers[f"POST {TAG}"] = answering({"added": 1, "removed": 0})
        ours, client = tagging(stub, tmp_path)
        assert await ours.tag(ids)
        await client.close()
    assert stub.forms[0] == [("name", tag_name(PREFIX)), ("comment", f"tippingpoint {RUN}")]
    assert [len(form) for form in stub.forms[1:]] == [AT_ONCE, AT_ONCE, 1]
    assert [value for form in stub.forms[1:] for _, value in form] == ids


async def test_a_region_that_is_still_at_it_is_asked_nothing_else(tmp_path: Path) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        asked.set()
        await go.wait()
        return web.json_response({})

    async with stub_region() as stub:
        stub.answers["POST api/2.0/tags/"] = slow
        stub.answers[f"POST {TAG}"] = answering({})
        ours, client = tagging(stub, tmp_path)
        first = asyncio.create_task(ours.tag(["a"]))
        await asyncio.wait([asyncio.create_task(asked.wait())])
        assert not await ours.tag(["a"])
        assert not await ours.untag()
        go.set()
        assert await first
        await client.close()


async def test_a_tag_that_could_not_be_put_on_machines_is_removed(tmp_path: Path) -> None:
    """Given a tag that is there, of an answer that was lost, and a region that fails, then it goes all the same."""
    async with stub_region() as stub:
        stub.answers["POST api/2.0/tags/"] = answering({"name": ["Tag with this Name already exists."]}, 400)
        stub.answers[f"POST {TAG}"] = answering("could not serialize access", 500)
        stub.answers[f"DELETE {TAG}"] = answering("", 204)
        ours, client = tagging(stub, tmp_path)
        with pytest.raises(MaasError, match="could not serialize access"):
            await ours.tag(["a"])
        assert await ours.untag()
        assert not await ours.untag()
        await client.close()
