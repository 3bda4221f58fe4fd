"""What real machines ask of the region, by plain HTTP as a MAAS's rack controller answers it: what to boot, the files
of that, and a call when they have booted.

    GET  /boot/MAC                   a script for iPXE: the kernel, or to wait for ever when this boot is a lost one
    GET  /image/kernel, /image/initramfs
    POST /phone/MAC                  cores, memory (bytes) and disks (sectors of 512 bytes, with commas between)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from lab.maas.region import Found, Region

_RETRY = 503
_SECTOR = 512


class PhoneServer:
    """Serves machines at one address. While the region is down, it has them try again."""

    def __init__(self, region: Region, address: str, port: int, kernel: Path, initramfs: Path) -> None:
        self._region = region
        self._address = address
        self._port = port
        self._files = {"kernel": kernel, "initramfs": initramfs}
        self._runner: web.AppRunner | None = None

    @property
    def serves(self) -> bool:
        """Whether the port is open."""
        return self._runner is not None

    async def start(self) -> None:
        """Open the port."""
        app = web.Application(middlewares=[self._while_up])
        app.router.add_get("/boot/{mac}", self._boot)
        app.router.add_get("/image/{name}", self._image)
        app.router.add_post("/phone/{mac}", self._phone)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._address, self._port, reuse_address=True).start()

    @web.middleware
    async def _while_up(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Let machines try again while the region or its rack controllers are down."""
        if self._region.faults.down or not self._region.racks_up:
            return web.Response(status=_RETRY)
        return await handler(request)

    async def _boot(self, request: web.Request) -> web.Response:
        boots = self._region.boots(request.match_info["mac"])
        if boots is None:  # no machine of the region's: it asks again
            return web.Response(status=404)
        if not boots:
            return web.Response(text="#!ipxe\n:never\nsleep 3600\ngoto never\n")
        base = f"http://{self._address}:{self._port}"
        phone = f"{base}/phone/{request.match_info['mac']}"
        return web.Response(
            text=f"#!ipxe\nkernel {base}/image/kernel quiet console=ttyS0 panic=10 phone={phone}\n"
            f"initrd {base}/image/initramfs\nboot\n"
        )

    async def _image(self, request: web.Request) -> web.StreamResponse:
        path = self._files.get(request.match_info["name"])
        return web.FileResponse(path) if path else web.Response(status=404)

    async def _phone(self, request: web.Request) -> web.Response:
        form = await request.post()
        try:
            found = Found(
                int(str(form.get("cores"))),
                -(-int(str(form.get("memory"))) // 1024**2),  # the firmware keeps less than 1 MiB for itself
                [int(size) * _SECTOR / 1000**3 for size in str(form.get("disks", "")).split(",") if size],
            )
        except ValueError:
            return web.Response(status=400)
        self._region.phoned(request.match_info["mac"], found)
        return web.Response(text="ok\n")
