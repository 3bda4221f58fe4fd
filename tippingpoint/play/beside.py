"""Keeps a run off the processors of its target, if a lab on the same machine names them."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tippingpoint.play.faults import LabControl
from tippingpoint.rundir.manifest import Places


@asynccontextmanager
async def beside_target(lab: Path | None) -> AsyncGenerator[Places | None]:
    """Run this thread, and the workers that it starts meanwhile, on processors that the lab's target does not use.

    Yields where both run; None without a lab. If the run may use none of the processors that the lab leaves to it, it
    stays where it is. Raises UserError (field `lab`) if no lab is at the socket.
    """
    if lab is None:
        yield None
        return
    places = await LabControl(lab).places()
    before = os.sched_getaffinity(0)
    ours = before & places.others or before
    os.sched_setaffinity(0, ours)
    try:
        yield Places(target=sorted(places.target), workers=sorted(ours))
    finally:
        os.sched_setaffinity(0, before)
