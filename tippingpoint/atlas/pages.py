"""Pages of an atlas in Markdown: an index, and where the releases of each target tip, next to published results.

Entries and runs determine everything, so the same atlas gives the same pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tippingpoint.analysis.analyse import analyse
from tippingpoint.atlas.entry import ENTRIES, Claim, Entry
from tippingpoint.atlas.figures import meaning_of, show_bounds
from tippingpoint.compare.baselines import Baseline, list_baselines
from tippingpoint.compare.trend.history import release_key
from tippingpoint.plan.packages import BUILT_IN
from tippingpoint.report.formats.markup import plain
from tippingpoint.rundir.files import read_file, replace_file
from tippingpoint.util.numbers import show_number
from tippingpoint.util.text import show_count

INDEX = "README.md"
_SUFFIX = "-releases.md"
_MADE = "<!-- Made by `tippingpoint atlas render` from the entries beside this page. -->"
_NAMES = {"etcd": "etcd", "juju": "Juju", "lxd": "LXD and Incus", "maas": "MAAS", "openstack": "OpenStack"}
_MOST_PUBLISHED = 8
"""The maximum number of figures of one published result that a page shows."""


def pages_of(atlas: Path, entries: Sequence[Entry]) -> dict[str, str]:
    """Return the text of each page of an atlas, by its file's name."""
    by_target = {kind: [entry for entry in entries if entry.said.target == kind] for kind in _kinds(entries)}
    pages = {f"{kind}{_SUFFIX}": _target_page(kind, of) for kind, of in by_target.items()}
    return {INDEX: _index(atlas, by_target), **pages}


def write_pages(atlas: Path, entries: Sequence[Entry]) -> list[str]:
    """Write the pages that changed; returns their names."""
    changed = stale_pages(atlas, entries)
    for name, text in changed.items():
        replace_file(atlas / name, text)
    return list(changed)


def stale_pages(atlas: Path, entries: Sequence[Entry]) -> dict[str, str]:
    """Return the pages whose file is outdated or missing, with the text that they should have."""
    return {name: text for name, text in pages_of(atlas, entries).items() if _text(atlas / name) != text}


def _text(file: Path) -> str | None:
    try:
        return read_file(file).decode()
    except FileNotFoundError:
        return None


def _kinds(entries: Iterable[Entry]) -> list[str]:
    """Return the kinds of target that have a page: those with entries or published results, in listing order."""
    there = {entry.said.target for entry in entries} | {each.target.kind for each in list_baselines()}
    return [*(kind for kind in BUILT_IN if kind in there), *sorted(there.difference(BUILT_IN))]


def _name_of(kind: str) -> str:
    return _NAMES.get(kind, kind.capitalize())


# -- the index -------------------------------------------------------------------------------------


def _index(atlas: Path, by_target: Mapping[str, Sequence[Entry]]) -> str:
    rows = [
        [
            f"[{_name_of(kind)}]({kind}{_SUFFIX})",
            ", ".join(dict.fromkeys(_release(entry) for entry in _ordered(entries))) or "none yet",
            "; ".join(dict.fromkeys(entry.said.load for entry in entries)),
            str(sum(len(entry.runs) for entry in entries)),
            ", ".join(each.name for each in list_baselines() if each.target.kind == kind),
        ]
        for kind, entries in by_target.items()
    ]
    made = {INDEX, *(f"{kind}{_SUFFIX}" for kind in by_target)}
    others = [
        f"- [{_heading(path)}]({path.name})" for path in sorted(atlas.glob("*.md")) if path.name not in made
    ]
    return _joined(
        "# The atlas: where each release tips",
        _MADE,
        "Each page has what was measured of one target here: every release under every load, with its runs. "
        "A run is kept as a digest, which `tippingpoint report FILE` opens like the run itself. "
        "Published results stand beside the measured ones.",
        "Figures of two machines are no comparison. Compare the rows of one table, as far as their machine is the "
        "same, and read the limits of each entry.",
        _table(
            ["target", "releases measured", "loads", "runs", "published results"], rows, text=(0, 1, 2, 4)
        ),
        "[Add what you measured](../how-to/add-to-the-atlas.md) says how your figures get in.",
        "\n".join(["Pages of single studies:", "", *others]) if others else "",
    )


def _heading(path: Path) -> str:
    found = re.match(r"# (.*)", path.read_text(encoding="utf-8"))
    return found[1] if found else path.stem


# -- the page of a target --------------------------------------------------------------------------


def _target_page(kind: str, entries: Sequence[Entry]) -> str:
    loads = list(dict.fromkeys(entry.said.load for entry in entries))
    ordered = _ordered(entries)
    blocks = [f"# {_name_of(kind)}: what was measured of each release", _MADE]
    if not entries:
        blocks.append("No run of a real one is in the atlas yet.")
    for load in loads:
        blocks += [
            f"## {_capital(load)}",
            _load_table([entry for entry in ordered if entry.said.load == load]),
        ]
    blocks += _claims(ordered)
    blocks += _bugs(ordered)
    blocks += _published(kind)
    if entries:
        blocks.append("## How each was measured")
        for entry in ordered:
            blocks += _entry(entry)
    return _joined(*blocks)


