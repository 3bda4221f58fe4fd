"""The file that wakes the charm: systemd watches it, and dispatches the charm's `agent_changed` event."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def wake(path: Path) -> None:
    """Create or touch the file. A failure is ignored: the charm's next hook sees everything anyway."""
    with suppress(OSError):
        fd = os.open(path, _CREATE, 0o644)
        try:
            os.utime(fd)
        finally:
            os.close(fd)
