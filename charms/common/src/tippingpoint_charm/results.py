"""What an action's result carries, so that whoever reads it can paste it.

`juju run` prints results as YAML and folds a long line. A text that ends with the end of a line is printed as a block,
as it is.
"""

from __future__ import annotations

from pathlib import PurePath

from tippingpoint.errors import UserError

Results = dict[str, str]

LARGEST_TEXT = 16 * 1024
"""Bytes of a report that a result carries unasked; Juju keeps results in its database, and prints them."""
LARGEST_PART = 64 * 1024
"""Bytes of a part of a report, which is asked for by its number."""


def verbatim(*lines: str) -> str:
    """Lines as `juju run` prints them verbatim: none ends with a space, and there are no tabs."""
    whole = "\n".join(lines).expandtabs().splitlines()
    return "".join(f"{line.rstrip()}\n" for line in whole)


def how_to_fetch(model: str, unit: str, path: PurePath | str, *otherwise: str) -> str:
    """The command that gets a file of a unit, what that needs, and what does without it."""
    return verbatim(
        f"juju scp -m {model} {unit}:{path} .",
        f'# that wants a key of yours in the model: juju add-ssh-key -m {model} "$(cat ~/.ssh/id_ed25519.pub)"',
        *(f"# without a key: {way}" for way in otherwise),
    )


def report_results(text: str, form: str, part: int, fetch: str) -> Results:
    """A report as results have it: `text`, and where that is not all of it `parts`, which says how many there are.

    With `part` it is that part, from 1; else the whole, or where it is too long the begin of Markdown (`form`), or a
    `note` of its size. `fetch` is how_to_fetch's. UserError when there is no such part.
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
    return {"note": verbatim(f"{size}, which is more than a result has unasked:", fetch), "parts": count}


def parts_of(text: str) -> list[str]:
    """A text in parts of at most LARGEST_PART bytes, which joined are the text; they end with a line where they can."""
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
