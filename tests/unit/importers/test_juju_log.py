"""Logs of Juju's leadershipclaimer become runs."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tippingpoint.errors import UserError
from tippingpoint.importers.juju_log import import_log
from tippingpoint.importers.juju_log_lines import go_duration, parse_line
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.util.inputs import Input

LONG_FORM = """\
    0.412s connected [ 12345]    0 a0702/0 in 398ms
    0.431s connected [ 12345]    1 a0702/1 in 402ms
3 failed to connect to &{[10.0.0.1:17070] unit-u-0 s3cret} for a0702/2 (retrying): try again
    3.058s claimed leadership of "a0702" for "a0702/0" for 1m0s in 1.652s, renewing after 30s
    3.100s claim of "a0702" for "a0702/1" denied in 21ms, blocking until released
   33.100s extended leadership of "a0702" for "a0702/0" for 1m0s in 47ms, held for 30s, renewing after 30s
   99.800s lost leadership of "a0702" for "a0702/0" after 1m36s in 6.7s, blocking until released
   99.900s blocking of "a0702" for "a0702/1" returned after 1m36.8s, attempting to claim
  105.000s claim of "a0702" for "a0702/1" timed out in 5.1s, retrying
  105.000s claim of "a0702" for "a0702/1" timed out in 5.1s, retrying
  120.000s blocking for leadership of "a0702" for "a0702/0" failed in 20.2s with connection is shut down
  121.000s claim of "a0702" for "a0702/1" failed in 40ms: permission denied
