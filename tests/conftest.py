"""Marks everything the tests start, so that what is left behind can be told from other people's processes."""

from __future__ import annotations

import os
import uuid

MARK = "TIPPINGPOINT_TEST_SESSION"
os.environ[MARK] = uuid.uuid4().hex
