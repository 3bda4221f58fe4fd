"""The etcd target on real clusters: what the claim workload is promised, by both APIs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from lab.certificates import make_certificates
from lab.etcd.cluster import EtcdLab
from lab.etcd.programs import find_etcd, flavor
from lab.ports import free_ports
from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.plan.claim import ClaimWorkload
from tippingpoint.targets.etcd.access import Scope
from tippingpoint.targets.etcd.claim import clean, connect
from tippingpoint.targets.etcd.ledger import WORKER_LEASE_IDS
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.workloads.claim.target import ClaimTarget, Holding, Led
from tippingpoint.workloads.load import TargetFacts

SOON = 300.0
_SHORT_S = 5.0
"""How long a lease lasts that is to run out."""


@pytest.fixture(params=["v3", "v2"])
def api(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def scope(request: pytest.FixtureRequest) -> Iterator[Scope]:
    """A run of its own: keys and lease ids that no other test has. The shared cluster has none of them afterwards."""
    run = uuid.uuid4()
    scope = Scope(f"/tippingpoint/{run.hex}/", (run.int % (1 << 30)) * WORKER_LEASE_IDS)
    shared = request.getfixturevalue("etcd") if "etcd" in request.fixturenames else None
    yield scope
    if shared is not None:
        ids = range(scope.lease_ids, scope.lease_ids + WORKER_LEASE_IDS)
        for api in shared.apis:
            uvloop.run(clean(target_of(shared, api), scope.prefix, ids))


def target_of(lab: EtcdLab, api: str, **fields: Any) -> EtcdTarget:
    known = {"ca": lab.ca, "cert": lab.cert, "key": lab.key, "credentials": lab.credentials}
    return EtcdTarget.model_validate({"endpoints": lab.endpoints, "api": api, **known, **fields})


@asynccontextmanager
async def opened(target: EtcdTarget, scope: Scope, claim_time: float = 600.0) -> AsyncIterator[ClaimTarget]:
    workload = ClaimWorkload(claim_time=claim_time, renew_time=claim_time / 2)
    claims = connect(target, workload, scope)
    await claims.open()
    try:
        yield claims
    finally:
        await claims.close()


async def held(future: Awaitable[Holding | None]) -> Holding:
    async with asyncio.timeout(SOON):
        holding = await future
    assert holding is not None
    return holding


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that only polling can see."""
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        await asyncio.sleep(0.02)


class Released:
    """Counts the calls of a `released` callback and lets a test wait for the first."""

    def __init__(self) -> None:
        self.calls = 0
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self.calls += 1
        self._event.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self._event.wait(), SOON)


class Admin:
    """Somebody else at the same cluster, by etcd's JSON gateway and its v2 API."""

    def __init__(self, endpoint: str, api: str) -> None:
        self.endpoint = endpoint
        self.api = api

    def value(self, key: str) -> str | None:
        if self.api == "v2":
            try:
                return self._http("GET", f"/v2/keys{key}?quorum=true")["node"]["value"]
            except urllib.error.HTTPError as answer:
                if answer.code != 404:
                    raise
                return None
        found = self._http("POST", "/v3/kv/range", {"key": _base64(key)}).get("kvs", [])
        return base64.b64decode(found[0]["value"]).decode() if found else None

    def put(self, key: str, value: str) -> None:
        if self.api == "v2":
            self._http("PUT", f"/v2/keys{key}?value={value}")
        else:
            self._http("POST", "/v3/kv/put", {"key": _base64(key), "value": _base64(value)})

    def delete(self, key: str) -> None:
        if self.api == "v2":
            self._http("DELETE", f"/v2/keys{key}")
        else:
            self._http("POST", "/v3/kv/deleterange", {"key": _base64(key)})

    def take_away(self, key: str) -> None:
        """End the lease behind a key, by force."""
        if self.api == "v2":
            self.delete(key)
        else:
            kv = self._http("POST", "/v3/kv/range", {"key": _base64(key)})["kvs"][0]
            self._http("POST", "/v3/lease/revoke", {"ID": kv["lease"]})

    def compact(self) -> None:
        """Have v3 forget the past."""
        revision = self._http("POST", "/v3/kv/range", {"key": _base64("/")})["header"]["revision"]
        self._http("POST", "/v3/kv/compaction", {"revision": revision, "physical": True})

    def leases(self, scope: Scope) -> int:
        """How many v3 leases of a run exist."""
        listed = self._http("POST", "/v3/lease/leases", {}).get("leases", [])
        return sum(
            scope.lease_ids <= int(lease["ID"]) < scope.lease_ids + WORKER_LEASE_IDS for lease in listed
        )

    def _http(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.endpoint + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=SOON) as response:
            return json.load(response)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def admin(etcd: EtcdLab, api: str) -> Admin:
    return Admin(etcd.endpoints[0], api)