"""


def imported(text: str, folder: Path, *stages: str, sidecar: str | None = None) -> RunData:
    log = folder / "claims.log"
    log.write_text(text, encoding="utf-8", newline="")
    if sidecar is not None:
        (folder / "claims.log.stages.yaml").write_text(sidecar, encoding="utf-8")
    return load_run(import_log(log, folder / "runs", stages))


def refusal(text: str, folder: Path, *stages: str, sidecar: str | None = None) -> str:
    with pytest.raises(UserError) as refused:
        imported(text, folder, *stages, sidecar=sidecar)
    assert "\n" not in str(refused.value)
    assert not list((folder / "runs").glob("*")), "a refused log leaves nothing behind"
    return str(refused.value)


def notes(run: RunData) -> list[str]:
    return [event["text"] for event in run.events if event["event"] == "note"]


def test_the_quiet_form_becomes_samples_of_each_operation(tmp_path: Path) -> None:
    run = imported(
        "  93.596s extended a0702/0 held for 1m30s in 47ms\n"
        "   3.058s claimed  a1601/0 in 1.652s\n"
        " 703.082s lost     a2801/1 after 11m39s in 1m31.99s\n"
        ' 278.801s claim of "c08801" for "c08801/0" failed in 57.14s: lease operation timed out\n'
        '   9.000s claim of "c1" for "c1/0" failed in 12ms: permission denied\n',
        tmp_path,
        "4000@1",
    )
    (stage,) = run.stages
    assert (stage.number, stage.size, stage.kind, stage.begin, stage.end) == (1, 4000, "ramp", 0.0, 1.0)
    expected = {
        "extend.ok": 47_000,
        "extend.ok.service": 47_000,
        "claim.ok": 1_652_000,
        "claim.ok.service": 1_652_000,
        "extend.lost": 91_990_000,
        "claim.timeout": 57_140_000,
        "claim.error": 12_000,
    }
    assert set(stage.histograms) == set(expected)
    for name, value in expected.items():
        assert np.array_equal(stage.histograms[name].counts, Histogram.of([value]).counts), name
    lost, timeout, error = [event for event in run.events if event["event"] != "note"]
    assert (lost["event"], lost["lease"], lost["unit"], lost["held_for"]) == ("lost", "a2801", "a2801/1", 699)
    assert (timeout["event"], timeout["outcome"], timeout["lease"]) == ("error", "timeout", "c08801")
    assert (error["operation"], error["outcome"], error["error"]) == ("claim", "error", "permission denied")
    assert all(0 < event["t"] < 1 for event in (lost, timeout, error))


def test_the_run_says_that_it_is_imported_from_a_closed_loop_without_a_clock(tmp_path: Path) -> None:
    run = imported("1.0s claimed  a/0 in 1s\n", tmp_path, "1@1")
    assert (run.manifest.source, run.manifest.timeline, run.manifest.status) == (
        "import",
        "order",
        "complete",
    )
    assert run.manifest.title == "claims.log"
    assert "closed loop" in run.manifest.origin
    assert "closed loop" in notes(run)[0]
    assert run.stages[0].throughput("claim") is None, "a rate over positions would be invented"
    assert run.directory.name == run.manifest.id


def test_every_line_of_the_long_form_is_understood(tmp_path: Path) -> None:
    run = imported(LONG_FORM, tmp_path, "1@1")
    stage = run.stages[0]
    counts = {name: h.total for name, h in stage.histograms.items() if not name.endswith(".service")}
    assert counts == {
        "connect.ok": 2,
        "claim.ok": 1,
        "claim.denied": 1,
        "extend.ok": 1,
        "extend.lost": 1,
        "claim.timeout": 1,  # printed on stdout and stderr alike
        "claim.error": 1,
    }
    assert stage.response("connect").max == pytest.approx(402_000, rel=0.001)
    assert any("2 connections made and 1 refused" in note for note in notes(run))
    assert any("1 timeouts stand twice" in note for note in notes(run))
    assert not any("no samples" in note or "cannot be read" in note for note in notes(run))
    assert [e["operation"] for e in run.events if e["event"] == "error"] == [
        "connect",
        "claim",
        "wait",
        "claim",
    ]


def test_connections_before_the_first_stage_are_counted_and_not_measured(tmp_path: Path) -> None:
    run = imported(LONG_FORM, tmp_path, "1@3")
    assert "connect" not in run.operations
    assert "2 connections were made before the first stage and not measured" in notes(run)
    (refused,) = [event for event in run.events if event.get("operation") == "connect"]
    assert (refused["outcome"], refused["error"]) == ("limited", "try again")


def test_the_password_that_a_refused_connection_prints_goes_nowhere(tmp_path: Path) -> None:
    run = imported(LONG_FORM, tmp_path, "1@1")
    for path in run.directory.iterdir():
        assert b"s3cret" not in path.read_bytes(), path.name


def test_a_failed_renewal_is_told_from_a_failed_claim_by_what_its_holder_held(tmp_path: Path) -> None:
    run = imported(
        "  5.0s claimed  a/0 in 1s\n"
        ' 60.0s claim of "a" for "a/0" failed in 25s: lease operation timed out\n'
        '  9.0s claim of "b" for "b/0" failed in 5s: lease operation timed out\n',
        tmp_path,
        "2@1",
    )
    assert run.stages[0].count("extend", "timeout") == 1
    assert run.stages[0].count("claim", "timeout") == 1


def test_stages_begin_at_their_lines(tmp_path: Path) -> None:
    text = "".join(f"{n}.0s extended a{n}/0 held for 30s in {n}ms\n" for n in range(1, 8))
    run = imported(text, tmp_path, "100@1", "200@4", "300@6:storm")
    assert [(s.size, s.kind, s.count("extend"), s.begin, s.end) for s in run.stages] == [
        (100, "ramp", 3, 0.0, 1.0),
        (200, "ramp", 2, 1.0, 2.0),
        (300, "storm", 2, 2.0, 3.0),
    ]
    assert run.curves["extend.ok"].count.tolist() == [3, 2, 2]


def test_a_sidecar_beside_the_log_gives_stages_title_and_target(tmp_path: Path) -> None:
    sidecar = """
title: Friday's ramp
target: {kind: juju, version: 3.6.1}
stages:
  - {size: 10, line: 1, because: db.leaseholders.count()}
  - {size: 20, line: 3, kind: storm}
