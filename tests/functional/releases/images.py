"""Releases that are kept as images, which labs mount."""

from __future__ import annotations

from pathlib import Path


def attached_to(release: Path) -> list[Path]:
    """The loop devices with the image of a release."""
    found: list[Path] = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            found += [backing] if str(release) in backing.read_text() else []
        except OSError:  # detached just now
            continue
    return found
