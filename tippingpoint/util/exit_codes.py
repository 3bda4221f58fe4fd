"""What our programs' exit codes say."""

from __future__ import annotations

MET, MISSED, BAD_INPUT, TARGET_FAILED, WITHHELD = range(5)
"""Thresholds met, or done; missed, or worse; input refused; the target failed; the verdict is withheld."""
INTERRUPTED = 130
"""Ended by Ctrl-C, as shells have it."""
