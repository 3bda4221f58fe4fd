"""Runs ./scripts/pack: charmcraft packs the charms if it can, otherwise charm.py beside this."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

from charm import BASE, BASES, PackError, Wanted, build_wheels, pack

ROOT = Path(__file__).resolve().parents[2]
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
LIMIT = 40_000_000  # bytes of a pack


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise PackError(message)


def say(text: str) -> None:
    sys.stderr.write(f"pack: {text}\n")  # one write: several charms are packed at once


def read_arguments(arguments: Sequence[str], charms: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="scripts/pack",
        description="Packs charms into dist/, and links dist/NAME.charm to what bundles/scale.yaml then deploys.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(charms)}")
    parser.add_argument("--arch", choices=["amd64", "arm64", "all"], help="default: this machine's")
    parser.add_argument(
        "--base", choices=[*BASES, "all"], help=f"default: {BASE}, which the bundle deploys on"
    )
    parser.add_argument(
        "--for-python",
        metavar="X.Y",
        help="pack for a Python instead of a base, to try it out: the pack's name and manifest say so, and nothing "
        "links to it",
    )
    asked = parser.parse_args(arguments)
    for name in asked.names:
        if name not in charms:
            raise PackError(f"NAME: {name}: expected {', '.join(charms)}")
    if asked.for_python is not None:
        major, _, minor = asked.for_python.partition(".")
        if major != "3" or not minor.isdigit() or int(minor) < 11:
            raise PackError(f"--for-python: {asked.for_python}: expected 3.11 or newer, such as 3.12")
        if asked.base is not None:
            raise PackError(f"--base: {asked.base}: expected none with --for-python")
    return asked


def own_arch() -> str:
    machine = platform.machine()
    if machine not in MACHINES:
        raise PackError(f"--arch: not given, and this machine is {machine}: expected amd64, arm64 or all")
    return MACHINES[machine]


def charmcraft_packs(wanted: Wanted) -> bool:
    """Tell whether charmcraft itself can pack this here.

    It needs an Ubuntu with the snap, the machine's own architecture, and git, by which it finds the monorepo.
    """
    system = platform.freedesktop_os_release().get("ID") if Path("/etc/os-release").exists() else ""
    return (
        system == "ubuntu"
        and shutil.which("charmcraft") is not None
        and wanted.base != ""
        and wanted.arch == MACHINES.get(platform.machine())
        and (ROOT / ".git").exists()
    )


def run_charmcraft(wanted: Wanted, out: Path) -> None:
    directory = ROOT / "charms" / wanted.name
    made = directory / wanted.file_name
    made.unlink(missing_ok=True)
    command = ["charmcraft", "pack", "--platform", f"{wanted.base}:{wanted.arch}"]
    # Without this, charmcraft's build sees only the charm's own directory, and not the rest of the workspace.
    environment = os.environ | {"CHARMCRAFT_EXPERIMENTAL_MONOREPO": "1"}
    ended = subprocess.run(command, cwd=directory, env=environment, stdout=sys.stderr).returncode
    if ended or not made.exists():
        raise PackError(
            f"{' '.join(command)} in charms/{wanted.name}: ended with {ended}, and its output is above"
        )
    shutil.move(made, out)


def pack_all(wanted: Sequence[Wanted]) -> None:
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    by_charmcraft = [each for each in wanted if charmcraft_packs(each)]
    for each in by_charmcraft:
        say(f"{each.name} for {each.arch}: charmcraft packs")
        run_charmcraft(each, dist / each.file_name)
        tell(each, dist)
    with (
        tempfile.TemporaryDirectory(dir=ROOT / ".cache", prefix="pack.") as name,
        ThreadPoolExecutor() as pool,
    ):
        work = Path(name)
        ours = [each for each in wanted if each not in by_charmcraft]
        if ours:
            say("building the wheels of tippingpoint and tippingpoint-charm")
            build_wheels(ROOT, work / "wheels")

        def make(each: Wanted) -> None:
            say(
                f"{each.name} for {each.base or each.python}, {each.arch}: installing its packages and packing"
            )
            own = work / each.file_name
            own.mkdir()
            pack(ROOT, each, work / "wheels", own, dist / each.file_name)
            shutil.rmtree(own)
            tell(each, dist)

        list(pool.map(make, ours))


def tell(wanted: Wanted, dist: Path) -> None:
    size = (dist / wanted.file_name).stat().st_size
    if size > LIMIT:
        raise PackError(
            f"dist/{wanted.file_name}: {size / 1e6:.1f} MB: expected at most {LIMIT / 1e6:.0f} MB"
        )
    say(f"dist/{wanted.file_name}: {size / 1e6:.1f} MB")
    print(f"dist/{wanted.file_name}", flush=True)


def link(wanted: Sequence[Wanted]) -> None:
    """Link dist/NAME.charm to the new pack, for this machine's architecture if there are several."""
    own = MACHINES.get(platform.machine())
    for each in sorted(wanted, key=lambda each: each.arch == own):
        if each.base == BASE:
            fresh = ROOT / "dist" / f".{each.name}.charm.new"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(each.file_name)
            fresh.replace(ROOT / "dist" / f"{each.name}.charm")


def main() -> int:
    try:
        charms = sorted(path.parent.name for path in ROOT.glob("charms/*/charmcraft.yaml"))
        asked = read_arguments(sys.argv[1:], charms)
        arches = ["amd64", "arm64"] if asked.arch == "all" else [asked.arch or own_arch()]
        bases = {"": asked.for_python} if asked.for_python else BASES
        if not asked.for_python and asked.base != "all":
            bases = {base: BASES[base] for base in [asked.base or BASE]}
        wanted = [
            Wanted(name, arch, base, python)
            for base, python in bases.items()
            for arch in arches
            for name in dict.fromkeys(asked.names or charms)
        ]
        pack_all(wanted)
        link(wanted)
    except PackError as problem:
        say(str(problem))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
