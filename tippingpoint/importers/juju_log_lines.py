"""Parses log lines of Juju's leadershipclaimer.

The grammar covers every format that the tool prints, with and without --quiet, read from its source: juju/juju,
scripts/leadershipclaimer/leadershipclaimer.go. The first column is the age of the process that wrote the line, which is
no common clock. `in` is the duration of the call, from the send to the answer, to a millisecond.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tippingpoint.util.durations import parse_go_duration

Action = Literal["claimed", "extended", "lost", "denied", "failed", "connected", "refused", "blocking"]

SIDECAR_SUFFIX = ".stages.yaml"
"""Ends the name of the file beside a log that lists its stages."""
LONGEST_SECONDS = 10 * 365 * 86400.0


@dataclass(frozen=True, slots=True)
class Line:
    """One parsed line. `failed` is a call that ended in an error; `refused` is a connection that was never made.

    `took` and `held_for` are seconds; None if the line has none. `twin` marks the only message that the tool writes to
    both stdout and stderr, so that a log of both has it twice.
    """

    action: Action
    age: float
    holder: str
    took: float | None = None
    held_for: float | None = None
    error: str = ""
    twin: bool = False

    @property
    def lease(self) -> str:
        """The lease that a holder competes for: the application of a unit."""
        return self.holder.rpartition("/")[0] or self.holder

    @property
    def timed_out(self) -> bool:
        """Whether the error is a timeout, such as Juju's `lease operation timed out`."""
        return "timed out" in self.error or "timeout" in self.error


@lru_cache(maxsize=65536)
def go_duration(text: str) -> float | None:
    """Read seconds from the form of Go's time.Duration (`1m31.99s`, `123ms`, `47µs`).

    Returns None for other texts, and for longer times than any log has.
    """
    total = parse_go_duration(text)
    return total if total is not None and total <= LONGEST_SECONDS else None


_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_OF = rf"{_QUOTED} for {_QUOTED}"
_HEAD = re.compile(
    r"\s*([0-9]{1,12}(?:\.[0-9]{1,9})?)s +(extended|claimed|lost|claim of|blocking|connected)\b *(.*)",
    re.ASCII,
)
_REFUSED = re.compile(r"\s*[0-9]+ failed to connect to .* for (\S+?)(?: \(retrying\))?: (.+)", re.ASCII)
_SHORT = {
    "extended": re.compile(r"(\S+) held for (?P<held>\S+) in (?P<took>\S+)"),
    "claimed": re.compile(r"(\S+) in (?P<took>\S+)"),
    "lost": re.compile(r"(\S+) after (?P<held>\S+) in (?P<took>\S+)"),
}
_LONG = {
    "extended": re.compile(
        rf"leadership of {_OF} for \S+ in (?P<took>[^\s,]+), held for (?P<held>[^\s,]+), renewing after \S+"
    ),
    "claimed": re.compile(rf"leadership of {_OF} for \S+ in (?P<took>[^\s,]+), renewing after \S+"),
    "lost": re.compile(
        rf"leadership of {_OF} after (?P<held>\S+) in (?P<took>[^\s,]+), blocking until released"
    ),
}
_CLAIM = re.compile(
    rf"{_OF} (?:(?P<denied>denied) in (?P<t1>[^\s,]+), blocking until released"
    r"|(?P<retried>timed out) in (?P<t2>[^\s,]+), retrying"
    r"|failed in (?P<t3>[^\s:]+): (?P<error>.+))"
)
_BLOCKING = re.compile(
    rf"(?:of {_OF} returned after (?P<t1>[^\s,]+), attempting to claim"
    rf"|for leadership of {_OF} failed in (?P<t2>\S+) with (?P<error>.+))"
)
_CONNECTED = re.compile(r"\[ *[0-9]+\] +[0-9]+ (\S+) in (?P<took>\S+)")


def parse_line(text: str) -> Line | None:
    """Parse a line of the log; None if it is not a sample. Raises ValueError for a damaged one."""
    head = _HEAD.match(text)
    if head is None:
        refused = _REFUSED.fullmatch(text.strip()) if " failed to connect to " in text else None
        # The text between contains the account with its password: it is skipped, and never kept.
        return Line("refused", 0.0, refused[1], error=refused[2]) if refused else None
    age, word, rest = float(head[1]), head[2], head[3].rstrip()
    line = _read(age, word, rest)
    if line is None:
        raise ValueError(word)
    return line


def _read(age: float, word: str, rest: str) -> Line | None:
    if word == "extended":
        return _held(age, "extended", rest)
    if word == "claimed":
        return _held(age, "claimed", rest)
    if word == "lost":
        return _held(age, "lost", rest)
    if word == "claim of":
        return _claim(age, rest)
    if word == "blocking":
        return _blocking(age, rest)
    found = _CONNECTED.fullmatch(rest)
    took = go_duration(found["took"]) if found else None
    return Line("connected", age, found[1], took) if found and took is not None else None


def _held(age: float, word: Literal["claimed", "extended", "lost"], rest: str) -> Line | None:
    long = rest.startswith("leadership of ")
    found = (_LONG if long else _SHORT)[word].fullmatch(rest)
    if found is None:
        return None
    took = go_duration(found["took"])
    held_for = go_duration(found["held"]) if word != "claimed" else None
    if took is None or (held_for is None and word != "claimed"):
        return None
    return Line(word, age, _unquoted(found[2]) if long else found[1], took, held_for)


def _claim(age: float, rest: str) -> Line | None:
    found = _CLAIM.fullmatch(rest)
    took = go_duration(found["t1"] or found["t2"] or found["t3"]) if found else None
    if found is None or took is None:
        return None
    holder = _unquoted(found[2])
    if found["denied"]:
        return Line("denied", age, holder, took)
    return Line("failed", age, holder, took, error=found["error"] or "timed out", twin=bool(found["retried"]))


def _blocking(age: float, rest: str) -> Line | None:
    found = _BLOCKING.fullmatch(rest)
    took = go_duration(found["t1"] or found["t2"]) if found else None
    if found is None or took is None:
        return None
    holder = _unquoted(found[2] if found["t1"] else found[5])
    return Line("blocking", age, holder, took, error=found["error"] or "")


def _unquoted(text: str) -> str:
    """Undo Go's %q for a unit's name, which cannot contain other characters that %q escapes."""
    return text.replace('\\"', '"').replace("\\\\", "\\")
