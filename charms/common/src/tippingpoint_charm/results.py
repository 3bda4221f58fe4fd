"""Formats action results so that they can be pasted.

`juju run` prints results as YAML and folds long lines. A text that ends with a newline is printed verbatim as a block.
"""

from __future__ import annotations

from pathlib import PurePath

from tippingpoint.errors import UserError

Results = dict[str, str]

LARGEST_TEXT = 16 * 1024
"""The most bytes of a report in a result without `part`. Juju keeps results in its database, and prints them."""
LARGEST_PART = 64 * 1024
"""The most bytes of one part of a report."""


def verbatim(*lines: str) -> str:
    """Format lines so that `juju run` prints them verbatim: without tabs and without spaces at their ends."""
    whole = "\n".join(lines).expandtabs().splitlines()
    return "".join(f"{line.rstrip()}\n" for line in whole)


def how_to_fetch(model: str, unit: str, path: PurePath | str, *otherwise: str) -> str:
    """Return the command that copies a file from a unit, its condition, and other ways."""
    return verbatim(
        f"juju scp -m {model} {unit}:{path} .",
        f'# this needs your SSH key in the model: juju add-ssh-key -m {model} "$(cat ~/.ssh/id_ed25519.pub)"',
        *(f"# without a key: {way}" for way in otherwise),
    )


def report_results(text: str, form: str, part: int, fetch: str) -> Results:
    """Return a report as action results: `text` and, if that is not all of it, `parts`, the number of parts.

    With `part` (from 1) the text is that part. Otherwise it is the whole report. If that is too long, Markdown is cut,
    and any other `form` gives a `note` of its size. `fetch` is the answer of how_to_fetch. Raises UserError if there is
    no such part.
    """
    parts = parts_of(text)
    count = str(len(parts))
    if part:
        if part > len(parts):
            raise UserError("part", part, f"1 to {count}" if len(parts) > 1 else "1")
        return {"text": parts[part - 1], "parts": count}
    whole = text.encode()
    if len(whole) <= LARGEST_TEXT:
        return {"text": verbatim(text)}
    size = f"{len(whole) >> 10} KiB"
    if form == "md":
        cut = whole[:LARGEST_TEXT].rpartition(b"\n")[0].decode(errors="ignore")
        return {"text": verbatim(cut, f"(cut: {size} in all)", fetch), "parts": count}
    return {"note": verbatim(f"{size}, too long for a result:", fetch), "parts": count}


def parts_of(text: str) -> list[str]:
    """Split a text into parts of at most LARGEST_PART bytes. Parts end with a line if possible; joined they are it."""
    parts: list[str] = []
    left = text.encode()
    while len(left) > LARGEST_PART:
        end = left.rfind(b"\n", 0, LARGEST_PART) + 1
        if not end:
            end = LARGEST_PART
            while left[end] & 0xC0 == 0x80:  # inside a character
                end -= 1
        parts.append(left[:end].decode())
        left = left[end:]
    return [*parts, left.decode()]
