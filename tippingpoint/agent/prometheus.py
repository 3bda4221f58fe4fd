"""How an agent reaches the Prometheus that the charm is related to."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from tippingpoint.errors import TargetError
from tippingpoint.plan.read import validate_plan

if TYPE_CHECKING:  # a run without Prometheus figures needs no Prometheus client
    from tippingpoint.monitoring.prometheus import Prometheus

CHECKED_WITHIN = 15.0
"""Seconds in which Prometheus has to answer before a run begins."""

_Short = Annotated[str, Field(max_length=4000)]


class PrometheusAccess(BaseModel, frozen=True):
    """A Prometheus that scrapes the target. Secrets are in files, by their paths."""

    url: _Short
    only: _Short = ""
    """Label matchers, without braces, for the target's series."""
    ca: _Short = ""
    """The file with the authority that signed its certificate; empty for the machine's own authorities."""
    username: _Short = ""
    password_file: _Short = ""
    token_file: _Short = ""

    def opened(self) -> Prometheus:
        """Return a client of it, to be used as a context. Raises UserError for a wrong URL, or unusable files."""
        from tippingpoint.monitoring.prometheus import Prometheus

        return Prometheus(
            self.url,
            ca=_path(self.ca),
            username=self.username,
            password_file=_path(self.password_file),
            token_file=_path(self.token_file),
        )


def _path(name: str) -> Path | None:
    return Path(name) if name else None


def opened(access: PrometheusAccess | None) -> AbstractAsyncContextManager[Prometheus | None]:
    """Return a client as a context, or a context without one."""
    return nullcontext() if access is None else access.opened()


async def check_figures(fields: dict[str, Any], access: PrometheusAccess) -> str:
    """Return an empty text if a Prometheus has the figures of a plan's thresholds.

    Raises UserError or TargetError as AskedFigures.open does.
    """
    from tippingpoint.play.asked_figures import AskedFigures

    async with access.opened() as prometheus:
        figures = AskedFigures(validate_plan(fields), prometheus, access.only)
        try:
            async with asyncio.timeout(CHECKED_WITHIN):
                await figures.open()
        except TimeoutError:
            problem = f"has not answered within {CHECKED_WITHIN:g} s"
            raise TargetError(prometheus.where, problem, "a Prometheus that answers within reach") from None
    return ""
