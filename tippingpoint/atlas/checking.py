"""Checks an atlas: every entry by itself, its figures against its runs, and its claims against other entries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from math import inf, sqrt
from pathlib import Path
from typing import NamedTuple

from tippingpoint.atlas.entry import (
    FILE,
    MOST_BYTES,
    Entry,
    Figure,
    Verdict,
    entry_directories,
    read_entry,
)
from tippingpoint.atlas.figures import Bounds, meaning_of, measured, rounded
from tippingpoint.digest.digest_file import SUFFIX
from tippingpoint.errors import UserError

_PATH = re.compile(r"(?:^|[\s=\"'(])(/(?:home|root|tmp|work|var|Users|mnt|opt)/\S+)")
"""A path on the machine on which somebody measured."""
LEAST_RUNS = 2
"""The minimum number of runs of each release to confirm or refute a claim: one run does not show how runs differ."""


class Checked(NamedTuple):
    """An atlas as read."""

    entries: list[Entry]
    """The entries without a problem."""
    problems: list[str]
    """One line each: the field, its value, and what would be accepted."""


def check_atlas(atlas: Path) -> Checked:
    """Read and check all entries of an atlas; raises UserError if there is no folder of entries."""
    entries: dict[str, Entry] = {}
    problems: list[str] = []
    for directory in entry_directories(atlas):
        try:
            entry = read_entry(directory)
            found = list(_of_entry(entry))
        except UserError as refused:
            found = [refused]
        else:
            if not found:
                entries[entry.name] = entry
        problems += map(str, found)
    wrong = {name: list(_of_claims(entry, entries)) for name, entry in entries.items()}
    problems += [str(each) for found in wrong.values() for each in found]
    return Checked([entry for name, entry in entries.items() if not wrong[name]], problems)


def _of_entry(entry: Entry) -> Iterator[UserError]:
    file = entry.directory / FILE
    others = sorted(
        path.name
        for path in entry.directory.iterdir()
        if path.name != FILE and (path.suffix != SUFFIX or not path.is_file())
    )
    if others:
        yield UserError(str(entry.directory), others[0], f"only {FILE} and files that end in {SUFFIX}")
        return
    size = sum(path.stat().st_size for path in entry.directory.iterdir())
    if size > MOST_BYTES:
        yield UserError(str(entry.directory), f"{size:,} bytes", f"at most {MOST_BYTES:,} bytes")
        return
    if not entry.digests:
        yield UserError(str(entry.directory), "no runs", f"one file or more that end in {SUFFIX}")
        return
    for path in [file, *entry.digests]:
        named = _PATH.search(path.read_text(encoding="utf-8", errors="replace"))
        if named:
            yield UserError(str(path), named[1], "no path of the machine that measured")
    yield from _of_runs(entry, file)
    for number, figure in enumerate(entry.said.figures):
        yield from _of_figure(f"{file}: figures.{number}", figure, measured(figure, entry.runs))


def _of_runs(entry: Entry, file: Path) -> Iterator[UserError]:
    ids = [run.run.manifest.id for run in entry.runs]
    twice = next((run for run in ids if ids.count(run) > 1), None)
    if twice is not None:
        yield UserError(str(entry.directory), twice, "each run once")
    for path, run in zip(entry.digests, entry.runs, strict=True):
        target = run.run.manifest.target
        if target.kind != entry.said.target:
            yield UserError(f"{file}: target", entry.said.target, f"{target.kind}, as {path.name} has it")
        elif entry.said.release not in target.version:
            yield UserError(
                f"{file}: release", entry.said.release, f"a part of {target.version}, as {path.name} has it"
            )
        elif "simulat" in target.version.lower():
            yield UserError(f"{file}: target", target.version, "a real target, not a simulator")


def _of_figure(field: str, figure: Figure, found: Bounds) -> Iterator[UserError]:
    for name, said, was in zip(("low", "high"), (figure.low, figure.high), found, strict=True):
        if said != was:
            yield UserError(f"{field}.{name}", said, f"{was}, as the runs have it")


def _of_claims(entry: Entry, entries: Mapping[str, Entry]) -> Iterator[UserError]:
    for number, claim in enumerate(entry.said.claims):
        field = f"{entry.directory / FILE}: claims.{number}"
        if claim.figure is None:
            if claim.says != "not told":
                yield UserError(f"{field}.says", claim.says, "not told, because the claim names no figure")
            continue
        base = entries.get(claim.against or "")
        if base is None:
            yield UserError(f"{field}.against", claim.against, f"one of {', '.join(entries)}")
            continue
        if claim.expected is None or claim.expected[0] > claim.expected[1]:
            yield UserError(f"{field}.expected", claim.expected, "two ratios, the lower one first")
            continue
        ours, theirs = _named(claim.figure, entry), _named(claim.figure, base)
        if ours is None or theirs is None:
            lacks = entry if ours is None else base
            yield UserError(f"{field}.figure", claim.figure, f"one of {', '.join(words_of(lacks))}")
            continue
        low, high = ratio_of(ours, theirs, scatter_of(claim.figure, beside(entry, entries.values())))
        says = verdict_of(claim.expected, (low, high), len(entry.runs), len(base.runs))
        for name, said, was in (
            ("low", claim.low, low),
            ("high", claim.high, high),
            ("says", claim.says, says),
        ):
            if said != was:
                yield UserError(f"{field}.{name}", said, f"{was}, as the runs have it")


def words_of(entry: Entry) -> list[str]:
    """Return the words by which claims name an entry's figures."""
    return [meaning_of(figure, entry.runs).words for figure in entry.said.figures]


