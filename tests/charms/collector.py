"""The metrics-collector charm in ops.testing, and what generators write for it."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO

import ops
import pytest
from ops import testing

from tests.charms.generators import Directory, metadata
from tippingpoint.collect import reports
from tippingpoint.conduct.run_state import SharedRun, UnitWord

ROOT = Path(__file__).parents[2] / "charms" / "metrics-collector"


def load_charm() -> ModuleType:
    """The charm's module. The three charms have modules of the same names: none stays importable by them."""
    source = ROOT / "src"
    own = {path.stem for path in source.glob("*.py")}
    before = {name: sys.modules.pop(name) for name in own if name in sys.modules}
    sys.path.insert(0, str(source))
    try:
        spec = importlib.util.spec_from_file_location("metrics_collector_charm", source / "charm.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        module.parts = {name: sys.modules[name] for name in own if name in sys.modules}
    finally:
        sys.path.remove(str(source))
        for name in own:
            sys.modules.pop(name, None)
        sys.modules.update(before)
    return module


charm = load_charm()


def context(unit: int = 0) -> testing.Context[ops.CharmBase]:
    """The charm as Juju would run it. Without `charm_root` ops writes its files into a directory of each test."""
    return testing.Context(charm.MetricsCollectorCharm, **metadata("metrics-collector"), unit_id=unit)


def on_machine(monkeypatch: pytest.MonkeyPatch, root: Path) -> Directory:
    """A machine that is a directory for the units of this test; the engine runs as ourselves, since nobody may not
    read this checkout."""
    machine = Directory(root)
    pack = root / "pack"
    (pack / "tippingpoint").mkdir(parents=True, exist_ok=True)
    (pack / "tippingpoint/__init__.py").write_text("version = 1\n")
    monkeypatch.setattr(charm.MetricsCollectorCharm, "machine", machine)
    monkeypatch.setattr(charm.MetricsCollectorCharm, "pack", pack)
    monkeypatch.setattr(charm.sandbox, "UNPRIVILEGED", "")
    return machine


def engine_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the engine answer in this process, which has imported it already: a process of its own takes a second."""

    def run(
        _: object, *, input: bytes, stdout: IO[bytes], **__: object
    ) -> subprocess.CompletedProcess[bytes]:
        said = io.StringIO()
        with (
            os.fdopen(os.dup(stdout.fileno()), "w") as answer,
            monkeypatch.context() as patched,
            contextlib.redirect_stdout(answer),
            contextlib.redirect_stderr(said),
        ):
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input)))
            with pytest.raises(SystemExit) as ended:
                reports.main()
        code = ended.value.code
        assert isinstance(code, int)
        return subprocess.CompletedProcess([], code, stderr=said.getvalue().encode())

    def begin(_: object, *, stdin: IO[bytes], stdout: IO[bytes], **__: object) -> None:
        run(_, input=stdin.read(), stdout=stdout)

    monkeypatch.setattr(reports, "give_way", lambda: None)
    processes = SimpleNamespace(**vars(subprocess) | {"run": run, "Popen": begin})
    monkeypatch.setattr(charm.sandbox, "subprocess", processes)


def state_of(machine: Directory, unit: int = 0) -> Path:
    """Where a unit keeps what it collects."""
    return machine.path(f"/var/lib/tippingpoint-metrics-collector-{unit}")


def bag_of_app(run: SharedRun | None) -> dict[str, str]:
    """As the leader of a generator writes it."""
    return {"version": "1"} if run is None else {"version": "1", "run": run.model_dump_json()}


def bag_of_unit(
    unit: str, word: UnitWord | None = None, digest: Mapping[str, str] | None = None
) -> dict[str, str]:
    """As a unit of a generator writes it; `digest` is {"run": id, "digest": text}."""
    bag = {"version": "1", "unit": unit}
    if word is not None:
        bag["word"] = word.model_dump_json()
    if digest is not None:
        bag["result"] = json.dumps(dict(digest))
    return bag


def related(
    run: SharedRun | None = None,
    units: Mapping[int, Mapping[str, str]] | None = None,
    app: str = "load-claimer",
) -> testing.Relation:
    """A generator that is related, with what its leader and its units wrote."""
    return testing.Relation(
        "scale-run",
        remote_app_name=app,
        remote_app_data=bag_of_app(run),
        remote_units_data={number: dict(bag) for number, bag in (units or {0: {}}).items()},
    )


def names(app: str, count: int) -> Sequence[str]:
    """Names of units."""
    return [f"{app}/{number}" for number in range(count)]
