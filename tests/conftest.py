"""Marks everything the tests start, so that what is left behind can be told from other people's processes."""

from __future__ import annotations

import contextlib
import os
import uuid

MARK = "TIPPINGPOINT_TEST_SESSION"
os.environ[MARK] = uuid.uuid4().hex
# A lab that somebody has started in this directory is none of the tests' targets.
os.environ["TIPPINGPOINT_TARGET"] = os.environ["TIPPINGPOINT_PROMETHEUS"] = ""

with contextlib.suppress(ImportError):  # tests/integration runs without
    from hypothesis import HealthCheck, settings

    # No limit on how long an example, or making one, takes: a busy machine takes longer.
    settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any-machine")
