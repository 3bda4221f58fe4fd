"""Digest files: one run in one small file of text, which `report` and `compare` open like the run's directory.

It has the run's digest, as in a unit's databag, with the plan and the description of the machine. It names no path of
the machine that made it. The report of it mentions what the digest leaves out.
"""

from __future__ import annotations

import atexit
import base64
import lzma
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tippingpoint.conduct.run_state import SharedRun
from tippingpoint.digest.merge import gather
from tippingpoint.digest.unit_digest import make_digest
from tippingpoint.errors import UserError
from tippingpoint.rundir.files import replace_file
from tippingpoint.rundir.gathered import UNIT
from tippingpoint.rundir.manifest import Host, Manifest, Places
from tippingpoint.rundir.resources import Resources, read_resources, write_resources
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.util.inputs import Input

SUFFIX = ".digest"
"""The end of such a file's name."""
DIGEST_LIMIT = 24_000
"""Characters of a run's digest here."""
LARGEST = 64 << 10
"""Bytes of a digest file at most."""
_UNPACKED = 4 << 20
"""The most bytes that resources may unpack to."""
_MEMORY = 32 << 20
"""Bytes of memory that unpacking may use."""
_UNIT = "generator/0"
"""The one unit of the run while it is gathered from its digest."""


class DigestFile(BaseModel):
    """A run in one file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    """The version of this format."""
    run: SharedRun
    """The run's id, its plan without paths, and when it was made."""
    host: Host | None
    """The machine that the load came from."""
    places: Places | None = None
    """Where target and workers ran on it, if a lab named that."""
    digest: str = Field(min_length=1)
    """The digest of all that the run measured (digest/unit_digest.py)."""
    resources: str = ""
    """What the target used, for figures that have a cost: base64 of xz of resources.json; empty if nothing was
    gathered."""


def write_digest_file(run: Path, file: Path) -> None:
    """Write the run in a directory to a digest file, which has to end in SUFFIX.

    Raises UserError for a directory without a finished run of a plan, and for one that does not fit into LARGEST.
    """
    manifest = Manifest.load(run)
    if manifest.plan is None or manifest.status in ("running", "cut"):
        raise UserError("run", str(run), "a run of a plan that has ended by itself")
    with tempfile.TemporaryDirectory(prefix="tippingpoint-digest-") as kept:
        part = Path(kept) / "part"
        shutil.copytree(run, part, ignore=shutil.ignore_patterns("report.html", "ledger.jsonl"))
        ran = manifest.id.lower()
        renamed = manifest.model_copy(update={"id": f"{ran}.0", "unit": _UNIT})
        renamed.save(part)
        digest = make_digest(part, DIGEST_LIMIT)
    shared = SharedRun(
        id=ran, plan=_without_paths(manifest.plan), made=manifest.started, units=[_UNIT], over=True
    )
    kept_file = DigestFile(
        run=shared,
        host=manifest.host,
        places=manifest.places,
        digest=digest,
        resources=_packed_resources(run),
    )
    text = orjson.dumps(kept_file.model_dump(mode="json", exclude_defaults=True), option=orjson.OPT_INDENT_2)
    if len(text) > LARGEST:
        raise UserError("run", str(run), f"a run that fits into {LARGEST >> 10} KiB ({len(text):,} bytes)")
    replace_file(file, text.decode() + "\n")


def load_digest_file(file: Path) -> RunData:
    """Return the run in a digest file, which may be a pipe; raises UserError if it is none."""
    with Input("run", file) as opened:
        text = opened.read(LARGEST, "a digest file")
    try:
        kept = DigestFile.model_validate_json(text)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UserError("run", str(file), f"a digest file ({where}: {first['msg'].lower()})") from None
    out = tempfile.TemporaryDirectory(prefix="tippingpoint-digest-")
    atexit.register(out.cleanup)  # readers of the run still need its directory
    directory = gather(kept.run, {_UNIT: kept.digest}, {}, Path(out.name))
    _as_one_run(directory, kept)
    if kept.resources:
        write_resources(directory, _unpacked_resources(file, kept.resources))
    return load_run(directory)


def _as_one_run(directory: Path, kept: DigestFile) -> None:
    """Take the one unit out of a gathered run, so that it reads as a run of one machine."""
    manifest = Manifest.load(directory)
    manifest.host, manifest.places = kept.host, kept.places
    manifest.save(directory)
    log = directory / "events.jsonl"
    lines: list[str] = []
    for line in log.read_text(encoding="utf-8").splitlines():
        event: dict[str, Any] = orjson.loads(line)
        if event.get("event") == UNIT:
            if event["status"] != "complete":
                raise UserError("run", kept.run.id, f"a whole digest ({event['why']})")
            continue
        if event.get("event") == "note":
            event["text"] = str(event["text"]).removeprefix(f"{_UNIT}: ")
        if "line" in event:  # numbered, so that a missing line is noticed
            event["line"] = len(lines) + 1
        lines.append(orjson.dumps(event).decode())
    replace_file(log, "\n".join(lines) + "\n")


def _packed_resources(run: Path) -> str:
    resources, _ = read_resources(run)
    if resources is None:
        return ""
    for figure in resources.figures:
        for series in figure.series:
            series.values = [None if value is None else float(f"{value:.3g}") for value in series.values]
    costly = resources.model_copy(
        update={"figures": [figure for figure in resources.figures if figure.cost], "missing": []}
    )
    return base64.b64encode(lzma.compress(costly.model_dump_json().encode())).decode()


def _unpacked_resources(file: Path, packed: str) -> Resources:
    """Return the resources in a digest file; raises UserError for other text, or for far too much of it."""
    try:
        text = lzma.LZMADecompressor(memlimit=_MEMORY).decompress(
            base64.b64decode(packed, validate=True), max_length=_UNPACKED
        )
        return Resources.model_validate_json(text)
    except (ValueError, lzma.LZMAError):
        raise UserError("run", str(file), "a digest file (resources: not readable)") from None


def _without_paths(fields: Any) -> Any:
    """Return a plan's fields with each absolute path cut to the file's name."""
    if isinstance(fields, Mapping):
        return {str(name): _without_paths(value) for name, value in fields.items()}  # pyright: ignore
    if isinstance(fields, list):
        return [_without_paths(value) for value in fields]  # pyright: ignore
    if isinstance(fields, str) and fields.startswith("/"):
        return Path(fields).name
    return fields
