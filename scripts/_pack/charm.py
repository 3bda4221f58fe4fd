"""Packs one charm with charmcraft's own models and the layout of its uv plugin, on hosts that charmcraft refuses.

The same checkout gives the same bytes, with any umask, time or locale, if zlib is the same. The build block of
charmcraft.yaml is obeyed: platforms, the files that `prime` leaves out, and those that `dump` adds.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import charmcraft
from charmcraft import linters, utils
from charmcraft.dispatch import DISPATCH_SCRIPT_TEMPLATE
from charmcraft.models.charmcraft import Base
from charmcraft.models.manifest import Attribute, Manifest
from charmcraft.models.metadata import CharmMetadata
from charmcraft.models.project import PlatformCharm

BASES = {"ubuntu@24.04": "3.12", "ubuntu@26.04": "3.14"}
"""The bases that charms are packed for, and the version of their python3."""
BASE = "ubuntu@24.04"
"""The base that the bundle deploys on."""
OWN_PACKAGES = ("tippingpoint", "tippingpoint-charm")

# Wheels for this C library run on Ubuntu 24.04 (2.39) and later, and on the Debian 12 (2.36) where packs are tried out.
WHEELS = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}

EARLIEST = 315532800  # 1980-01-01, before which a zip has no dates


class PackError(Exception):
    """There is no pack; the message says why in one line."""


@dataclass(frozen=True)
class Wanted:
    """One charm to pack: its directory's name in charms/, and for which architecture, base and Python (such as 3.12).

    A pack without a base is for trying out.
    """

    name: str
    arch: str
    base: str
    python: str

    @property
    def file_name(self) -> str:
        """The file name in charmcraft's form. A pack without a base is named for its Python."""
        return f"{self.name}_{self.base or f'python{self.python}'}-{self.arch}.charm"


def read_project(root: Path, name: str) -> PlatformCharm:
    """Read charms/NAME/charmcraft.yaml.

    Raises PackError if charmcraft's models refuse it.
    """
    path = root / "charms" / name / "charmcraft.yaml"
    try:
        project = PlatformCharm.from_yaml_file(path)
    except (
        Exception
    ) as error:  # charmcraft raises errors of pydantic, YAML and its own, which have no common base
        raise PackError(f"{path.relative_to(root)}: {one_line(error)}") from error
    assert isinstance(project, PlatformCharm)
    return project


def build_wheels(root: Path, into: Path) -> None:
    """Build the wheels of this workspace's own packages, with the build backend of uv.lock."""
    for package in OWN_PACKAGES:
        uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--package", package, "-o", into,
           cwd=root, env={"SOURCE_DATE_EPOCH": str(EARLIEST)})  # fmt: skip


def pack(root: Path, wanted: Wanted, wheels: Path, work: Path, out: Path) -> None:
    """Write the charm to the file `out`. `wheels` has those of our own packages; `work` is an empty directory.

    Raises PackError.
    """
    project = read_project(root, wanted.name)
    entry = root / "charms" / wanted.name / "src" / "charm.py"
    if not os.access(entry, os.X_OK):
        raise PackError(f"{entry.relative_to(root)}: expected a file that may be executed")
    prime = work / "prime"
    shutil.copytree(
        root / "charms" / wanted.name / "src", prime / "src", ignore=shutil.ignore_patterns("__pycache__")
    )
    dump_files(project, root / "charms" / wanted.name, prime)
    install_packages(root, wanted, wheels, work / "requirements.txt", prime / "venv")
    leave_out(project, wanted, prime)
    (prime / "dispatch").write_text(
        DISPATCH_SCRIPT_TEMPLATE.format(entrypoint="src/charm.py"), encoding="utf-8"
    )
    (prime / "dispatch").chmod(0o755)
    moment = time_of(root)
    write_metadata(project, wanted, prime, moment)
    write_zip(prime, out, moment)


def dump_files(project: PlatformCharm, directory: Path, prime: Path) -> None:
    """Copy the files that parts with the plugin `dump` take from the charm's own directory, such as its icon."""
    for part in project.parts.values():
        if part["plugin"] == "dump":
            for file in part["stage"]:
                shutil.copyfile(directory / part["source"] / file, prime / file)


