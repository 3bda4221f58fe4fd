"""A client of a MAAS region that knows nothing of ours: plain aiohttp, with OAuth 1 PLAINTEXT."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import aiohttp

from lab.maas.simulator import MaasLab

Fields = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Address:
    """Where a region is, with an API key of its administrator. `ca` are the certificates of its authority (PEM)."""

    url: str
    key: str = field(repr=False)
    ca: str | None

    @classmethod
    def of(cls, lab: MaasLab) -> Address:
        """A lab's region."""
        return cls(lab.url, lab.key, lab.ca.read_text() if lab.ca else None)


class Region:
    """Calls of one region with one API key; None for none. Paths are below /MAAS/api/2.0/."""

    def __init__(self, where: MaasLab | Address, key: str | None = "") -> None:
        address = where if isinstance(where, Address) else Address.of(where)
        self._api = f"{address.url}/api/2.0/"
        self._key = address.key if key == "" else key
        tls = ssl.create_default_context(cadata=address.ca) if address.ca else True
        self._connector = lambda: aiohttp.TCPConnector(ssl=tls)

    async def __aenter__(self) -> Region:
        self.http = aiohttp.ClientSession(connector=self._connector())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.close()

    async def call(
        self, method: str, path: str, data: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return the status, and the answer: parsed if it is JSON."""
        status, answer, _ = await self.answer(method, path, data, headers)
        return status, answer

    async def answer(
        self, method: str, path: str, data: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Return the status, the answer, parsed if it is JSON, and its headers."""
        given = self.headers() | dict(headers or {})
        async with self.http.request(method, self._api + path, data=data, headers=given) as answer:
            text = await answer.text()
            parsed = json.loads(text) if answer.content_type == "application/json" else text
            return answer.status, parsed, answer.headers

    async def ok(self, method: str, path: str, **fields: Any) -> Any:
        """Return the answer of a call that succeeds. A list is sent as a field for each of its values."""
        pairs = [
            (name, str(one))
            for name, value in fields.items()
            for one in (value if isinstance(value, list) else [value])
        ]
        status, answer = await self.call(method, path, data=aiohttp.FormData(pairs) if pairs else None)
        assert status in (200, 204), answer
        return answer

    def headers(self) -> dict[str, str]:
        """Return the headers of one call."""
        if self._key is None:
            return {}
        consumer, token, secret = self._key.split(":")
        fields = {
            "oauth_consumer_key": consumer,
            "oauth_token": token,
            "oauth_signature_method": "PLAINTEXT",
            "oauth_signature": f"%26{secret}",
            "oauth_timestamp": str(int(time.time())),
            "oauth_nonce": uuid.uuid4().hex,
            "oauth_version": "1.0",
        }
        return {"Authorization": "OAuth " + ", ".join(f'{name}="{value}"' for name, value in fields.items())}

    async def enlist(self, mac: str, **fields: Any) -> dict[str, Any]:
        """Create a machine, which stays New unless the fields say more."""
        given = {"architecture": "amd64", "mac_addresses": mac, "power_type": "manual", "commission": "false"}
        return await self.ok("POST", "machines/", **given | fields)

    async def until(self, system_id: str, status: str) -> dict[str, Any]:
        """Wait until the list shows a machine in a status, which it must come to."""
        while True:
            found = (await self.ok("GET", f"machines/?id={system_id}"))[0]
            if found["status_name"] == status:
                return found
            await asyncio.sleep(0.02)
