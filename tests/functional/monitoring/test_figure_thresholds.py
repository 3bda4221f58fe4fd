"""Thresholds on figures of a real Prometheus, for runs on a real etcd."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from lab.etcd.cluster import EtcdLab
from lab.prometheus import PrometheusLab
from tests.functional.monitoring.scraping import await_figures
from tests.functional.program import leases_left, no_traceback, only_run, run, settings, start, write_plan
from tippingpoint.analysis.analyse import analyse
from tippingpoint.monitoring.query_packs import shipped_packs
from tippingpoint.monitoring.scrape.jobs import static_targets

WORKLOAD = {"units": 1, "claim_time": "60s", "renew_time": "1s", "timeout": "30s"}
PROPOSALS = {"figure": "etcd-proposals", "role": "leader"}
"""What the leader commits a second: three changes for each lease that is claimed and released."""


def test_a_search_ends_where_a_figure_crosses_its_limit_and_a_run_is_aborted_by_one(
    etcd: EtcdLab, tmp_path: Path
) -> None:
    with PrometheusLab([static_targets("\n".join(etcd.endpoints))]) as prometheus:
        # given limits of what the leader commits, which 40 claims a second reach, and 20; and limits that hold
        plan = write_plan(
            tmp_path,
            workload=WORKLOAD,
            stages=[],
            find={"load": "claims", "start": 20, "limit": 160, "hold": "6s", "over": 0, "resolution": 1}
            | {"also": [{**PROPOSALS, "at_most": 60}]},
            thresholds=[
                {"operation": "claim", "p99": "1m"},
                {**PROPOSALS, "at_most": 120},
                {"figure": "etcd-memory", "at_most": "8GB", "abort": True},
            ],
        )
        # when the limit is searched
        options = (*settings(etcd), "--prometheus", prometheus.url)
        done = run("run", plan, *options, "--out", tmp_path / "found")
        # then the figure binds, and the limit is where it is known to be
        assert no_traceback(done.stdout, done.stderr)
        assert done.returncode == 0, done.stdout + done.stderr
        found = analyse(only_run(tmp_path / "found")).found
        assert found is not None
        assert found.answer.binds == "etcd-proposals of the leader"
        assert "limited by etcd-proposals of the leader over 120" in done.stdout
        assert found.answer.limit == pytest.approx(40, rel=0.4)
        assert [further.threshold for further in found.further] == ["etcd-proposals of the leader over 60"]

        # given a stage below the limit, and one above it that would last for long
        plan = write_plan(
            tmp_path,
            workload=WORKLOAD,
            stages=[
                {"leases": 0, "claims": rate, "over": 0, "hold": hold}
                for rate, hold in ((10, "5s"), (80, "20m"))
            ],
            thresholds=[{**PROPOSALS, "at_most": 120, "abort": True}],
        )
        # when it is run
        done = run("run", plan, *options, "--out", tmp_path / "aborted")
    # then it has ended long before its hold, one line says why, and the first stage has its figure
    assert no_traceback(done.stdout, done.stderr)
    assert done.returncode == 1, done.stdout + done.stderr
    measured = only_run(tmp_path / "aborted")
    assert measured.manifest.status == "aborted"
    line = r"^aborted: etcd-proposals of the leader was \d+ \(threshold 120, abort\)$"
    assert re.search(line, done.stdout, re.MULTILINE)
    (figure,) = measured.stages[0].figures.values()
    assert figure.value == pytest.approx(30, rel=0.5)
    assert figure.host in {endpoint.removeprefix("http://") for endpoint in etcd.endpoints}
    # and a report needs no Prometheus
    assert "etcd-proposals of the leader" in run("report", measured.directory).stdout
    assert leases_left(etcd) == []


def test_what_was_measured_before_prometheus_went_is_in_the_report(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a run with a limit that holds, whose second stage would last for long
    plan = write_plan(
        tmp_path,
        workload=WORKLOAD,
        stages=[{"leases": 10, "over": 0, "hold": hold} for hold in ("4s", "5m")],
        thresholds=[{"figure": "etcd-memory", "at_most": "8GB"}],
    )
    with PrometheusLab([static_targets("\n".join(etcd.endpoints))]) as prometheus:
        # (which has figures already when the first hold begins)
        await_figures(prometheus.url, shipped_packs()["etcd"])
        options = (*settings(etcd), "--prometheus", prometheus.url, "--out", tmp_path / "runs")
        with start("run", plan, *options, "--verbose") as running:
            # when Prometheus is killed once the first stage has its figure, and then the run is ended
            assert running.stderr is not None
            next(line for line in running.stderr if "figure of stage 1" in line)
            prometheus.kill()
            next(line for line in running.stderr if "stage 2/2 hold" in line)
            running.send_signal(signal.SIGINT)
            _, err = running.communicate()
    # then that figure is kept, and that of the second stage is told as not measured
    assert no_traceback("", err)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "interrupted"
    first, second = (stage.figures["etcd-memory"] for stage in measured.stages)
    assert first.value is not None
    assert second.value is None
    assert second.why.startswith(prometheus.url)
