"""Keeps a run off the processors of its target, if a lab on the same machine says which those are."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tippingpoint.play.faults import LabControl
from tippingpoint.rundir.manifest import Places


@asynccontextmanager
async def beside_target(lab: Path | None) -> AsyncGenerator[Places | None]:
    """Have this thread, and the workers that it starts meanwhile, run where the lab's target does not.

    Yields where both run; None without a lab. A run that may use none of the processors that the lab leaves to it stays
    where it is. Raises UserError (field `lab`) if no lab is at the socket.
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
