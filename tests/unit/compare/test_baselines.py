"""The published results that the suite ships."""

from __future__ import annotations

import ast
import operator
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tippingpoint.compare.baselines import Baseline, Figure, list_baselines, load_baseline
from tippingpoint.errors import UserError

BASELINES = list_baselines()
FIGURES = [pytest.param(b, f, id=f"{b.name}: {f.what}") for b in BASELINES for f in b.figures]
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value_of(arithmetic: str) -> float:
    def value(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        assert isinstance(node, ast.Constant)
        return float(node.value)

    return value(ast.parse(arithmetic, mode="eval").body)


def test_every_seed_is_there_under_the_names_users_look_for() -> None:
    assert {baseline.name for baseline in BASELINES} == {
        "etcd2",
        "etcd3",
        "juju-2.4.7",
        "juju-2.5.0",
        "juju-2.5.0-legacy",
        "juju-2.5.1",
        "lxd-100-members",
        "lxd-50-members",
        "maas-juju-384-servers",
        "openstack-168000",
        "openstack-rally-one-broker",
        "openstack-rally-two-brokers",
        "pacemaker-1.0.5",
        "pacemaker-1.1.9",
        "virtme",
    }
    assert {re.findall(r"seed (\d+)", b.source.where)[0] for b in BASELINES} == {
        "000",
        "001",
        "002",
        "003",
        "004",
    }


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda b: b.name)
def test_a_baseline_has_something_to_show_and_is_loaded_by_either_name(baseline: Baseline) -> None:
    assert baseline.tables or baseline.figures
    assert load_baseline(baseline.name) is load_baseline(f"seed:{baseline.name}") is baseline
    assert (baseline.run() is None) == (baseline.transcript is None)


@pytest.mark.parametrize(("baseline", "figure"), FIGURES)
def test_a_figure_is_a_number_of_its_sentence_or_follows_from_it(baseline: Baseline, figure: Figure) -> None:
    assert figure.quote == figure.quote.strip()
    assert figure.to is None or figure.to > figure.value
    assert all(count > 0 for count in figure.at.values())
    if figure.derived:
        assert value_of(figure.derived) == pytest.approx(figure.value, rel=0.002)
        return
    written = re.sub(r"(?<=\d),(?=\d{3})", "", figure.quote)
    numbers = {float(n) * (1000 if k else 1) for n, k in re.findall(r"(\d+(?:\.\d+)?)(k\b)?", written)}
    in_words = {"double": 2.0, "a dozen": 12.0, "a couple": 2.0, "10’ths": 0.1}
    numbers |= {number for words, number in in_words.items() if words in figure.quote}
    assert figure.value in numbers
    assert figure.to is None or figure.to in numbers


def test_no_figure_stands_twice_under_the_same_load() -> None:
    for baseline in BASELINES:
        seen = [(f.what, f.role, tuple(f.at.items())) for f in baseline.figures]
        assert len(seen) == len(set(seen)), baseline.name


@pytest.mark.parametrize("name", ["openstack-rally-one-broker", "openstack-rally-two-brokers"])
def test_the_rows_of_a_rally_table_are_in_order(name: str) -> None:
    (table,) = load_baseline(name).tables
    assert [row.operation for row in table.rows] == ["total", "nova.boot_server", "nova.delete_server"]
    for row in table.rows:
        assert row.min < row.avg < row.p90 < row.p95 < row.max
        assert row.count == 5000
    total, boot, delete = table.rows
    assert total.avg == pytest.approx(boot.avg + delete.avg, abs=0.01)


def test_an_unknown_name_is_refused_with_the_nearest_and_the_list() -> None:
    with pytest.raises(
        UserError, match=r"seed:juju-2\.5: expected one of etcd2, etcd3, .*nearest: juju-2\.5\."
    ) as it:
        load_baseline("seed:juju-2.5")
    assert "\n" not in str(it.value)


@pytest.mark.parametrize(
    ("name", "sizes", "kinds"),
    [
        ("juju-2.5.0", [1000, 2000, 4000], ["ramp"] * 3),
        ("juju-2.5.1", [100, 1000, 2000, 4000, 8000, 16000, 20000], ["ramp"] * 6 + ["storm"]),
    ],
)
def test_a_transcript_is_a_run_with_the_stages_of_its_commands_and_counts(
    name: str, sizes: list[int], kinds: list[str]
) -> None:
    run = load_baseline(name).run()
    assert run is not None
    assert [stage.size for stage in run.stages] == sizes
    assert [stage.kind for stage in run.stages] == kinds
    assert (run.manifest.source, run.manifest.timeline) == ("baseline", "order")
    assert (run.manifest.id, run.manifest.target.version) == (f"seed:{name}", name.removeprefix("juju-"))
    reasons = [e["text"] for e in run.events if e["event"] == "note" and e["text"].startswith("stage ")]
    assert len(reasons) == len(sizes), "each stage says what gives its size"
    assert load_baseline(name).run() is run


def test_all_samples_of_the_transcripts_are_read() -> None:
    counted: dict[str, dict[str, int]] = {}
    for name in ("juju-2.5.0", "juju-2.5.1"):
        run = load_baseline(name).run()
        assert run is not None
        counted[name] = {
            f"{operation}.{outcome}": sum(stage.count(operation, outcome) for stage in run.stages)
            for operation, outcome in [
                ("claim", "ok"),
                ("claim", "timeout"),
                ("extend", "ok"),
                ("extend", "lost"),
            ]
        }
    assert counted["juju-2.5.0"] == {"claim.ok": 7, "claim.timeout": 0, "extend.ok": 22, "extend.lost": 2}
    assert counted["juju-2.5.1"] == {"claim.ok": 76, "claim.timeout": 10, "extend.ok": 173, "extend.lost": 0}


def test_a_process_that_is_killed_after_it_read_a_published_log_leaves_nothing(tmp_path: Path) -> None:
    script = "import os, signal; from tippingpoint.compare.baselines import load_baseline\n"
    script += "run = load_baseline('juju-2.5.1').run(); print(len(run.stages), flush=True)\n"
    script += "os.kill(os.getpid(), signal.SIGKILL)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    assert int(done.stdout) > 0
    assert list(tmp_path.iterdir()) == []
