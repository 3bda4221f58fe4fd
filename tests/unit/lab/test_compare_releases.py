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


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["3.4", "3.5", "--repeats=1"],
            "--repeats: 1: expected 2 or more: one run does not tell how runs differ",
        ),
        (["3.4", "3.4"], "RELEASE: 3.4, 3.4: expected each release once: the control repeats the first"),
        (["3.4", "3.5", "--hold=soon"], "--hold: soon: expected a time, such as 4s"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["etcd", *words, "--plan=etcd-leases-small"]) == 2
    assert capsys.readouterr().err == f"compare-releases: {line}\n"