"""
    text = "$ killall\n1.0s claimed  a/0 in 1s\n2.0s claimed  b/0 in 2s\n"
    run = imported(text, tmp_path, sidecar=sidecar)
    assert run.manifest.title == "Friday's ramp"
    assert (run.manifest.target.kind, run.manifest.target.version) == ("juju", "3.6.1")
    assert [(s.size, s.kind, s.count("claim")) for s in run.stages] == [(10, "ramp", 1), (20, "storm", 1)]
    assert any("db.leaseholders.count()" in note for note in notes(run))
    other = imported(text, tmp_path, "7@1")
    assert [s.size for s in other.stages] == [7], "--stage replaces the sidecar's stages"


def test_lines_that_are_no_samples_are_counted(tmp_path: Path) -> None:
    text = (
        "$ for i in `seq 0 99`; do ./leadershipclaimer --quiet & done\n...\n"
        "db.leaseholders.count()\n2712\nWe see some slowdowns.\n"
        "1.0s claimed  a/0 in 1s\n"
        "1.0s claimed  a/0 in soon\n2.0s lost     a/0 after 3s\n"
    )
    run = imported(text, tmp_path, "1@1")
    assert run.stages[0].attempts("claim") == 1
    assert "5 lines are no samples and were left out" in notes(run)
    assert "2 lines begin like samples and cannot be read, the first is line 7" in notes(run)


def test_lines_that_end_as_windows_ends_them_are_read_alike(tmp_path: Path) -> None:
    run = imported("...\r\n1.0s claimed  a/0 in 1s\r\n2.0s claimed  b/0 in 1s\r\n", tmp_path, "1@2", "2@3")
    assert [s.count("claim") for s in run.stages] == [1, 1]


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ((), "--stage 1000@2"),
        (("10@3",), "--stage 1000@2"),
        (("10@1", "20@99"), "a line of the log, which has 3"),
        (("10",), "SIZE@LINE"),
        (("0@1",), "SIZE from 1"),
        (("10@0",), "LINE from 1"),
        (("10@1:flood",), "SIZE@LINE:storm"),
        (("99999999@1",), "SIZE from 1 to 10000000"),
        (("10@2", "20@2"), "a line after 2"),
        (("²@1",), "SIZE@LINE"),
    ],
)
def test_stages_that_do_not_fit_the_log_are_refused(
    tmp_path: Path, stages: tuple[str, ...], says: str
) -> None:
    text = "$ ./leadershipclaimer\n1.0s claimed  a/0 in 1s\n2.0s claimed  b/0 in 1s\n"
    assert says in refusal(text, tmp_path, *stages)


@pytest.mark.parametrize("text", ["", "\n\n", "prose only\n", "1.0s claimed a/0 in never\n", "\x00\xff"])
def test_a_log_without_a_sample_is_refused(tmp_path: Path, text: str) -> None:
    assert "no sample in" in refusal(text, tmp_path)


@pytest.mark.parametrize(
    "sidecar",
    [
        "stages: {",
        "stages: 5",
        "- 1",
        "stages: [{size: many, line: 1}]",
        "stages: [{size: 10}]",
        "title: 2019-99-99",
        "title: " + "[" * 5000,
        "stages: [{size: 10, line: 1, kin: storm}]",
        "leases: 5",
    ],
)
def test_a_sidecar_that_is_none_is_refused(tmp_path: Path, sidecar: str) -> None:
    assert "claims.log.stages.yaml" in refusal("1.0s claimed  a/0 in 1s\n", tmp_path, sidecar=sidecar)


def test_a_log_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for log in (tmp_path / "none.log", tmp_path, Path(".")):
        with pytest.raises(UserError, match="a readable file"):
            import_log(log, tmp_path / "runs", ["1@1"])


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "log").write_text("1.0s claimed  a/0 in 1s\n")
    with pytest.raises(UserError, match="--out"):
        import_log(tmp_path / "log", tmp_path / "file" / "runs", ["1@1"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1m31.99s", 91.99),
        ("10.9s", 10.9),
        ("123ms", 0.123),
        ("1h2m0s", 3720.0),
        ("1h2m", 3720.0),
        ("47µs", 47e-6),
        ("47us", 47e-6),
        ("120ns", 120e-9),
        ("0s", 0.0),
    ],
)
def test_durations_are_read_as_go_writes_them(text: str, seconds: float) -> None:
    assert go_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("text", ["", "5", "s", "1m31", "-5ms", "1,5s", "1s ", "9" * 400 + "s"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert go_duration(text) is None


def go_writes(milliseconds: int) -> str:
    """What Go's time.Duration.String prints for a whole number of milliseconds."""
    if milliseconds == 0:
        return "0s"
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + seconds