def _ordered(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(
        entries,
        key=lambda entry: (entry.said.product or "", release_key(entry.said.release), entry.name),
    )


def _release(entry: Entry) -> str:
    return f"{entry.said.product} {entry.said.release}" if entry.said.product else entry.said.release


def _load_table(entries: Sequence[Entry]) -> str:
    """Return the table of one load: a row for each release, a column for each figure that any of them has."""
    columns: dict[str, None] = {}
    cells: list[dict[str, str]] = []
    for entry in entries:
        row: dict[str, str] = {}
        for figure in entry.said.figures:
            meaning = meaning_of(figure, entry.runs)
            row[f"{meaning.words}, {meaning.unit}"] = show_bounds(figure.low, figure.high)
        columns.update(dict.fromkeys(row))
        cells.append(row)
    rows = [
        [_link(entry), str(len(entry.runs)), *(row.get(column, "") for column in columns)]
        for entry, row in zip(entries, cells, strict=True)
    ]
    return _table(["release", "runs", *columns], rows, text=(0,))


def _link(entry: Entry) -> str:
    return f"[{_release(entry)}](#{_anchor(_title(entry))})"


def _title(entry: Entry) -> str:
    return f"{_release(entry)}, {entry.said.load}"


def _anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _claims(entries: Sequence[Entry]) -> list[str]:
    rows = [
        [
            _link(entry),
            plain(claim.claim),
            _where(claim.source),
            _expected(claim),
            _found(claim),
            f"**{claim.says}**",
            plain(claim.why),
        ]
        for entry in entries
        for claim in entry.said.claims
    ]
    if not rows:
        return []
    header = ["release", "claim", "where", "it means", "the runs allow", "with this load", "why"]
    return [
        "## What release notes claim",
        "A ratio is the figure of this release, divided by that of the one before. Its interval is as wide as runs of "
        "one release differed in the same table. A claim is confirmed if all ratios of the interval are as claimed. It "
        "is refuted if none is. Fewer than two runs of either release tell nothing.",
        _table(header, rows, text=range(len(header))),
    ]


def _expected(claim: Claim) -> str:
    if claim.expected is None or claim.figure is None:
        return "no figure here"
    return f"{plain(claim.figure)}: {show_number(claim.expected[0])} to {show_number(claim.expected[1])}"


def _found(claim: Claim) -> str:
    return "nothing" if claim.figure is None else show_bounds(claim.low, claim.high)


def _where(source: str) -> str:
    found = re.search(r"https?://\S+", source)
    if found is None:
        return plain(source)
    said = source.replace(found[0], "").strip(" :,()") or found[0].partition("://")[2]
    return f"[{plain(said)}]({found[0]})"


def _bugs(entries: Sequence[Entry]) -> list[str]:
    bugs = [bug for entry in entries for bug in entry.said.bugs]
    blocks = ["## Bugs found on the way"] if bugs else []
    for bug in bugs:
        blocks += [bug.what, _code(bug.command), bug.shows]
    return blocks


def _published(kind: str) -> list[str]:
    found = [each for each in list_baselines() if each.target.kind == kind]
    rows = [row for baseline in found for row in _published_rows(baseline)]
    if not rows:
        return []
    return [
        "## Published results",
        "These were measured by others, on other machines. `tippingpoint baselines NAME` prints all figures of one.",
        _table(["result", "about", "figure"], rows, text=(0, 1, 2)),
    ]


def _published_rows(baseline: Baseline) -> list[list[str]]:
    run = baseline.run()
    rows = [[baseline.name, "where it tips", plain(analyse(run).tipping.sentence)]] if run is not None else []
    for figure in baseline.figures[:_MOST_PUBLISHED]:
        value = show_number(figure.value, 6) + (
            "" if figure.to is None else f" to {show_number(figure.to, 6)}"
        )
        at = ", ".join(f"{count:,} {thing}" for thing, count in figure.at.items())
        about = f"{figure.what} ({at})" if at else figure.what
        rows.append([baseline.name, plain(about), plain(f"{figure.qualifier} {value} {figure.unit}".strip())])
    measured = [row for each in baseline.tables[:1] for row in each.rows[:_MOST_PUBLISHED]]
    return rows + [
        [
            baseline.name,
            plain(row.operation),
            f"mean {show_number(row.avg, 6)} s, {show_number(row.success, 6)} % succeeded",
        ]
        for row in measured
    ]


def _entry(entry: Entry) -> list[str]:
    """Return the section of an entry: how it was measured, what its runs found, and what they cannot show."""
    said = entry.said
    place = f"{ENTRIES}/{entry.name}"
    rows = [
        [
            f"[{path.name}]({place}/{path.name})",
            plain(run.run.manifest.target.version),
            plain(run.verdict.outcome),
            plain(run.tipping.sentence),
        ]
        for path, run in zip(entry.digests, entry.runs, strict=True)
    ]
    return [
        f"### {_title(entry)}",
        f"{show_count(len(entry.runs), 'run')} on {said.date:%-d %B %Y}. {_capital(said.machine)}",
        "Measure it again:",
        _code(said.command),
        _table(["digest", "target", "verdict", "where it tips"], rows, text=(0, 1, 2, 3)),
        "\n".join(f"- {limit}" for limit in said.limits),
    ]


def _code(command: str) -> str:
    return "\n".join(f"    {line}" for line in command.strip().splitlines())


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], text: Iterable[int] = ()) -> str:
    """Return a table whose cells are already Markdown."""
    left = set(text)
    rule = ["---" if column in left else "---:" for column in range(len(header))]
    lines = ["| " + " | ".join(row) + " |" for row in (header, *rows)]
    lines.insert(1, "|" + "|".join(rule) + "|")
    return "\n".join(lines)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _joined(*blocks: str) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"
