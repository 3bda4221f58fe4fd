"""Runs the checks of ./scripts/release that need no package: `ready VERSION`, `unchanged`, `licences FOLDER`."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PERMITTED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "MPL-2.0",
    "PSF-2.0",
    "Zlib",
    "CC0-1.0",
    "Unlicense",
}
"""Licences of packages that a pack may contain. All allow distribution beside our own code (Apache-2.0)."""
_WRITTEN_OUT = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd license": "BSD-3-Clause",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
"""What packages without a License-Expression write, and the SPDX identifier of it."""


class NotReady(Exception):
    """What keeps a release from being made, in one line."""


def check_ready(root: Path, version: str, today: str) -> None:
    """Check that a release of this version can be made of a checkout; raises NotReady."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise NotReady(f"VERSION: {version}: expected three numbers, such as 0.2.0")
    found = re.search(
        r'^__version__ = "(.*)"$', (root / "tippingpoint/__init__.py").read_text(), re.MULTILINE
    )
    named = found[1] if found else "none"
    if named != version:
        raise NotReady(f"tippingpoint/__init__.py: {named}: expected {version}")
    first = re.search(r"^## (.*)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    entry = first[1] if first else "none"
    if entry != f"{version} ({today})":
        raise NotReady(f"CHANGELOG.md: {entry}: expected {version} ({today})")
    if _git(root, "tag", "--list", f"v{version}"):
        raise NotReady(f"VERSION: {version}: expected one that has no tag; v{version} is there")
    check_unchanged(root)


def check_unchanged(root: Path) -> None:
    """Check that everything of a checkout is committed; raises NotReady."""
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        more = f" and {len(changed) - 1} more" if changed[1:] else ""
        raise NotReady(f"{changed[0][3:]}{more}: not committed: expected a checkout without changes")


@dataclass(frozen=True)
class Packed:
    """A package that is in packs: its name as PyPI writes it, its licence as an SPDX expression, and the packs."""

    name: str
    version: str
    licence: str
    packs: list[str]


def packed(packs: Sequence[Path]) -> list[Packed]:
    """Return the packages of others in these packs, by name; raises NotReady for one whose licence does not allow us to
    distribute it, or is not known."""
    found: dict[tuple[str, str], Packed] = {}
    for pack in packs:
        with zipfile.ZipFile(pack) as archive:
            for name in archive.namelist():
                if not re.fullmatch(r"venv/.*\.dist-info/METADATA", name):
                    continue
                about = HeaderParser().parsestr(archive.read(name).decode())
                if about["Name"].lower().startswith("tippingpoint"):
                    continue
                named = _licence(about)
                if not _is_permitted(named):
                    raise NotReady(
                        f"{pack.name}: {about['Name']}: licence {named or 'none'}: "
                        f"expected {', '.join(sorted(PERMITTED))}"
                    )
                one = Packed(about["Name"], about["Version"], named, [])
                found.setdefault((one.name, one.version), one).packs.append(pack.name)
    return sorted(found.values(), key=lambda one: one.name.lower())


def licences(packages: Sequence[Packed]) -> str:
    """Return the licences of packages, as a table in Markdown."""
    rows: list[str] = []
    for one in packages:
        charms = sorted({pack.partition("_")[0] for pack in one.packs})
        rows.append(f"| {one.name} | {one.version} | {one.licence} | {', '.join(charms)} |")
    head = "# Packages in the charms, and their licences\n\n| package | version | licence | in |\n|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def complete(bill: dict[str, Any], packages: Sequence[Packed]) -> dict[str, Any]:
    """Return a bill of materials (CycloneDX) of uv.lock with the packages that are packed, no others, and their
    licences; raises NotReady for a packed one that it does not name."""
    named = {(_normal(each["name"]), each.get("version")): each for each in bill["components"]}
    components: list[dict[str, Any]] = []
    for one in packages:
        component = named.get((_normal(one.name), one.version))
        if component is None:
            raise NotReady(f"{one.packs[0]}: {one.name} {one.version}: expected the version of uv.lock")
        components.append({**component, "licenses": [{"expression": one.licence}]})
    kept = {each["bom-ref"] for each in components} | {bill["metadata"]["component"]["bom-ref"]}
    dependencies = [
        {**each, "dependsOn": [ref for ref in each.get("dependsOn", []) if ref in kept]}
        for each in bill.get("dependencies", [])
        if each["ref"] in kept
    ]
    return {**bill, "components": components, "dependencies": dependencies}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_permitted(expression: str) -> bool:
    """Tell whether a choice of an SPDX expression has permitted licences only."""
    choices = re.sub(r"[()]", "", expression).split(" OR ")
    return any(set(choice.split(" AND ")) <= PERMITTED for choice in choices)


def _licence(about: Message) -> str:
    if about["License-Expression"]:
        return str(about["License-Expression"])
    trove = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier", [])
        if line.startswith("License ::")
    ]
    for written in (*trove, str(about["License"] or "")):
        if written in PERMITTED:
            return written
        if written.lower() in _WRITTEN_OUT:
            return _WRITTEN_OUT[written.lower()]
    return ""


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, text=True).stdout


def main(arguments: Sequence[str]) -> int:
    """Run one check; returns 2 after one line on standard error if it fails."""
    try:
        match arguments:
            case ["ready", version]:
                check_ready(ROOT, version, datetime.date.today().isoformat())
            case ["unchanged"]:
                check_unchanged(ROOT)
            case ["licences", folder]:
                packages = packed(sorted(Path(folder).glob("*.charm")))
                Path(folder, "THIRD-PARTY.md").write_text(licences(packages))
                bill = Path(folder, "sbom.cdx.json")
                bill.write_text(json.dumps(complete(json.loads(bill.read_text()), packages), indent=1) + "\n")
            case _:
                raise NotReady("VERSION: expected one, such as 0.2.0")
    except NotReady as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
