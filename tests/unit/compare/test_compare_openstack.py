"""Runs on an OpenStack side by side: one broker against two, what a boot costs them, and Rally's published table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.made.openstack_runs import write_cycles, write_servers
from tests.unit.report.test_report import assert_loads_nothing, said
from tippingpoint.analysis.analyse import analyse
from tippingpoint.compare.baselines import load_baseline
from tippingpoint.compare.compare import compare
from tippingpoint.compare.comparison import Comparison, OperationCost
from tippingpoint.report import write_comparison
from tippingpoint.rundir.resources import FigureData, Resources, Series, write_resources
from tippingpoint.rundir.results import RunData, load_run

IDLE = {"nova": 5.0, "neutron": 1.0}
T = [float(t) for t in range(-120, 140, 2)]


def messages(per_boot: dict[str, float], brokers: dict[str, str], seconds: float, rate: float) -> Resources:
    """Messages published a second: what there is always, and so many for each of `rate` boots a second meanwhile."""
    series = [
        Series(
            host=brokers[vhost],
            part=vhost,
            values=[IDLE[vhost] + (rate * each if 0 < t <= seconds else 0.0) for t in T],
        )
        for vhost, each in per_boot.items()
    ]
    published = FigureData(
        name="rabbitmq-published",
        title="Messages published",
        unit="count/s",
        meaning="Messages that clients send to the broker.",
        pack="rabbitmq",
        cost="operations",
        window=2,
        series=series,
    )
    return Resources(source="Prometheus 2.42.0", step=2, t=T, figures=[published])


def boots(path: Path, per_boot: dict[str, float], brokers: dict[str, str], boot: float = 3.8) -> RunData:
    directory = write_cycles(path, 50, boot=boot)
    write_resources(directory, messages(per_boot, brokers, 50, 1.0))
    return load_run(directory)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """One broker with both virtual hosts, and one for each."""
    path = tmp_path_factory.mktemp("brokers")
    one = boots(path / "one", {"nova": 57.0, "neutron": 50.0}, {"nova": "broker-1", "neutron": "broker-1"})
    two = boots(path / "two", {"nova": 57.0, "neutron": 100.0}, {"nova": "broker-1", "neutron": "broker-2"})
    return compare([one, two], beside=[load_baseline("openstack-rally-one-broker")])


def costs(compared: Comparison) -> dict[str, OperationCost]:
    return {cost.costs.key.part: cost for cost in compared.operation_costs}


def test_a_boot_costs_what_it_adds_to_what_there_was_without_any(compared: Comparison) -> None:
    found = costs(compared)
    assert set(found) == {"nova", "neutron"}
    assert found["nova"].costs.values == pytest.approx([57.0, 57.0], rel=0.03)
    assert found["neutron"].costs.values == pytest.approx([50.0, 100.0], rel=0.03)
    assert found["nova"].against[0].change == pytest.approx(1.0)
    assert found["neutron"].against[0].change == pytest.approx(2.0, rel=0.03)
    (key,) = {cost.costs.key[2:] for cost in found.values()}
    assert key == ("boot_server", ("await_active", "create_server", "delete_server", "total"))


def test_messages_of_nova_and_neutron_stand_apart_at_the_load_though_nothing_is_held(
    compared: Comparison,
) -> None:
    found = {figure.part: figure for figure in compared.resources}
    assert set(found) == {"nova", "neutron"}
    levels = {part: [of_run[0] for of_run in figure.levels] for part, figure in found.items()}
    assert [level and level.typical for level in levels["nova"]] == pytest.approx([62, 62])
    assert [level and level.typical for level in levels["neutron"]] == pytest.approx([51, 101])
    (ratio,) = found["neutron"].ratios[0]
    assert ratio is not None
    assert ratio.ratio == pytest.approx(101 / 51)
    assert "neutron" not in compared.sentence, "one run each"


def test_a_boot_is_one_operation_though_its_steps_are_timed(tmp_path: Path) -> None:
    directory = write_servers(
        tmp_path / "run", [40], hosts={"compute-1": 1.0, "compute-2": 1.0}, per_second=1
    )
    write_resources(directory, messages({"nova": 30.0}, {"nova": "broker-1"}, 40, 1.0))
    cost = analyse(load_run(directory)).operation_costs[0]
    assert (cost.operation, cost.value) == ("boot_server", pytest.approx(30.0, rel=0.03))
    assert cost.low < 30 < cost.high


def test_the_page_has_costs_messages_and_rallys_table_with_ours_below(compared: Comparison) -> None:
    html = write_comparison(compared, "html")
    page = assert_loads_nothing(html)
    told = said(page, "operation-costs")
    assert "Messages published of neutron for each boot_server" in told
    assert "with await_active, create_server, delete_server, total" in told
    assert "62/s" in said(page, "resources")
    document = json.loads(write_comparison(compared, "json"))
    (total, boot, delete) = document["beside"][0]["same"][0]
    assert [row["count"] for row in total] == [50, 50]
    assert [(row["run"], row["size"]) for row in boot] == [(0, 50), (1, 50)]
    assert all(
        row["min"] <= row["avg"] <= row["p90"] <= row["p95"] <= row["max"] for row in (*total, *boot, *delete)
    )
    assert 3.4 < boot[0]["avg"] < 4.2
    assert "below each action are the same figures of the runs on this page" in html
    markdown = write_comparison(compared, "md")
    assert "## Resource cost of one operation" in markdown
    assert "| Messages published of neutron for each boot_server, with await_active, " in markdown
    assert "| nova.boot_server | 17.607 | 58.252 | 208.41 | 86.347 | 97.423 | 100 % | 5,000 |" in markdown
    assert "| A, 50 iterations | " in markdown


def test_what_a_comparison_is_about_is_the_boot(compared: Comparison) -> None:
    assert compared.main == "boot_server"
