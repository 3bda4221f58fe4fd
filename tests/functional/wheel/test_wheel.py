"""The wheel by itself: built, installed with its dependencies into an empty environment, and run on an etcd."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from lab.etcd.cluster import EtcdLab
from tests.functional.program import CHECKOUT, TO_THE_END, no_traceback, only_run, settings, write_plan
from tippingpoint import __version__
from tippingpoint.plan.shipped import shipped_plans

INSTALL = """
cd {checkout} && . scripts/_bootstrap.sh && need_uv
"$uv" build --quiet --wheel --python {python} --out-dir {into}
"$uv" export --quiet --frozen --no-dev --no-emit-project --output-file {into}/locked.txt
"$uv" venv --quiet --python {python} {into}/venv
install="$uv pip install --quiet --python {into}/venv/bin/python"
$install --require-hashes --requirement {into}/locked.txt
$install --no-index {into}/*.whl
"""
"""Dependencies are those of uv.lock, with their hashes, as in every other environment here. The wheel finds all that it
names among them, as it is installed without an index."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel, and an environment that has it and nothing of this checkout."""
    into = tmp_path_factory.mktemp("wheel")
    script = INSTALL.format(checkout=CHECKOUT, python=sys.executable, into=into)
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return into


def program(installed: Path, cwd: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program of the environment, from a place where nothing of this checkout is found by chance."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    command = [installed / "venv" / "bin" / "tippingpoint", *arguments]
    return subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True)


def packaged() -> set[str]:
    """The files of the package in this checkout: programs, plans, query packs, published figures, pages, licences, and
    the example of a target, which is one of the documentation."""
    folders = {
        CHECKOUT / "tippingpoint": "tippingpoint",
        CHECKOUT / "docs/how-to/example-target": "tippingpoint/cli/example_target",
    }
    found = {
        f"{place}/{path.relative_to(folder).as_posix()}"
        for folder, place in folders.items()
        for path in folder.rglob("*")
        if path.is_file()
    }
    return {path for path in found if "__pycache__" not in path}


def test_a_wheel_has_every_file_of_the_package_and_the_one_version(installed: Path) -> None:
    (wheel,) = installed.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        about = f"tippingpoint-{__version__}.dist-info"
        files = {name for name in archive.namelist() if not name.startswith(about)}
        metadata = HeaderParser().parsestr(archive.read(f"{about}/METADATA").decode())

    assert files == packaged()
    assert metadata["Version"] == __version__


def test_an_empty_environment_with_the_wheel_runs_on_an_etcd_and_opens_the_report(
    etcd: EtcdLab, installed: Path, tmp_path: Path
) -> None:
    # given an environment that has the wheel alone, and a quick plan
    assert program(installed, tmp_path, "--version").stdout == f"tippingpoint {__version__}\n"
    plan = write_plan(tmp_path)
    # when it is run on an etcd
    done = program(installed, tmp_path, "run", plan, *settings(etcd), "--out", tmp_path / "runs")
    # then the run is complete, and says which version made it
    assert done.returncode in TO_THE_END, done.stdout + done.stderr
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "complete"
    assert measured.manifest.host.tippingpoint == __version__
    # and its report opens, as a page with charts, and beside a published result
    assert "uPlot" in (measured.directory / "report.html").read_text()
    beside = program(installed, tmp_path, "compare", measured.directory, "seed:etcd3", "--format", "md")
    assert no_traceback(beside.stdout, beside.stderr)
    assert "shown with published figures" in beside.stdout, beside.stderr
    # and it finds every shipped plan
    listed = program(installed, tmp_path, "plans").stdout
    assert all(name in listed for name in shipped_plans())
