"""Closes a part that was cut: its directory becomes that of a run that ended there."""

from __future__ import annotations

from pathlib import Path

from tippingpoint.agent.state import Phase
from tippingpoint.conduct.run_state import ABORTED
from tippingpoint.errors import UserError
from tippingpoint.rundir.manifest import Manifest


def cut_in(turn: int) -> str:
    """Return the problem of a part that was cut in a turn (0: before the first)."""
    where = f"in turn {turn}" if turn else "before its first turn"
    return f"the unit's machine or agent was restarted {where}"


def close_cut(directory: Path, problem: str) -> tuple[Phase, str]:
    """End a part's manifest if that was not done; returns how the part ended, and its problem in one line."""
    try:
        manifest = Manifest.load(directory)
    except UserError:
        return "failed", problem  # it was cut before it had a manifest
    if manifest.status in ("running", "cut"):
        manifest.status, manifest.reason = "cut", problem
        manifest.pid = None
        manifest.ended = max(path.stat().st_mtime for path in directory.iterdir())
        for worker in manifest.workers:
            if worker.status == "running":
                worker.status = "cut"
        manifest.save(directory)
        return "failed", problem
    if manifest.status == "failed":
        return "failed", manifest.reason
    return "over", problem_of(manifest)


def problem_of(manifest: Manifest) -> str:
    """Return the problem of a part that has ended, as its unit's word has it."""
    if manifest.status == "aborted":
        return f"{ABORTED}{manifest.reason}"
    return "" if manifest.status in ("complete", "interrupted") else manifest.reason