CALLS = st.integers(0, 3_600_000)
UNITS = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z]+)?/(0|[1-9][0-9]{0,3})", fullmatch=True)


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, str, int]:
    """A line as the tool prints it, the tag it is a sample of, and how long it took in milliseconds."""
    age, took, unit = draw(st.integers(0, 10**8)) / 1000, draw(CALLS), draw(UNITS)
    held, t = go_writes(draw(st.integers(0, 10**5)) * 1000), go_writes(took)
    of = f'"{unit.rpartition("/")[0]}" for "{unit}"'
    forms = {
        f"extended {unit} held for {held} in {t}": "extend.ok",
        f"extended leadership of {of} for 1m0s in {t}, held for {held}, renewing after 30s": "extend.ok",
        f"claimed  {unit} in {t}": "claim.ok",
        f"claimed leadership of {of} for 1m0s in {t}, renewing after 30s": "claim.ok",
        f"lost     {unit} after {held} in {t}": "extend.lost",
        f"lost leadership of {of} after {held} in {t}, blocking until released": "extend.lost",
        f"claim of {of} denied in {t}, blocking until released": "claim.denied",
    }
    form = draw(st.sampled_from(sorted(forms)))
    return f"{age:9.3f}s {form}\n", forms[form], took


@settings(max_examples=40, deadline=None)
@given(st.lists(lines(), min_size=1, max_size=30))
def test_every_generated_line_is_found_again_under_its_tag(written: list[tuple[str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = imported("".join(line for line, _, _ in written), Path(folder), "5@1")
    expected: dict[str, list[int]] = {}
    for _, name, took in written:
        expected.setdefault(name, []).append(took * 1000)
        if name.endswith(".ok"):
            expected.setdefault(name + ".service", []).append(took * 1000)
    (stage,) = run.stages
    assert set(stage.histograms) == set(expected)
    for name, values in expected.items():
        assert np.array_equal(stage.histograms[name].counts, Histogram.of(values).counts)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.text(),
        st.builds(
            "{}s {} {}".format,
            st.integers(),
            st.sampled_from(["extended", "claimed", "lost", "claim of", "blocking", "connected"]),
            st.text(),
        ),
    )
)
def test_no_text_breaks_the_reader_of_a_line(text: str) -> None:
    try:
        parse_line(text)
    except ValueError:
        assert "s " in text, "only what begins like a sample is called damaged"


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=400))
def test_no_file_breaks_the_importer(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "log").write_bytes(b"1.0s claimed  a/0 in 1s\n" + data)
        run = load_run(import_log(folder / "log", folder, ["1@1"]))
        assert run.stages[0].count("claim") >= 1


