"""Published results against each other, and the sentence that the seeds themselves come to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tippingpoint.compare.baselines import Baseline, Figure, load_baseline
from tippingpoint.compare.compare import compare
from tippingpoint.compare.comparison import Comparison
from tippingpoint.compare.published import PublishedRow, compare_published
from tippingpoint.errors import UserError


def seeds(*names: str) -> list[Baseline]:
    return [load_baseline(name) for name in names]


def compared(*names: str) -> Comparison:
    """As the command line compares seed:NAME with seed:NAME."""
    beside = seeds(*names)
    return compare([run for baseline in beside if (run := baseline.run()) is not None], 0.1, beside)


def row(rows: Sequence[PublishedRow], resource: str) -> PublishedRow:
    (found,) = [row for row in rows if row.resource == resource]
    return found


def published(name: str, *figures: Figure) -> Baseline:
    return load_baseline("etcd2").model_copy(update={"name": name, "title": name, "figures": list(figures)})


def test_the_juju_seed_comes_to_the_sentence_of_its_author() -> None:
    # 4.2 GB and 1.4 GB allocated, 2.5 GB and 700 MB of heap, each at 9,000 connections
    assert compared("juju-2.5.0", "juju-2.5.1").sentence == (
        "2.5.1 passed 16,000 leases, the largest tried; 2.5.0 tips at 2,000 to 4,000; "
        "memory per connection 0.33x, heap per connection 0.28x (2.5.1 to 2.5.0, as published). "
        "One run each: differences between runs are not known."
    )


def test_the_etcd_seed_comes_to_its_four_charts_and_claims_no_tipping_point() -> None:
    assert compared("etcd2", "etcd3").sentence == (
        "v3 schema against v2 schema, as published: CPU at least 1 core less, memory at most 0.57x, "
        "disk IOPS about 0.33x, network 0.1x; tipping points were not published."
    )


def test_the_other_way_round_every_bound_turns() -> None:
    assert compared("etcd3", "etcd2").sentence.startswith(
        "v2 schema against v3 schema, as published: CPU at least 1 core more, memory at least 1.76x, "
        "disk IOPS about 3x, network 10x"
    )


def test_memory_is_told_per_connection_where_the_loads_differ() -> None:
    memory = row(compare_published(seeds("juju-2.4.7", "juju-2.5.0", "juju-2.5.1")), "memory")
    assert (memory.unit, memory.per, memory.base) == ("bytes", "connection", 0)
    assert [told and told.value for told in memory.told] == pytest.approx(
        [1.5e9 / 3e3, 4.2e9 / 9e3, 1.4e9 / 9e3]
    )
    assert [told and told.ratio for told in memory.told] == pytest.approx([1, 4.2 / 4.5, 1.4 / 4.5])


def test_what_the_source_says_before_a_number_bounds_the_ratio() -> None:
    heap = row(compare_published(seeds("juju-2.4.7", "juju-2.5.1")), "heap")
    assert [told and told.bound for told in heap.told] == ["", "about"]  # "~1GB heap" at 2.4.7
    over = Figure(what="memory", value=10, unit="GB", qualifier="over", resource="memory", quote="over 10GB")
    below = over.model_copy(update={"value": 5, "qualifier": "below"})
    for base, other, bound in ((over, below, "at most"), (below, over, "at least"), (over, over, "about")):
        memory = row(compare_published([published("a", base), published("b", other)]), "memory")
        assert memory.told[1] is not None
        assert memory.told[1].bound == bound


def test_figures_of_the_same_load_are_paired_and_others_of_that_name_are_not() -> None:
    rows = compare_published(seeds("juju-2.5.0", "juju-2.5.1"))
    (holders,) = [row for row in rows if row.what == "lease holders in the database"]
    assert [told and told.figure and told.figure.at for told in holders.told] == [{"leases": 4000}] * 2
    assert [told and told.value for told in holders.told] == [2712, 4000]


def test_where_each_has_one_figure_they_stand_side_by_side_with_their_loads() -> None:
    rows = {row.what: row for row in compare_published(seeds("lxd-50-members", "lxd-100-members"))}
    leases = rows["lxc network list-leases lxdfan0"]
    assert [told and told.value for told in leases.told] == [100, 180]
    assert [told and told.figure and told.figure.at["members"] for told in leases.told] == [50, 100]
    assert "lxc network list-leases lxdfan0 1.8x" in compared("lxd-50-members", "lxd-100-members").sentence


def test_tables_of_rally_s_are_held_against_each_other_action_by_action() -> None:
    brokers = ("openstack-rally-one-broker", "openstack-rally-two-brokers")
    rows = {row.what: row for row in compare_published(seeds(*brokers))}
    assert [what for what in rows if what.endswith("nova.delete_server")] == [
        f"{measure} of nova.delete_server" for measure in ("min", "avg", "max", "p90", "p95", "success")
    ]
    boot, success = rows["avg of nova.boot_server"], rows["success of nova.boot_server"]
    assert (boot.unit, [told and told.value for told in boot.told]) == ("s", [58.252, 107.974])
    assert success.unit == "share"
    assert [told and told.value for told in success.told] == pytest.approx([1.0, 0.982])
    assert [told and told.figure and told.figure.at for told in boot.told] == [
        {"concurrency": 150, "computes": 300}
    ] * 2
    assert compared(*brokers).sentence == (
        "one RabbitMQ broker for Nova and one for Neutron against one RabbitMQ broker, as published: "
        "avg of total 1.52x, avg of nova.boot_server 1.85x, avg of nova.delete_server 0.38x; "
        "tipping points were not published."
    )


def test_a_baseline_that_says_nothing_of_it_has_nothing_in_the_row() -> None:
    rows = compare_published(seeds("pacemaker-1.1.9", "etcd2", "etcd3"))
    memory = row(rows, "memory")
    assert memory.told[0] is None
    assert memory.base == 1


def test_results_with_no_figure_in_common_are_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="etcd2, lxd-50-members: expected one run or more, or published"):
        compared("etcd2", "lxd-50-members")


def test_a_result_and_the_run_of_its_transcript_are_called_the_same() -> None:
    comparison = compared("juju-2.5.0-legacy", "juju-2.5.0", "juju-2.5.1")
    assert comparison.names == ["2.5.0", "2.5.1"]
    assert comparison.beside_names == ["2.5.0-legacy", "2.5.0", "2.5.1"]
