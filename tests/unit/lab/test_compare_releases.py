"""The order in which releases are run, what is refused before anything is, and what stays where a comparison fails."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from lab.commands import directory_said, write_page
from lab.compare_releases import compared, main, order_of
from tests.unit.made.synthetic import MadeStage, write_run


def test_releases_take_turns_with_a_control_and_every_second_round_is_backwards() -> None:
    assert order_of(["3.4", "3.5"], 3) == [
        ["3.4", "3.5", "3.4-control"],
        ["3.4-control", "3.5", "3.4"],
        ["3.4", "3.5", "3.4-control"],
    ]


def test_a_limit_of_cpu_is_refused_where_no_lab_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lxd", "5.0", "6.0", "--plan=lxd-cluster-small", "--cpu=0.05"]) == 2
    line = "--cpu: 0.05 of lxd: expected etcd: other labs limit no member"
    assert capsys.readouterr().err == f"compare-releases: {line}\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["3.4", "3.5", "--repeats=1"],
            "--repeats: 1: expected 2 or more: one run does not tell how runs differ",
        ),
        (["3.4", "3.4"], "RELEASE: 3.4, 3.4: expected each release once: the control repeats the first"),
        (["3.4", "3.5", "--hold=soon"], "--hold: soon: expected a time, such as 4s"),
        *(
            (["3.4", "3.5", f"--cpu={cpu}"], f"--cpu: {cpu}: expected 0.01 to 1, of a core")
            for cpu in ("nan", "inf", "-1", "0", "1.5")
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["etcd", *words, "--plan=etcd-leases-small"]) == 2
    assert capsys.readouterr().err == f"compare-releases: {line}\n"


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two runs beside each other, of which the second was begun later."""
    return [write_run(tmp_path / f"2026112{n}-101010-etcd-1f3{n}", [MadeStage(100)], seed=n) for n in (1, 2)]


@pytest.mark.parametrize("number", [0, 1])
def test_a_runs_directory_is_the_one_that_it_says_whatever_was_begun_meanwhile(
    runs: list[Path], number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    # given the output of a run, and another run in the same place
    out, made = runs[0].parent, runs[number]
    lines = ["met  All thresholds hold.\n", "No cliff.\n", f"report: {made / 'report.html'}\n"]
    # then its directory is read from its output, which is shown
    assert directory_said(iter(lines), out) == made
    assert capsys.readouterr().out == "".join(lines)
    # and so it is where there was no room for the report beside the journals, or nowhere
    assert directory_said([f"report: /elsewhere/{made.name}.html\n"], out) == made
    assert (
        directory_said([f"report: no room for it; make one with tippingpoint report {made}\n"], out) == made
    )


@pytest.mark.parametrize("lines", [[], ["report: \n"], ["report: nowhere/report.html\n"], ["no report: x\n"]])
def test_a_run_that_says_no_directory_has_none(runs: list[Path], lines: list[str]) -> None:
    assert directory_said(lines, runs[0].parent) is None


def test_a_comparison_that_fails_leaves_the_page_as_it_was_and_says_how_to_compare(
    runs: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    # given runs of which one is damaged
    words = [str(runs[0]), "--with", str(runs[1])]
    page = runs[0].parent / "etcd 3.4-3.5.html"
    (runs[1] / "manifest.json").write_text("no JSON")
    # when they are compared, first without a page of before
    assert write_page(page, *words) == 2
    assert not page.exists()
    command = capfd.readouterr().out.splitlines()[-1]
    assert shlex.split(command) == [".venv/bin/tippingpoint", "compare", *words]
    # then with one
    page.write_text("of yesterday")
    assert write_page(page, *words) == 2
    assert page.read_text() == "of yesterday"
    assert sorted(path.name for path in page.parent.iterdir()) == sorted(
        [page.name, *(run.name for run in runs)]
    )


def test_a_comparison_that_succeeds_replaces_the_page(
    runs: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    page = runs[0].parent / "page.html"
    page.write_text("of yesterday")
    assert write_page(page, *map(str, runs)) == 0
    assert "</html>" in page.read_text(encoding="utf-8")
    assert capfd.readouterr().out.endswith(f"the page is {page}\n")
    assert [path.name for path in page.parent.iterdir() if path.name.startswith(".")] == []


def test_what_was_run_before_a_failure_is_compared_as_far_as_it_goes() -> None:
    a, b, again = Path("a"), Path("b"), Path("again")
    every = {"3.4": [a, a], "3.5": [b], "3.4-control": [again]}
    assert compared(["3.4", "3.5"], every) == ["a", "a", "--with", "b", "--control", "again"]
    assert compared(["3.4", "3.5", "3.6"], {"3.4": [a], "3.6": [b]}) == ["a", "--with", "b"]
    assert compared(["3.4", "3.5"], {"3.4": [a], "3.4-control": [again]}) == []