def install_packages(root: Path, wanted: Wanted, wheels: Path, requirements: Path, venv: Path) -> None:
    packages = venv / "lib" / f"python{wanted.python}" / "site-packages"
    uv("export", "--frozen", "--no-dev", "--package", wanted.name, "--no-emit-workspace", "--no-header",
       "--no-annotate", "-o", requirements, cwd=root)  # fmt: skip
    install = ["pip", "install", "--python", sys.executable, "--target", packages, "--python-version", wanted.python,
               "--python-platform", WHEELS[wanted.arch], "--only-binary", ":all:", "--no-deps"]  # fmt: skip
    uv(*install, "--require-hashes", "--requirements", requirements, cwd=root)
    uv(*install, "--no-index", "--no-cache", "--find-links", wheels, *OWN_PACKAGES, cwd=root)
    shutil.rmtree(
        packages / "bin", ignore_errors=True
    )  # scripts that begin with the path of this host's Python
    for path in (*packages.glob("*.dist-info/uv_cache.json"), packages / ".lock"):
        path.unlink(missing_ok=True)
    # The Python that `dispatch` links into venv/bin reads this file, which is the same as charmcraft's.
    lines = ["home = /usr/bin", "include-system-site-packages = false", f"version_info = {wanted.python}"]
    (venv / "pyvenv.cfg").write_text("\n".join(lines) + "\n", encoding="utf-8")


def leave_out(project: PlatformCharm, wanted: Wanted, prime: Path) -> None:
    """Remove the files named by the part's `prime` filter, and remove missing files from every RECORD."""
    for entry in project.parts[wanted.name].get("prime", []):
        if not entry.startswith("-"):
            raise PackError(
                f"charms/{wanted.name}/charmcraft.yaml: prime: {entry}: expected only what to leave out"
            )
        for path in sorted(prime.glob(entry[1:])):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for record in prime.glob("venv/lib/*/site-packages/*.dist-info/RECORD"):
        rows = list(csv.reader(record.read_text(encoding="utf-8").splitlines()))
        kept = io.StringIO()
        writer = csv.writer(kept, lineterminator="\n")
        writer.writerows(row for row in sorted(rows) if row and (record.parent.parent / row[0]).exists())
        record.write_text(kept.getvalue(), encoding="utf-8")


def write_metadata(project: PlatformCharm, wanted: Wanted, prime: Path, moment: int) -> None:
    said = project.marshal()
    contents = {"metadata": CharmMetadata.from_charm(project).marshal()}
    contents |= {kind: said[kind] for kind in ("config", "actions") if said.get(kind)}
    for kind, content in contents.items():
        # yaml.safe_dump is not used, because dump_yaml changes its output permanently.
        (prime / f"{kind}.yaml").write_text(utils.dump_yaml(content), encoding="utf-8")
    attributes = [
        Attribute(name=checker.name, result=checker.run(prime))
        for checker in (linters.Language(), linters.Framework())
    ]
    bases = [Base.from_str_and_arch(wanted.base, [wanted.arch])] if wanted.base else []
    manifest = Manifest.model_validate(
        {
            "charmcraft-version": charmcraft.__version__,
            "charmcraft-started-at": datetime.fromtimestamp(moment, UTC).isoformat(),
            "bases": bases,
            "analysis": {"attributes": attributes},
            "packed-by": "scripts/pack of Tipping Point, on charmcraft's models; not by charmcraft itself",
            "python": wanted.python,
        }
    )
    text = utils.dump_yaml(manifest.model_dump(mode="json", by_alias=True, exclude_none=True))
    (prime / "manifest.yaml").write_text(text, encoding="utf-8")


def time_of(root: Path) -> int:
    """Return the time of the packed files: the checkout's commit time, or SOURCE_DATE_EPOCH (seconds since 1970)."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        if not said.isdigit():
            raise PackError(f"SOURCE_DATE_EPOCH: {said}: expected seconds since 1970")
        return max(int(said), EARLIEST)
    try:
        command = ["git", "log", "-1", "--format=%ct"]
        return int(subprocess.run(command, cwd=root, capture_output=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return EARLIEST


def write_zip(prime: Path, out: Path, moment: int) -> None:
    """Write the pack, with an entry for each directory.

    When a refresh removes a directory, Juju then removes all of it, bytecode included. Without the entry it would leave
    an empty package, which Python still imports.
    """
    date = datetime.fromtimestamp(moment, UTC).timetuple()[:6]
    partial = out.with_name(f".{out.name}.partial")
    with zipfile.ZipFile(partial, "w") as archive:
        for path in sorted(prime.rglob("*")):
            name = path.relative_to(prime).as_posix()
            entry = zipfile.ZipInfo(f"{name}/" if path.is_dir() else name, date)
            entry.create_system = 3  # Unix, so that the modes count
            if path.is_dir():
                entry.external_attr = 0o040755 << 16 | 0x10  # 0x10: a directory, for MS-DOS
                archive.writestr(entry, b"")
            else:
                entry.external_attr = (0o100755 if path.stat().st_mode & 0o100 else 0o100644) << 16
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    partial.replace(out)


def uv(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> None:
    command: Sequence[str | Path] = [os.environ["UV"], *arguments]
    done = subprocess.run(command, cwd=cwd, env=os.environ | (env or {}), capture_output=True, text=True)
    if done.returncode:
        raise PackError(f"uv {arguments[0]} {arguments[1]}: {one_line(done.stderr)}")


def one_line(problem: object) -> str:
    return " ".join(str(problem).split()) or "failed without a word"
