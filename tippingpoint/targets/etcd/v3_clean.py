"""Remove what a run left in a cluster, through the v3 API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tippingpoint.targets.etcd import messages as pb
from tippingpoint.targets.etcd.access import access, unreachable
from tippingpoint.targets.etcd.grpc import MAX_MESSAGE, NOT_FOUND, PERMISSION_DENIED, RpcError
from tippingpoint.targets.etcd.http2 import ProtocolError
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.etcd.v3_calls import ask
from tippingpoint.targets.etcd.v3_cluster import Cluster
from tippingpoint.targets.etcd.v3_link import Link
from tippingpoint.util.network_errors import in_words

_AT_ONCE = 100
"""Concurrent revocations."""
_OF_A_PAGE = 5000
"""Keys that one request reads or deletes."""


async def clean_v3(target: EtcdTarget, prefix: str, lease_ids: range) -> int:
    """Revoke leases in a block of ids and delete the keys below a prefix; see `etcd.clean`."""
    read = access(target.model_copy(update={"connections": 1}), alpn="h2")
    cluster = Cluster(read, 1)
    try:
        await cluster.open(prefix)
        problems: dict[str, str] = {}
        for link in cluster.links:
            if not link.live:
                problems[link.endpoint.name] = link.problem
                continue
            try:
                return await _clean(link, prefix, lease_ids)
            except (RpcError, TimeoutError, ProtocolError) as error:
                problems[link.endpoint.name] = in_words(error)
        raise unreachable(read, problems)
    finally:
        await cluster.close("closed")


async def _clean(link: Link, prefix: str, lease_ids: range) -> int:
    start, end = prefix.encode(), pb.after_prefix(prefix.encode())
    # Read through the quorum: this member has then applied every grant, so that it lists all leases.
    ours: set[int] = set()
    async for page in _pages(link, start, end):
        ours.update(key.lease for key in page if key.lease in lease_ids)
    in_doubt: set[int] = set()
    try:
        listed = pb.leases(await ask(link, pb.LEASES, b"", 60.0, MAX_MESSAGE))
        in_doubt = {lease for lease in listed if lease in lease_ids} - ours
    except RpcError as error:
        if error.code != PERMISSION_DENIED:  # a user without that right still gets the leases of the keys
            raise
    few = asyncio.Semaphore(_AT_ONCE)

    async def is_ours(lease: int) -> bool:
        """Whether no key outside the prefix is attached to the lease: revoking it would delete that key."""
        async with few:
            try:
                request = pb.lease_time_to_live(lease)
                has = pb.lease_keys(await ask(link, pb.TIME_TO_LIVE, request, longest=MAX_MESSAGE))
            except RpcError as error:
                if error.code in (
                    PERMISSION_DENIED,
                    NOT_FOUND,
                ):  # it has keys that this user may not see, or it is gone
                    return False
                raise
            return all(key.startswith(start) for key in has)

    async def revoke(lease: int) -> bool:
        async with few:
            try:
                await ask(link, pb.REVOKE, pb.lease_revoke(lease))
            except RpcError as error:
                if error.code == NOT_FOUND:
                    return False
                raise
            return True

    doubtful = sorted(in_doubt)
    for lease, own in zip(doubtful, await asyncio.gather(*map(is_ours, doubtful)), strict=True):
        if own:
            ours.add(lease)
    revoked = await asyncio.gather(*map(revoke, sorted(ours)))
    deleted = 0
    async for page in _pages(link, start, end):
        part = pb.delete_range(page[0].key, page[-1].key + b"\0")
        deleted += pb.deleted(await ask(link, pb.DELETE_RANGE, part, within=60.0))
    return sum(revoked) + deleted


async def _pages(link: Link, start: bytes, end: bytes) -> AsyncIterator[list[pb.KeyValue]]:
    """Yield all keys from `start` to before `end`, some at a time, because one message may not hold them all."""
    while True:
        request = pb.key_range(start, end, limit=_OF_A_PAGE, keys_only=True)
        page = pb.key_values(await ask(link, pb.RANGE, request, 60.0, MAX_MESSAGE))
        if not page:
            return
        yield page
        start = page[-1].key + b"\0"