def _named(words: str, entry: Entry) -> Figure | None:
    found = zip(words_of(entry), entry.said.figures, strict=True)
    return next((figure for name, figure in found if name == words), None)


def scatter_of(words: str, entries: Iterable[Entry]) -> float:
    """Return the largest ratio between runs of one release in a figure, over all entries of one table.

    This difference occurs without any change of release, so it is the control for all claims. It is at least 1.
    """
    found = [_named(words, entry) for entry in entries if len(entry.digests) >= LEAST_RUNS]
    return max((each.high / each.low for each in found if each and each.low and each.high), default=1.0)


def beside(entry: Entry, entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries in the same table as an entry, including itself."""
    table = (entry.said.target, entry.said.load)
    return [each for each in entries if (each.said.target, each.said.load) == table]


def ratio_of(ours: Figure, theirs: Figure, scatter: float) -> Bounds:
    """Return one figure divided by another: the lowest and the highest ratio that the runs allow.

    Each figure is widened to at least `scatter` around its geometric middle: the release whose runs differ most sets
    every margin, because the few runs of another release may agree by chance.
    """
    (our_low, our_high), (their_low, their_high) = _widened(ours, scatter), _widened(theirs, scatter)
    low = our_low / their_high if our_low is not None and their_high else None
    high = our_high / their_low if our_high is not None and their_low else None
    return rounded(low), rounded(high)


def _widened(figure: Figure, scatter: float) -> Bounds:
    low, high = figure.low, figure.high
    if not low or not high:
        return (low and low / scatter), (high and high * scatter)
    middle, half = sqrt(low * high), sqrt(max(scatter, high / low))
    return middle / half, middle * half


def verdict_of(expected: tuple[float, float], found: Bounds, *runs: int) -> Verdict:
    """Judge a claim: confirmed if all ratios that the runs allow are as claimed, refuted if none are.

    Fewer than LEAST_RUNS runs of either release are inconclusive, because repeats of one release differ too.
    """
    low, high = (found[0] or 0.0), (inf if found[1] is None else found[1])
    if min(runs) < LEAST_RUNS or found == (None, None):
        return "not told"
    if expected[0] <= low and high <= expected[1]:
        return "confirmed"
    return "refuted" if high < expected[0] or low > expected[1] else "not told"
