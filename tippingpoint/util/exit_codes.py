"""Exit codes of our programs."""

from __future__ import annotations

MET, MISSED, BAD_INPUT, TARGET_FAILED, WITHHELD = range(5)
"""0: thresholds met, or done; 1: missed, or worse than the baseline; 2: input refused; 3: the target failed; 4: the
verdict is withheld."""
INTERRUPTED = 130
"""Ended by Ctrl-C: 128 + SIGINT, as in shells."""
