"""Which figures a threshold may be about."""

from __future__ import annotations

import pytest

from tippingpoint.errors import UserError
from tippingpoint.monitoring.stage_figures import Scrapes, check_hosts, wanted_figures
from tippingpoint.plan.base import Threshold


def threshold(figure: str, at_most: str, **fields: str) -> Threshold:
    return Threshold.model_validate({"figure": figure, "at_most": at_most, **fields})


def test_a_threshold_is_about_a_figure_of_the_targets_packs() -> None:
    memory = threshold("etcd-memory", "300MB", role="leader")
    load = threshold("host-load-1", "4")
    (first, second) = wanted_figures("etcd", [("thresholds.0", memory), ("thresholds.1", load)])
    assert (first.name, first.pack.name, first.is_rate) == ("etcd-memory of the leader", "etcd", False)
    assert (second.name, second.pack.name) == ("host-load-1", "host")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (threshold("etcd-memry", "1GB"), r"^thresholds\.1\.figure: etcd-memry: expected one of etcd-memory, .*"
         r"did you mean etcd-memory\?"),
        (threshold("juju-goroutines", "1"), r"^thresholds\.1\.figure: juju-goroutines: expected one of etcd-memory"),
        (threshold("etcd-memory", "300"), r"^thresholds\.1\.at_most: 300: expected a size such as 300MB"),
        (threshold("etcd-fsync-time", "0.01"), r"^thresholds\.1\.at_most: 0.01: expected a duration such as 10ms"),
        (threshold("etcd-cpu", "2s"), r"^thresholds\.1\.at_most: 2s: expected a number \(cores\), as etcd-cpu"),
        (threshold("host-load-1", "4", role="leader"), r"^thresholds\.1\.role: leader: expected none: the pack of "
         r"host-load-1 does not know who leads; only etcd-memory"),
        (threshold("etcd-cpu", "2", part="x"), r"^thresholds\.1\.part: x: expected none: etcd-cpu has no parts"),
    ],
)  # fmt: skip
def test_any_other_figure_is_refused_in_one_line(given: Threshold, message: str) -> None:
    with pytest.raises(UserError, match=message):
        wanted_figures("etcd", [("thresholds.1", given)])


def test_a_host_that_is_not_scraped_is_refused() -> None:
    scrapes = Scrapes({"etcd-0": [1.0], "etcd-1": [1.0]})
    check_hosts("thresholds.0", threshold("etcd-cpu", "2", host="etcd-1"), scrapes)
    with pytest.raises(UserError, match=r"^thresholds\.0\.host: etcd-9: expected one of etcd-0, etcd-1$"):
        check_hosts("thresholds.0", threshold("etcd-cpu", "2", host="etcd-9"), scrapes)
