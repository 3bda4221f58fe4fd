"""Directories of runs as a crash leaves them, and what an enemy makes of their ledgers and manifests."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tippingpoint.cli.program import main
from tippingpoint.rundir.ledger import FILE as LEDGER
from tippingpoint.rundir.ledger import Entry
from tippingpoint.rundir.manifest import FILE as MANIFEST
from tippingpoint.rundir.manifest import Manifest, TargetEntry

RUN, OTHER = "20261121-040102-fill-1f3a", "20261121-050102-fill-2e4b"
"""The run whose directory it is, and one that is somebody else's."""
_PROGRESS = ("removing ", "tippingpoint: removing ")


def manifest_of(run: str, kind: str) -> dict[str, Any]:
    """What is in the manifest of a run that was cut."""
    made = Manifest(
        id=run, title="fill", target=TargetEntry(kind=kind), status="cut", started=1.8e9, ended=1.8e9 + 60
    )
    return json.loads(made.model_dump_json())


def put_run(directory: Path, *entries: Entry | dict[str, Any], run: str = RUN, kind: str = "") -> Path:
    """The directory of a run that has these in its ledger, in the place of what was there."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    documents = [
        entry if isinstance(entry, dict) else json.loads(entry.model_dump_json()) for entry in entries
    ]
    (directory / MANIFEST).write_text(json.dumps(manifest_of(run, kind or documents[0].get("kind", "etcd"))))
    (directory / LEDGER).write_text("".join(json.dumps(document) + "\n" for document in documents))
    return directory


def clean(directory: Path) -> tuple[int, str, str]:
    """What `tippingpoint clean` comes to: its exit code, and what it says on its outputs, without how far it is."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(["clean", str(directory)])
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    said = [line for line in err.getvalue().splitlines(True) if not line.startswith(_PROGRESS)]
    return code, out.getvalue(), "".join(said)


def expect_one_line(code: int, out: str, err: str) -> None:
    """That is how a clean ends, whatever it was given."""
    assert code in (0, 2, 3), (code, err)
    assert (out.count("\n"), err) == (1, "") if code == 0 else (err.count("\n"), out) == (1, ""), (out, err)
    assert (out + err).rstrip("\n").isprintable(), (out, err)
    assert len(err) < 1000


_HOSTILE: list[Any] = [
    None, True, 0, -1, 1 << 40, 3 << 40, 2**63, 10**400, 1e308, 0.5,
    "", ".", "..", "../..", "/", "/etc", "/dev/zero", "x/../../y", "\x1b[31m\n", "\x00", "é" * 300, "tp", "default",
    "*", OTHER, "etcd", "juju", "lxd", "openstack", "cut", [], {}, [[]], ["a"], {"kind": "etcd"},
]  # fmt: skip


def _paths(value: Any) -> list[tuple[str, ...]]:
    """Where something is in a document."""
    if not isinstance(value, dict):
        return [()]
    return [(key, *rest) for key, inside in value.items() for rest in [(), *_paths(inside)] if rest or key]


def _changed(document: dict[str, Any], path: tuple[str, ...], value: Any, remove: bool) -> dict[str, Any]:
    changed = json.loads(json.dumps(document))
    place = changed
    for key in path[:-1]:
        place = place[key] if isinstance(place, dict) and key in place else {}
    if isinstance(place, dict) and path:
        if remove:
            place.pop(path[-1], None)
        else:
            place[path[-1]] = value
    return changed


@st.composite
def spoilt(
    draw: st.DrawFn, entry: dict[str, Any], others: dict[str, Any], *more: Any
) -> Callable[[Path], None]:
    """What makes a directory of RUN, whose ledger has this entry, one that is not to be believed. `others` is the entry
    that OTHER has: its values are put in, and `more`. No manifest says that it is OTHER's: such a one would be."""
    theirs = [*more] + [value for path in _paths(others) if not isinstance(value := _at(others, path), dict)]
    ledger, manifest = [entry], manifest_of(RUN, entry["kind"])
    for _ in range(draw(st.integers(1, 3))):
        remove = draw(st.integers(0, 9)) == 0
        match draw(st.sampled_from(["entry", "entry", "entry", "manifest", "more"])):
            case "entry":
                path = draw(st.sampled_from(_paths(ledger[0])))
                ledger[0] = _changed(ledger[0], path, draw(st.sampled_from(_HOSTILE + theirs)), remove)
            case "manifest":
                path = draw(st.sampled_from(_paths(manifest)))
                values = [value for value in _HOSTILE if value != OTHER]
                manifest = _changed(manifest, path, draw(st.sampled_from(values)), remove)
            case _:
                ledger.append(draw(st.sampled_from([others, entry, {}, {"kind": "juju"}])))
    texts = {
        MANIFEST: json.dumps(manifest),
        LEDGER: "".join(json.dumps(each) + "\n" for each in ledger),
    }
    damage = {name: draw(st.sampled_from([_as_it_is, _as_it_is, _as_it_is, *_DAMAGES])) for name in texts}

    def spoil(directory: Path) -> None:
        for name, text in texts.items():
            (directory / name).unlink(missing_ok=True)
            damage[name](directory / name, text)

    return spoil


def _at(document: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = document
    for key in path:
        value = value[key]
    return value


def _as_it_is(path: Path, text: str) -> None:
    path.write_text(text)


def link(path: Path, text: str) -> None:
    """A link to a file elsewhere that has all that is wanted."""
    elsewhere = path.with_name(f"{path.name}.elsewhere")
    elsewhere.write_text(text)
    path.symlink_to(elsewhere)


def folder(path: Path, text: str) -> None:
    path.mkdir()


def pipe(path: Path, text: str) -> None:
    os.mkfifo(path)


def huge(path: Path, text: str) -> None:
    """A line of 50 MB, most of which takes no room."""
    with path.open("w") as file:
        file.write(text)
        file.truncate(50 << 20)


def doubled(path: Path, text: str) -> None:
    """With each key twice."""
    path.write_text(text.replace("{", '{"kind": "etcd", "id": "..", "prefix": "/", ', 1))


def garbage(path: Path, text: str) -> None:
    path.write_bytes(b"\xff\x00{" + text.encode())


def deep(path: Path, text: str) -> None:
    path.write_text("[" * 100_000 + "\n" + text)


_DAMAGES = [link, folder, pipe, huge, doubled, garbage, deep]
