"""A target's resources, in a run's directory: kept whole, read back with the run, and told by role."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.synthetic import MadeStage, write_run
from tippingpoint.cli.program import main
from tippingpoint.rundir.manifest import Manifest, process_started
from tippingpoint.rundir.resources import FILE, FigureData, Resources, Series, read_resources, write_resources
from tippingpoint.rundir.results import load_run


def figure(**hosts: list[float | None]) -> FigureData:
    return FigureData(
        name="memory",
        title="Memory",
        unit="bytes",
        meaning="Resident memory",
        pack="lxd",
        cost="load",
        series=[Series(host=host, values=values) for host, values in hosts.items()],
    )


def resources(**hosts: list[float | None]) -> Resources:
    moments = [15.0 * place for place in range(len(next(iter(hosts.values()), [])))]
    return Resources(
        source="Prometheus 2.42.0", step=15.0, t=moments, figures=[figure(**hosts)] if hosts else []
    )


def with_events(directory: Path, *events: dict[str, Any]) -> Path:
    """A run on whose first worker these events were seen."""
    run = write_run(directory, [MadeStage(100), MadeStage(200)])
    with next(iter(run.glob("worker-*.jsonl"))).open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
    return run


class TestInARunsDirectory:
    def test_what_was_written_is_read_back(self, tmp_path: Path) -> None:
        # given resources with all there may be in them
        written = resources(lxd1=[1.5, None, 3e9], lxd2=[0.0, 1e-9, -2.0]).model_copy(
            update={
                "leader": [(0.0, "lxd1"), (15.0, "")],
                "missing": [("Memory", "nothing was sampled")],
                "gaps": [(0.0, 15.0, "lxd2")],
                "clock": {"lxd1": 0.25},
            }
        )
        # when they are written and read
        write_resources(tmp_path, written)
        # then they are the same, and nothing else is left there
        assert read_resources(tmp_path) == (written, "")
        assert [path.name for path in tmp_path.iterdir()] == [FILE]

    def test_a_run_without_them_has_none(self, tmp_path: Path) -> None:
        run = load_run(write_run(tmp_path / "run", [MadeStage(100)]))
        assert run.resources is None
        assert not any(FILE in note for note in run.notes)

    def test_a_run_brings_them_along_wherever_it_is_unpacked(self, tmp_path: Path) -> None:
        # given a run with resources, as an archive
        run = write_run(tmp_path / "run", [MadeStage(100)])
        write_resources(run, resources(lxd1=[1.0]))
        with tarfile.open(tmp_path / "run.tar.gz", "w:gz") as archive:
            archive.add(run, arcname="run")
        # when it is opened elsewhere
        with tarfile.open(tmp_path / "run.tar.gz") as archive:
            archive.extractall(tmp_path / "elsewhere", filter="data")
        # then they are there
        assert load_run(tmp_path / "elsewhere" / "run").resources == resources(lxd1=[1.0])

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("", "EOF"),
            ("[]", "object"),
            ('{"version": 2}', "version: Input should be 1"),
            (resources(lxd1=[1.0, 2.0]).model_dump_json()[:-40], "EOF"),
            (
                resources(lxd1=[1.0, 2.0]).model_dump_json().replace("[0.0,15.0]", "[15.0,0.0]"),
                "moments that are not in order",
            ),
            (
                resources(lxd1=[1.0, 2.0]).model_dump_json().replace("[0.0,15.0]", "[0.0]"),
                "memory does not have one value for each moment",
            ),
            (resources(lxd1=[1.0, 2.0]).model_dump_json().replace("[1.0,", "[NaN,"), "finite"),
        ],
    )
    def test_a_damaged_file_is_a_note_of_the_run(self, text: str, why: str, tmp_path: Path) -> None:
        # given a run whose file is damaged
        run = write_run(tmp_path / "run", [MadeStage(100)])
        (run / FILE).write_text(text)
        # when the run is read
        read = load_run(run)
        # then it is there all the same, and says so in one line
        assert read.stages
        assert read.resources is None
        (note,) = [note for note in read.notes if FILE in note]
        assert "damaged" in note
        assert why in note
        assert "\n" not in note

    def test_a_file_that_cannot_be_read_is_a_note_too(self, tmp_path: Path) -> None:
        (tmp_path / FILE).mkdir()
        assert read_resources(tmp_path) == (None, f"{FILE}: cannot be read (Is a directory), left out")

    @settings(max_examples=200, deadline=None)
    @given(cut=st.integers(min_value=0), flip=st.integers(min_value=0), to=st.integers(0, 255))
    def test_no_damage_is_more_than_a_note(
        self, cut: int, flip: int, to: int, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        directory = tmp_path_factory.mktemp("run")
        text = bytearray(resources(lxd1=[1.0, None], lxd2=[2.0, 3.0]).model_dump_json().encode())
        text[flip % len(text)] = to
        (directory / FILE).write_bytes(text[: len(text) - cut % 20])
        read, note = read_resources(directory)
        assert (read is None) == bool(note)

    def test_a_write_that_fails_leaves_what_was_there(self, tmp_path: Path) -> None:
        # given resources, and a place where the next cannot be written
        write_resources(tmp_path, resources(lxd1=[1.0]))
        (tmp_path / f"{FILE}.new").mkdir()
        # when others are written
        with pytest.raises(OSError, match=FILE):
            write_resources(tmp_path, resources(lxd1=[2.0]))
        # then the first are still there
        assert read_resources(tmp_path) == (resources(lxd1=[1.0]), "")


class TestWhoLed:
    def test_it_is_what_the_run_saw_where_no_metric_tells(self, tmp_path: Path) -> None:
        # given a run whose worker saw who leads, and resources that do not say
        run = with_events(
            tmp_path / "run",
            {"t": 1.0, "event": "leader", "member": "lxd1"},
            {"t": 20.0, "event": "leader", "member": "lxd2"},
        )
        write_resources(run, resources(lxd1=[1.0, 2.0, 3.0], lxd2=[10.0, 20.0, 30.0]))
        # when it is read
        read = load_run(run).resources
        # then the resources say it
        assert read is not None
        assert read.leader == [(1.0, "lxd1"), (20.0, "lxd2")]
        assert [read.leading(t) for t in (0.0, 1.0, 19.9, 20.0, 1e6)] == ["", "lxd1", "lxd1", "lxd2", "lxd2"]

    def test_what_metrics_tell_holds(self, tmp_path: Path) -> None:
        run = with_events(tmp_path / "run", {"t": 1.0, "event": "leader", "member": "lxd1"})
        told = resources(lxd1=[1.0], lxd2=[10.0]).model_copy(update={"leader": [(0.0, "lxd2")]})
        write_resources(run, told)
        assert load_run(run).resources == told

    def test_a_leader_by_another_name_is_told(self, tmp_path: Path) -> None:
        # given a run that saw a member lead, of which there are resources under another name
        run = with_events(tmp_path / "run", {"t": 1.0, "event": "leader", "member": "lxd1"})
        write_resources(run, resources(**{"10.0.0.1": [1.0]}))
        # when it is read
        read = load_run(run)
        # then nobody leads, and a note says why
        assert read.resources is not None
        assert read.resources.leading(2.0) == ""
        assert "lxd1 led, but no resources were gathered under that name: hosts are 10.0.0.1" in read.notes


class TestByRole:
    def test_the_line_of_the_leader_follows_the_one_who_leads(self) -> None:
        # given three hosts, of which the second leads from 15 s on
        told = resources(lxd1=[9.0, 1.0, 2.0], lxd2=[1.0, 8.0, 7.0], lxd3=[3.0, 3.0, 3.0])
        told.leader = [(0.0, "lxd1"), (15.0, "lxd2")]
        # when they are told by role
        roles = told.roles(told.figures[0])
        # then each moment has its leader, and the others are its followers
        assert list(roles.leader) == [9.0, 8.0, 7.0]
        assert list(roles.low) == [1.0, 1.0, 2.0]
        assert list(roles.middle) == [2.0, 2.0, 2.5]
        assert list(roles.high) == [3.0, 3.0, 3.0]
        assert list(roles.total) == [13.0, 12.0, 12.0]

    def test_while_nobody_is_known_to_lead_all_follow(self) -> None:
        told = resources(lxd1=[9.0], lxd2=[1.0])
        roles = told.roles(told.figures[0])
        assert (list(roles.leader), list(roles.middle), list(roles.total)) == ([None], [5.0], [10.0])

    def test_a_sum_with_a_sample_missing_is_none(self) -> None:
        # given a host with a gap, one that came later and one that was lost for good
        told = resources(
            lxd1=[1.0, None, 1.0, 1.0], lxd2=[None, 10.0, 10.0, 10.0], lxd3=[100.0, 100.0, 100.0, None]
        )
        # then the sum is of those that are there, and there is none in the gap
        assert list(told.roles(told.figures[0]).total) == [101.0, None, 111.0, 11.0]

    def test_hosts_and_parts_are_in_natural_order(self) -> None:
        told = resources(lxd10=[1.0], lxd9=[1.0], lxd1=[1.0])
        assert told.hosts == ["lxd1", "lxd9", "lxd10"]
        parts = [Series(host="a", part=part, values=[1.0]) for part in ("/b", "/a", "")]
        assert figure().model_copy(update={"series": parts}).parts == ["", "/a", "/b"]

    def test_of_a_figure_that_nothing_is_known_of_there_is_nothing(self) -> None:
        told = resources()
        assert told.figure("memory") is None
        roles = told.roles(figure())
        assert not any((roles.leader, roles.low, roles.middle, roles.high, roles.total))


class TestCollect:
    """What the command line refuses before it asks anything; tests/functional/monitoring has the rest."""

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            (["--username", "me"], "--password-file: missing: expected both --username and --password-file"),
            (
                ["--password-file", "p"],
                "--username: missing: expected both --username and --password-file",
            ),
            (
                ["--username", "me", "--password-file", "p", "--token-file", "t"],
                "--token-file: given beside --username: expected one login: either a token or a user name",
            ),
            (
                ["--token-file", "nowhere"],
                "token-file: (not shown): expected a file with a bearer token (No such file or directory)",
            ),
            (["--ca", "nowhere"], "ca: nowhere: expected a file of certificates (PEM)"),
        ],
    )
    def test_a_login_that_is_not_whole_is_refused(
        self, options: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = write_run(tmp_path / "run", [MadeStage(100)])
        with pytest.raises(SystemExit) as refused:
            main(["collect", str(run), "--prometheus", "https://prometheus.example:9090", *options])
        assert refused.value.code == 2
        assert capsys.readouterr().err == f"tippingpoint: {why}\n"

    def test_a_run_that_goes_on_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        # given a run whose process is there, which is this one
        run = write_run(tmp_path / "run", [MadeStage(100)])
        manifest = Manifest.load(run)
        manifest.status, manifest.pid, manifest.pid_started = (
            "running",
            os.getpid(),
            process_started(os.getpid()),
        )
        manifest.save(run)
        # when it is collected, then that is refused
        with pytest.raises(SystemExit) as refused:
            main(["collect", str(run), "--prometheus", "http://127.0.0.1:1"])
        assert refused.value.code == 2
        assert "expected one that has ended: it is still running" in capsys.readouterr().err
