"""`tippingpoint atlas`: check an atlas, write its pages, or begin an entry."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tippingpoint.atlas.adding import add_entry
from tippingpoint.atlas.checking import check_atlas
from tippingpoint.atlas.pages import stale_pages, write_pages
from tippingpoint.errors import UserError
from tippingpoint.util.exit_codes import BAD_INPUT, MET
from tippingpoint.util.text import show_count

_ACTIONS = ("check", "render", "add")


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    atlas: Path = options.directory
    if options.action not in _ACTIONS:
        raise UserError("ACTION", options.action, f"one of {', '.join(_ACTIONS)}")
    if options.action == "add":
        draft, copies = add_entry(atlas, options.name, options.runs)
        for line in copies:
            print(f"tippingpoint: {line}", file=sys.stderr)
        print(f"wrote {draft}: fill in what is open (?), then tippingpoint atlas check {atlas}")
        return MET
    if options.name:
        raise UserError("NAME", options.name, f"none with {options.action}: it takes the whole atlas")
    checked = check_atlas(atlas)
    for problem in checked.problems:
        print(f"tippingpoint: {problem}", file=sys.stderr)
    if checked.problems:
        return BAD_INPUT
    if options.action == "render":
        for name in write_pages(atlas, checked.entries):
            print(f"wrote {atlas / name}")
        return MET
    stale = stale_pages(atlas, checked.entries)
    for name in stale:
        refused = UserError(str(atlas / name), "stale", f"tippingpoint atlas render {atlas}")
        print(f"tippingpoint: {refused}", file=sys.stderr)
    if stale:
        return BAD_INPUT
    print(f"{show_count(sum(len(entry.runs) for entry in checked.entries), 'run')} checked")
    return MET
