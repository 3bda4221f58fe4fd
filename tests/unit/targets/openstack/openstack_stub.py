"""A Keystone and a compute service in this process, for what real ones do not do on demand: tokens that run out within
a second or are refused, rate limits, answers that are late or garbage."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType

import yaml
from aiohttp import web

from tippingpoint.targets.openstack.access import CloudAccess, from_clouds
from tippingpoint.targets.openstack.client import OpenstackClient
from tippingpoint.targets.openstack.plan import OpenstackTarget

_numbers = itertools.count()
Answer = Callable[[web.Request], Awaitable[web.Response]]


class OpenstackStub:
    """What clients of a cloud see: `tokens` are good for `life` seconds each, `answer` is what the compute service does
    with a call whose token is good."""

    def __init__(self, directory: Path, life: float = 3600.0) -> None:
        self._directory = directory
        self._number = next(_numbers)  # so that tokens for another one are none for this
        self.life = life
        self.keystone_waits: asyncio.Event | None = None
        """What Keystone waits for before it answers."""
        self.keystone_limits = 0
        """So many questions are refused by a rate limit."""
        self.regions = ["RegionOne"]
        self.address = ""
        """Where the catalogue says that the compute service is; empty for where it is."""
        self.asked: list[str] = []
        """The methods that tokens were asked for by, with the project where one was named."""
        self.good: set[str] = set()
        """The tokens that services take."""
        self.refused = 0
        """How often a service refused a token."""
        self.calls: list[tuple[str, str]] = []
        self.answer: Answer = _nothing
        self.others: dict[str, Answer] = {}
        """What further services do, by their types: network, image, identity."""

    async def __aenter__(self) -> OpenstackStub:
        app = web.Application()
        app.router.add_post("/v3/auth/tokens", self._token)
        app.router.add_route("*", "/compute/{tail:.*}", self._compute)
        app.router.add_route("*", "/{service}/{tail:.*}", self._other)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.client = OpenstackClient(self.access)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.close()
        await self.end()

    async def end(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    def access_to(self, region: str | None) -> CloudAccess:
        """The same, to a region."""
        return replace(self.access, region=region)

    @property
    def access(self) -> CloudAccess:
        """A way in, as a clouds.yaml has it."""
        path = self._directory / "clouds.yaml"
        auth = {
            "auth_url": self.url,
            "username": "ann",
            "password": f"hush-{self._number}",
            "project_name": "shop",
        }
        path.write_text(yaml.safe_dump({"clouds": {"stub": {"auth": auth}}}))
        path.chmod(0o600)
        return from_clouds(OpenstackTarget(kind="openstack", credentials=path))

    def forget(self) -> None:
        """Take no token any more that was given so far."""
        self.good.clear()

    async def _token(self, request: web.Request) -> web.Response:
        asked = (await request.json())["auth"]
        project = asked.get("scope", {}).get("project", {}).get("id", "")
        self.asked.append(" ".join([asked["identity"]["methods"][0], project]).strip())
        if self.keystone_limits:
            self.keystone_limits -= 1
            return web.Response(status=429, headers={"Retry-After": "0"})
        if self.keystone_waits is not None:
            await self.keystone_waits.wait()
        if project and asked["identity"]["token"]["id"] not in self.good:
            return web.json_response({"error": {"message": "Could not find token"}}, status=404)
        token = f"token-{len(self.asked)}"
        self.good.add(token)
        now = datetime.now(UTC)
        urls = {service: f"{self.url}/{service}" for service in ("compute", *self.others)}
        urls |= {"compute": self.address} if self.address else {}
        body = {
            "issued_at": now.isoformat(),
            "expires_at": (now + timedelta(seconds=self.life)).isoformat(),
            "user": {"id": "ann-id"},
            "project": {"id": project or "shop-id"},
            "catalog": [
                {
                    "type": service,
                    "endpoints": [
                        {"interface": "public", "region_id": region, "url": url} for region in self.regions
                    ],
                }
                for service, url in urls.items()
            ],
        }
        return web.json_response({"token": body}, status=201, headers={"X-Subject-Token": token})

    async def _compute(self, request: web.Request) -> web.Response:
        return await self._if_good(request, self.answer)

    async def _other(self, request: web.Request) -> web.Response:
        service = request.match_info["service"].replace("v3", "identity")
        return await self._if_good(request, self.others.get(service, _nothing))

    async def _if_good(self, request: web.Request, answer: Answer) -> web.Response:
        self.calls.append((request.method, request.path))
        if request.headers.get("X-Auth-Token") not in self.good:
            self.refused += 1
            return web.json_response({"error": {"code": 401, "message": "no such token"}}, status=401)
        return await answer(request)


async def _nothing(request: web.Request) -> web.Response:
    return web.json_response({})