# --- one lease's life


def test_opening_tells_what_is_tested(etcd: EtcdLab, api: str, scope: Scope) -> None:
    said = subprocess.run([find_etcd(), "--version"], capture_output=True, text=True, check=True).stdout
    version = said.split("etcd Version: ")[1].split()[0]

    async def run() -> None:
        claims = connect(target_of(etcd, api), ClaimWorkload(), scope)
        facts = await claims.open()
        await claims.close()
        assert (facts.kind, facts.version, facts.members) == ("etcd", f"{version} ({api} API)", etcd.names)

    uvloop.run(run())


def test_the_first_claim_is_granted_and_others_are_denied(
    etcd: EtcdLab, api: str, scope: Scope, admin: Admin
) -> None:
    async def run() -> None:
        async with opened(target_of(etcd, api, connections=2), scope) as claims:
            holding = await held(claims.claim(7, 2))
            assert (holding.lease, holding.holder) == (7, 2)
            assert admin.value(f"{scope.prefix}7") == "7/2"
            assert await asyncio.gather(*(claims.claim(7, holder) for holder in (0, 1, 2, 3))) == [None] * 4
            assert admin.value(f"{scope.prefix}7") == "7/2"
            if api == "v3":  # the leases that the four did not get to use are gone
                await until(lambda: admin.leases(scope) == 1)

    uvloop.run(run())


