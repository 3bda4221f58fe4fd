"""The order in which releases are run, and what is refused before anything is."""

from __future__ import annotations

import pytest

from lab.compare_releases import main, order_of


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