def test_a_long_log_is_split_at_its_stages(tmp_path: Path) -> None:
    text = "".join(f"{n}.0s extended a{n}/0 held for 30s in {n % 50 + 1}ms\n" for n in range(10_000))
    run = imported(text, tmp_path, "10@1", "20@5001")
    assert [s.count("extend") for s in run.stages] == [5000, 5000]
    assert run.stages[1].response("extend").percentile(50) == pytest.approx(25_000, rel=0.001)


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path: Path) -> None:
    """Given a log with a hole of NULs in it, as a crash leaves one, or one that is all a single line, of gigabytes that
    take no room, then the first counts as one damaged line and the second is refused; neither takes memory."""
    sample = " 93.596s extended a0702/0 held for 1m30s in 47ms\n"
    log = tmp_path / "claims.log"
    log.write_text(sample + "\0" * (5 << 20) + "\n" + sample)
    run = load_run(import_log(log, tmp_path / "runs", ["1@1"]))
    assert run.stages[0].count("extend") == 2
    with log.open("wb") as file:
        file.write(sample.encode())
        file.truncate(8 << 30)
    tracemalloc.start()
    with pytest.raises(
        UserError, match="line 2 is longer than 16 MiB: expected a log, whose lines have at most 4 KiB"
    ):
        import_log(log, tmp_path / "more", ["1@1"])
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()
    assert not [*(tmp_path / "more").iterdir()]


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom"])
def test_a_device_that_never_ends_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a file, not a device"):
        import_log(Path(path), tmp_path / "runs")
    assert not [*(tmp_path / "runs").glob("*")]


def by_pipe(content: bytes, step: int) -> tuple[int, threading.Thread]:
    """A pipe that a program writes a few bytes at a time into, as `<(zcat claims.log.gz)` may be."""
    reading, writing = os.pipe()

    def write() -> None:
        with open(writing, "wb", buffering=0) as file:
            for begin in range(0, len(content), step):
                file.write(content[begin : begin + step])

    writer = threading.Thread(target=write)
    writer.start()
    return reading, writer


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3000), st.sampled_from([1, 7, 4096, 1 << 20]), st.sampled_from(["", " ", "\n \n"]))
def test_an_import_by_a_pipe_is_that_of_the_file(count: int, step: int, begin: str) -> None:
    # given a log, whose first lines may be blank
    text = begin + "".join(
        f"{n}.000s extended a{n}/0 held for 1m30s in {n}ms\n" for n in range(1, min(count, 40 * step) + 1)
    )
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        (folder / "claims.log").write_text(text)
        runs: list[RunData] = []
        # when it is imported as a file, and by a pipe, through the command
        reading, writer = by_pipe(text.encode(), step)
        for path in (folder / "claims.log", Path(f"/dev/fd/{reading}")):
            with Input("log", path) as file:
                assert not file.is_json()
                runs.append(load_run(import_log(file, folder / "runs", ["5@1"])))
        writer.join()
        os.close(reading)
    # then nothing of it is missing
    (of_file,), (of_pipe,) = runs[0].stages, runs[1].stages
    assert np.array_equal(of_pipe.histograms["extend.ok"].counts, of_file.histograms["extend.ok"].counts)
    assert notes(runs[1])[0].replace("a pipe", "claims.log") == notes(runs[0])[0]


@pytest.mark.parametrize("step", [1, 1 << 20])
def test_json_by_a_pipe_is_known_by_its_first_byte_and_read_whole(step: int) -> None:
    content = b"\xef\xbb\xbf \n\n [1, 2]"
    reading, writer = by_pipe(content, step)
    with Input("log", Path(f"/dev/fd/{reading}")) as file:
        assert file.is_json()
        assert file.read(100, "a file") == content
    writer.join()
    os.close(reading)


def test_a_socket_is_read_as_a_pipe_is(tmp_path: Path) -> None:
    """Standard input is a socket where a server of ssh began the program."""
    theirs, ours = socket.socketpair()
    theirs.sendall(b" 1.000s extended a1/0 held for 1m30s in 3ms\n")
    theirs.close()
    with ours:
        (stage,) = load_run(import_log(Path(f"/dev/fd/{ours.fileno()}"), tmp_path, ["5@1"])).stages
    assert stage.count("extend") == 1