def test_a_thousand_contenders_leave_one_holder_for_each_lease(etcd: EtcdLab, api: str, scope: Scope) -> None:
    async def run() -> None:
        async with opened(target_of(etcd, api, connections=2), scope) as claims:
            answers = await asyncio.gather(*(claims.claim(i // 3, i % 3) for i in range(999)))
            holdings = [answer for answer in answers if answer is not None]
            assert sorted(holding.lease for holding in holdings) == list(range(333))
            assert await asyncio.gather(*map(claims.extend, holdings)) == [True] * 333
            await asyncio.gather(*map(claims.release, holdings))

    uvloop.run(run())


def test_a_lease_lives_as_long_as_it_is_extended(etcd: EtcdLab, api: str, scope: Scope, admin: Admin) -> None:
    async def run() -> None:
        async def outlives(claims: ClaimTarget, holding: Holding) -> bool:
            """Whether a lease lives for longer than a claim lasts; one that a machine that stood still has extended too
            late need not."""
            extended = time.monotonic()
            for _ in range(5):
                await asyncio.sleep(1.6)
                now = time.monotonic()
                if await claims.extend(holding) is False:
                    assert time.monotonic() - extended >= _SHORT_S
                    return False
                extended = now
            value = admin.value(f"{scope.prefix}1")
            assert value == "1/0" or time.monotonic() - extended >= _SHORT_S
            return value == "1/0"

        async with opened(target_of(etcd, api), scope, claim_time=_SHORT_S) as claims:
            while not await outlives(claims, holding := await held(claims.claim(1, 0))):
                pass
            await until(lambda: admin.value(f"{scope.prefix}1") is None)
            assert await claims.extend(holding) is False

    uvloop.run(run())


def test_a_lease_taken_away_is_lost(etcd: EtcdLab, api: str, scope: Scope, admin: Admin) -> None:
    async def run() -> None:
        async with opened(target_of(etcd, api), scope) as claims:
            holdings = [await held(claims.claim(lease, 0)) for lease in range(6)]
            for lease in (1, 4):
                admin.take_away(f"{scope.prefix}{lease}")
            answers = await asyncio.gather(*map(claims.extend, holdings))
            assert answers == [True, False, True, True, False, True]
            await claims.release(holdings[1])  # it is free already: nothing to complain about

    uvloop.run(run())


# --- waiting for a release


def test_a_release_calls_every_unit_that_waits_once(etcd: EtcdLab, api: str, scope: Scope) -> None:
    async def run() -> None:
        async with opened(target_of(etcd, api, connections=2), scope) as claims:
            holding, other = await held(claims.claim(1, 0)), await held(claims.claim(2, 0))
            waiting = [Released() for _ in range(8)]
            bystander, gone = Released(), Released()
            for holder, released in enumerate(waiting, 1):
                assert await claims.claim(1, holder) is None
                claims.watch_release(1, holder, released)
            for lease, released in ((2, bystander), (1, gone)):
                assert await claims.claim(lease, 9) is None
                claims.watch_release(lease, 9, released)
            claims.unwatch(1, 9)
            claims.unwatch(1, 9)
            assert await claims.extend(holding) is True
            await claims.release(holding)
            await asyncio.gather(*(released.wait() for released in waiting))
            again = await held(claims.claim(1, 5))
            await claims.release(again)
            await claims.release(other)
            await bystander.wait()
            assert [released.calls for released in waiting] == [1] * 8
            assert (bystander.calls, gone.calls) == (1, 0)

    uvloop.run(run())


def test_a_release_before_the_watch_is_not_missed(etcd: EtcdLab, api: str, scope: Scope) -> None:
    async def run() -> None:
        async with opened(target_of(etcd, api), scope) as claims:
            holding = await held(claims.claim(1, 0))
            assert await claims.claim(1, 1) is None
            await claims.release(holding)
            released, undenied = Released(), Released()
            claims.watch_release(1, 1, released)
            claims.watch_release(1, 2, undenied)
            await released.wait()
            await undenied.wait()
            assert (released.calls, undenied.calls) == (1, 1)

    uvloop.run(run())


def test_a_unit_that_was_never_denied_waits_too(etcd: EtcdLab, api: str, scope: Scope) -> None:
    async def run() -> None:
        async with opened(target_of(etcd, api), scope) as claims:
            holding = await held(claims.claim(1, 0))
            released = Released()
            claims.watch_release(1, 1, released)
            assert await claims.extend(holding) is True
            await asyncio.gather(*(claims.claim(1, 2) for _ in range(5)))
            assert released.calls == 0
            await claims.release(holding)
            await released.wait()

    uvloop.run(run())


def test_an_expiry_is_a_release(etcd: EtcdLab, api: str, scope: Scope) -> None:
    async def run() -> None:
        async with opened(target_of(etcd, api), scope, claim_time=_SHORT_S) as claims:
            claimed = time.monotonic()
            await held(claims.claim(1, 0))
            asked = time.monotonic()
            while (
                await claims.claim(1, 1) is not None
            ):  # as the machine stood still for as long as a lease lasts
                assert time.monotonic() - claimed >= _SHORT_S
                claimed = asked
                asked = time.monotonic()
            released = Released()
            claims.watch_release(1, 1, released)
            await released.wait()
            await held(claims.claim(1, 1))

    uvloop.run(run())


def test_a_release_that_v3_has_compacted_away_counts_as_one(etcd_private: EtcdLab, scope: Scope) -> None:
    admin = Admin(etcd_private.endpoints[0], "v3")

    async def run() -> None:
        async with opened(target_of(etcd_private, "v3"), scope) as claims:
            holding = await held(claims.claim(1, 0))
            assert await claims.claim(1, 1) is None
            await claims.release(holding)
            admin.put("/elsewhere", "1")
            admin.compact()
            released = Released()
            claims.watch_release(1, 1, released)
            await released.wait()
            assert released.calls == 1

    uvloop.run(run())


def test_a_release_while_the_watched_member_was_down_is_not_missed(
    etcd_private: EtcdLab, api: str, scope: Scope
) -> None:
    lab = etcd_private
    admin = Admin(lab.endpoints[1], api)

    async def run() -> None:
        target = target_of(lab, api, endpoints=lab.endpoints[:1])
        async with opened(target, scope) as claims:
            await held(claims.claim(1, 0))
            assert await claims.claim(1, 1) is None
            released = Released()
            claims.watch_release(1, 1, released)
            lab.kill("m1")
            lab.leader()
            admin.take_away(f"{scope.prefix}1")
            for number in range(1100):  # more than the v2 API remembers
                admin.put("/elsewhere", str(number))
            lab.start("m1")
            await released.wait()
            assert released.calls == 1

    uvloop.run(run())


# --- members that fail


def test_when_a_member_is_killed_its_holders_move_to_the_others(
    etcd_private: EtcdLab, api: str, scope: Scope
) -> None:
    async def run() -> None:
        lab = etcd_private
        victim = next(name for name in lab.names if name != lab.leader())
        port = lab.endpoints[lab.names.index(victim)].removeprefix("http://")
        async with opened(target_of(lab, api), scope) as claims:
            holdings = await asyncio.gather(*(held(claims.claim(lease, 0)) for lease in range(60)))
            waiting = [Released() for _ in holdings]
            for lease, released in enumerate(waiting):
                assert await claims.claim(lease, 1) is None
                claims.watch_release(lease, 1, released)
            lab.stop(victim)  # so that some operations are under way there when it dies
            under_way = [claims.extend(holding) for holding in holdings]
            lab.kill(victim)
            ended = await asyncio.wait_for(asyncio.gather(*under_way, return_exceptions=True), SOON)
            failures = {str(error) for error in ended if isinstance(error, OperationFailed)}
            assert all(answer is True or isinstance(answer, OperationFailed) for answer in ended)
            assert failures
            assert all(failure.startswith(f"{port}: ") and "\n" not in failure for failure in failures)

            after = await asyncio.gather(*map(claims.extend, holdings), return_exceptions=True)
            if api == "v2":  # whose sockets learn of the death one by one
                after = await asyncio.gather(*map(claims.extend, holdings), return_exceptions=True)
            assert after == [True] * 60
            await asyncio.gather(*map(claims.release, holdings))
            await asyncio.gather(*(released.wait() for released in waiting))
            assert [released.calls for released in waiting] == [1] * 60

    uvloop.run(run())


def test_a_connection_is_made_again_when_its_server_is_back(
    new_etcd: Callable[..., EtcdLab], api: str, scope: Scope
) -> None:
    async def run() -> None:
        lab = new_etcd(members=1)
        async with opened(target_of(lab, api, connections=2), scope) as claims:
            holding = await held(claims.claim(1, 0))
            assert await claims.claim(1, 1) is None
            released = Released()
            claims.watch_release(1, 1, released)
            lab.kill("m1")
            async with asyncio.timeout(SOON):
                with pytest.raises(OperationFailed, match=r"^127\.0\.0\.1:\d+: [Cc]on"):
                    await claims.extend(holding)
                with pytest.raises(OperationFailed, match=r"^127\.0\.0\.1:\d+: [Cc]on"):
                    await claims.claim(2, 0)
                with pytest.raises(OperationFailed, match=r"^127\.0\.0\.1:\d+: [Cc]on"):
                    await claims.release(holding)
            lab.start("m1")
            async with asyncio.timeout(SOON):
                while True:
                    try:
                        extended = await claims.extend(holding)
                        break
                    except OperationFailed:
                        await asyncio.sleep(0.05)
            assert extended is True
            await claims.release(holding)
            await released.wait()

    uvloop.run(run())


def test_without_a_quorum_claims_fail_or_wait_and_then_work_again(
    etcd_private: EtcdLab, api: str, scope: Scope
) -> None:
    async def run() -> None:
        lab = etcd_private
        async with opened(target_of(lab, api), scope) as claims:
            holding = await held(claims.claim(1, 0))
            for name in lab.names[1:]:
                lab.kill(name)
            pending = [claims.claim(lease, 0) for lease in range(10, 30)]
            done, waiting = await asyncio.wait(pending, timeout=2.0)
            assert all(isinstance(future.exception(), OperationFailed) for future in done)
            for future in waiting:
                future.cancel()
            lab.start(lab.names[1])
            async with asyncio.timeout(SOON):
                while True:
                    try:
                        again = await asyncio.wait_for(claims.claim(99, 0), 20.0)
                        break
                    except (OperationFailed, TimeoutError):
                        await asyncio.sleep(0.05)
                while True:
                    try:
                        extended = await asyncio.wait_for(claims.extend(holding), 20.0)
                        break
                    except (OperationFailed, TimeoutError):
                        await asyncio.sleep(0.05)
            assert again is not None or await claims.claim(99, 1) is None  # an earlier try may have arrived
            assert extended is True

    uvloop.run(run())


def test_a_stalled_server_answers_late_and_in_full(
    new_etcd: Callable[..., EtcdLab], api: str, scope: Scope
) -> None:
    async def run() -> None:
        lab = new_etcd(members=1)
        async with opened(target_of(lab, api), scope) as claims:
            holdings = await asyncio.gather(*(held(claims.claim(lease, 0)) for lease in range(20)))
            lab.stop("m1")
            extensions = [claims.extend(holding) for holding in holdings]
            done, _ = await asyncio.wait(extensions, timeout=0.5)
            assert not done
            extensions[3].cancel()
            lab.resume("m1")
            answers = await asyncio.wait_for(asyncio.gather(*extensions, return_exceptions=True), SOON)
            assert answers[:3] + answers[4:] == [True] * 19
            assert await claims.extend(holdings[3]) is True  # its late answer is not taken for this one

    uvloop.run(run())


def test_an_endpoint_that_is_down_does_not_keep_the_others_from_being_used(
    etcd: EtcdLab, api: str, scope: Scope
) -> None:
    async def run() -> None:
        dead = f"http://127.0.0.1:{free_ports(1)[0]}"
        target = target_of(etcd, api, endpoints=[dead, *etcd.endpoints])
        async with opened(target, scope) as claims:
            holdings = await asyncio.gather(*(held(claims.claim(lease, 0)) for lease in range(20)))
            assert await asyncio.gather(*map(claims.extend, holdings)) == [True] * 20

    uvloop.run(run())


# --- drop, close, cancel


def test_drop_releases_nothing_and_connects_afresh(
    etcd: EtcdLab, api: str, scope: Scope, admin: Admin
) -> None:
    async def run() -> None:
        async with opened(target_of(etcd, api), scope) as claims:
            await held(claims.claim(1, 0))
            assert await claims.claim(1, 1) is None
            released = Released()
            claims.watch_release(1, 1, released)
            under_way = [claims.claim(lease, 0) for lease in range(100, 140)]
            await claims.drop()
            ended = await asyncio.wait_for(asyncio.gather(*under_way, return_exceptions=True), SOON)
            assert all(isinstance(end, Holding | OperationFailed) for end in ended)
            assert admin.value(f"{scope.prefix}1") == "1/0"
            assert await claims.claim(1, 0) is None
            await held(claims.claim(2, 0))
            admin.take_away(f"{scope.prefix}1")
            await held(claims.claim(1, 2))
            assert released.calls == 0  # a restarted unit does not know that it waited

    uvloop.run(run())


def test_after_close_nothing_is_left_hanging(etcd: EtcdLab, api: str, scope: Scope) -> None:
    async def run() -> None:
        async with opened(target_of(etcd, api), scope) as claims:
            holding = await held(claims.claim(1, 0))
            under_way = [
                *(claims.claim(lease, 0) for lease in range(50, 70)),
                *(claims.extend(holding) for _ in range(20)),
            ]
            await claims.close()
            later = [claims.claim(2, 0), claims.extend(holding), claims.release(holding)]
            ended = await asyncio.wait_for(asyncio.gather(*under_way, *later, return_exceptions=True), SOON)
            assert {type(end) for end in ended[-3:]} == {OperationFailed}
            assert all(isinstance(end, Holding | bool | OperationFailed) for end in ended)

    uvloop.run(run())


def test_a_cancelled_v3_claim_leaves_no_lease(etcd: EtcdLab, scope: Scope) -> None:
    admin = Admin(etcd.endpoints[0], "v3")

    async def run() -> None:
        async with opened(target_of(etcd, "v3"), scope) as claims:
            for delay in (0.0, 0.0005, 0.001, 0.002, 0.004):
                future = claims.claim(1, 0)
                await asyncio.sleep(delay)
                if not future.done():
                    future.cancel()
                else:
                    await claims.release(await held(future))
                await until(lambda: admin.leases(scope) == 0)
                await until(lambda: admin.value(f"{scope.prefix}1") is None)

    uvloop.run(run())


# --- clean


def test_clean_removes_a_runs_keys_and_leases_and_no_others(
    etcd: EtcdLab, api: str, scope: Scope, admin: Admin
) -> None:
    neighbour = Scope(scope.prefix[:-1] + "0/", scope.lease_ids + WORKER_LEASE_IDS)

    async def run() -> None:
        target = target_of(etcd, api)
        async with opened(target, scope) as claims, opened(target, neighbour) as others:
            for lease in range(5):
                await held(claims.claim(lease, 0))
            theirs = await held(others.claim(1, 0))
            admin.put(f"{scope.prefix}left", "behind")
            ids = range(scope.lease_ids, scope.lease_ids + WORKER_LEASE_IDS)
            assert await clean(target, scope.prefix, ids) == 6
            assert admin.value(f"{scope.prefix}3") is None
            assert admin.value(f"{scope.prefix}left") is None
            assert await others.extend(theirs) is True
            assert await clean(target, scope.prefix, ids) == 0
            if api == "v3":
                assert (admin.leases(scope), admin.leases(neighbour)) == (0, 1)
            await others.release(theirs)

    uvloop.run(run())


def test_clean_finds_a_v3_lease_that_has_no_key(etcd: EtcdLab, scope: Scope) -> None:
    admin = Admin(etcd.endpoints[0], "v3")

    async def run() -> None:
        target = target_of(etcd, "v3")
        async with opened(target, scope) as claims:
            await held(claims.claim(1, 0))
        admin.delete(f"{scope.prefix}1")
        assert admin.leases(scope) == 1
        assert (
            await clean(target, scope.prefix, range(scope.lease_ids, scope.lease_ids + WORKER_LEASE_IDS)) == 1
        )
        assert admin.leases(scope) == 0

    uvloop.run(run())


# --- TLS, users, and being refused


@pytest.fixture(scope="module")
def secure() -> Iterator[EtcdLab]:
    """One member that wants a client certificate and a login."""
    with EtcdLab(members=1, tls=True, auth=True) as lab:
        yield lab


def refused(target: EtcdTarget, scope: Scope) -> str:
    """The one line with which a target is refused."""

    async def run() -> str:
        with pytest.raises(TargetError) as refusal:
            async with opened(target, scope):
                pass
        line = str(refusal.value)
        assert "\n" not in line
        return line

    return uvloop.run(run())


def test_with_a_certificate_and_a_login_everything_works(secure: EtcdLab, api: str, scope: Scope) -> None:
    async def run() -> None:
        # Few: for the v2 API etcd hashes the password anew for every request, some 60 ms of its CPU.
        target = target_of(secure, api, connections=2)
        async with opened(target, scope) as claims:
            holdings = await asyncio.gather(*(held(claims.claim(lease, 0)) for lease in range(10)))
            assert await asyncio.gather(*map(claims.extend, holdings)) == [True] * 10
            assert await claims.claim(1, 1) is None
            released = Released()
            claims.watch_release(1, 1, released)
            await claims.release(holdings[1])
            await released.wait()
        ids = range(scope.lease_ids, scope.lease_ids + WORKER_LEASE_IDS)
        assert await clean(target, scope.prefix, ids) == 9

    uvloop.run(run())


@contextmanager
def status_for_administrators(lab: EtcdLab) -> Iterator[str]:
    """The lab as etcd 3.5.30 is: a proxy has it take Maintenance/Status for HashKV, which it refuses to a user.

    Headers are sent as literals (http2.header_block), and both names are as long: its answer is etcd's own.
    """
    host, port = lab.endpoints[0].removeprefix("http://").split(":")
    loop, started, ending = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    where: list[int] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data.replace(b"Maintenance/Status", b"Maintenance/HashKV"))
                await writer.drain()
        writer.close()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    async def serve() -> None:
        async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
            where.append(server.sockets[0].getsockname()[1])
            started.set()
            await ending.wait()
            server.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert started.wait(SOON)
    try:
        yield f"http://127.0.0.1:{where[0]}"
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(SOON)


def test_a_user_who_may_not_ask_for_the_status_is_served(
    new_etcd: Callable[..., EtcdLab], scope: Scope
) -> None:
    """Given etcd 3.5.30, which refuses Maintenance/Status to a user, then the run opens, knows the version, and asks
    no further who leads."""
    lab = new_etcd(members=1, auth=True)

    async def run(endpoint: str) -> TargetFacts:
        target = target_of(lab, "v3", endpoints=[endpoint], connections=1)
        claims = connect(target, ClaimWorkload(claim_time=60.0, renew_time=30.0), scope)
        facts = await claims.open()
        try:
            holding = await held(claims.claim(1, 0))
            assert await claims.extend(holding)
            await claims.release(holding)
            assert isinstance(claims, Led)
            leaders.append(await claims.leader())
        finally:
            await claims.close()
        return facts

    leaders: list[str | None] = []
    with status_for_administrators(lab) as endpoint:
        there = uvloop.run(run(endpoint))
    straight = uvloop.run(run(lab.endpoints[0]))

    assert leaders[0] is None  # the second is None too on 3.5.30 itself
    assert there == straight
    assert there.version.startswith("3.")


@pytest.fixture
def strangers(tmp_path: Path) -> dict[str, Path]:
    """Good-looking files that the lab's servers have never heard of."""
    made = make_certificates(tmp_path, "stranger")
    credentials = tmp_path / "credentials.yaml"
    credentials.touch(0o600)
    credentials.write_text("username: loadclaimer\npassword: S3cret-and-wrong\n")
    return {"ca": made.ca, "cert": made.client_cert, "key": made.client_key, "credentials": credentials}


def test_a_server_of_another_authority_is_refused(
    secure: EtcdLab, api: str, scope: Scope, strangers: dict[str, Path]
) -> None:
    line = refused(target_of(secure, api, ca=strangers["ca"]), scope)
    assert line.startswith("target.ca: 127.0.0.1:")
    assert "the authority that signed" in line


def test_a_client_certificate_of_another_authority_is_named(
    secure: EtcdLab, api: str, scope: Scope, strangers: dict[str, Path]
) -> None:
    line = refused(target_of(secure, api, cert=strangers["cert"], key=strangers["key"]), scope)
    assert line.startswith("target.cert/target.key: 127.0.0.1:")


def test_a_missing_client_certificate_is_named(secure: EtcdLab, api: str, scope: Scope) -> None:
    line = refused(target_of(secure, api, cert=None, key=None), scope)
    assert line.startswith("target.cert: 127.0.0.1:")


def test_a_wrong_password_is_named_and_not_shown(
    secure: EtcdLab, api: str, scope: Scope, strangers: dict[str, Path]
) -> None:
    line = refused(target_of(secure, api, credentials=strangers["credentials"]), scope)
    assert line.startswith("target.credentials: 127.0.0.1:")
    assert "S3cret" not in line


def test_a_missing_login_is_named(new_etcd: Callable[..., EtcdLab], api: str, scope: Scope) -> None:
    line = refused(target_of(new_etcd(members=1, auth=True), api, credentials=None), scope)
    assert line.startswith("target.credentials: 127.0.0.1:")


def test_keys_that_the_user_may_not_use_are_named(secure: EtcdLab, api: str) -> None:
    line = refused(target_of(secure, api), Scope("/elsewhere/", 1))
    assert line.startswith("target.credentials: 127.0.0.1:")
    assert "/elsewhere/" in line


def test_the_wrong_scheme_is_named(etcd: EtcdLab, secure: EtcdLab, api: str, scope: Scope) -> None:
    plain = secure.endpoints[0].replace("https", "http")
    line = refused(target_of(secure, api, endpoints=[plain]), scope)
    assert line.startswith("target.endpoints: 127.0.0.1:")
    assert "expected https://" in line
    line = refused(target_of(etcd, api, endpoints=[etcd.endpoints[0].replace("http", "https")]), scope)
    assert line.startswith("target.endpoints: 127.0.0.1:")
    assert "expected http://" in line


def test_a_name_that_the_certificate_lacks_is_refused(secure: EtcdLab, api: str, scope: Scope) -> None:
    elsewhere = secure.endpoints[0].replace("127.0.0.1", "127.0.0.2")
    line = refused(target_of(secure, api, endpoints=[elsewhere]), scope)
    assert line.startswith("target.endpoints: 127.0.0.2:")


def test_a_login_survives_the_server_forgetting_it(
    new_etcd: Callable[..., EtcdLab], api: str, scope: Scope
) -> None:
    async def run() -> None:
        lab = new_etcd(members=1, auth=True)
        async with opened(target_of(lab, api), scope) as claims:
            holding = await held(claims.claim(1, 0))
            lab.kill("m1")
            lab.start("m1")  # which knows the tokens it gave out no longer
            async with asyncio.timeout(SOON):
                while True:
                    try:
                        other = await claims.claim(2, 0)
                        break
                    except OperationFailed as failure:
                        said = str(failure).lower()
                        if "connection" not in said and "pipe" not in said:  # no lost connection: a login
                            raise
                        await asyncio.sleep(0.05)
            assert other is not None
            assert await claims.extend(holding) is True
            assert await claims.claim(1, 1) is None
            released = Released()
            claims.watch_release(1, 1, released)
            await claims.release(holding)
            await released.wait()

    uvloop.run(run())


@pytest.mark.parametrize("field", ["credentials", "key"])
def test_a_secret_that_others_can_read_is_refused(
    secure: EtcdLab, api: str, scope: Scope, strangers: dict[str, Path], field: str
) -> None:
    strangers[field].chmod(0o640)
    target = target_of(secure, api, cert=strangers["cert"], key=strangers["key"])
    target = target.model_copy(update={field: strangers[field]})
    with pytest.raises(UserError, match=rf"^target\.{field}: .*mode 0600"):
        connect(target, ClaimWorkload(), scope)


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"credentials": "password: x\n"}, "target.credentials"),
        ({"credentials": "username: [\n"}, "target.credentials"),
        ({"credentials": "username: u\npassword: 12345\n"}, "target.credentials"),
        ({"ca": "no certificate"}, "target.ca"),
        ({"cert": "no certificate"}, "target.cert/target.key"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(
    etcd: EtcdLab, scope: Scope, strangers: dict[str, Path], content: dict[str, str], field: str
) -> None:
    for name, text in content.items():
        strangers[name].write_text(text)
    target = target_of(etcd, "v3", endpoints=["https://127.0.0.1:1"], **strangers)
    with pytest.raises(UserError, match=f"^{field}: ") as refusal:
        connect(target, ClaimWorkload(), scope)
    assert "\n" not in str(refusal.value)
    assert "12345" not in str(refusal.value)


def test_no_server_at_all_is_one_line(api: str, scope: Scope) -> None:
    ports = free_ports(2)
    target = EtcdTarget.model_validate(
        {"endpoints": [f"http://127.0.0.1:{port}" for port in ports], "api": api}
    )
    line = refused(target, scope)
    assert line.startswith(
        f"target.endpoints: 127.0.0.1:{ports[0]}: Connection refused; 127.0.0.1:{ports[1]}"
    )

    async def run() -> None:
        with pytest.raises(TargetError, match=r"^target\.endpoints: .*Connection refused"):
            await clean(target, scope.prefix, range(1))

    uvloop.run(run())


def test_a_server_without_the_v2_api_is_told_apart(tmp_path: Path, scope: Scope) -> None:
    client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
    binary = find_etcd()
    command = [binary, "--data-dir", tmp_path / "m", "--log-level=error"]
    command += ["--enable-v2=false"] if "v2" in flavor(binary).apis else []
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    command += ["--initial-cluster", f"default={peer}"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ)
    try:
        target = EtcdTarget(endpoints=[client], api="v3")

        async def ready() -> None:
            async with asyncio.timeout(SOON):
                while True:
                    try:
                        async with opened(target, scope) as claims:
                            await claims.claim(1, 0)
                            return
                    except (TargetError, OperationFailed):
                        await asyncio.sleep(0.05)

        uvloop.run(ready())
        line = refused(target.model_copy(update={"api": "v2"}), scope)
        assert line.startswith("target.api: v2: ")
        assert line.endswith(
            "has no v2 API: expected etcd 3.5 or earlier that was started with --enable-v2, or v3"
        )
    finally:
        server.kill()
        server.wait(SOON)
