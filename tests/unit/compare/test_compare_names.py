"""Runs beside each other are called as shortly as tells them apart."""

from __future__ import annotations

from typing import Any

from tippingpoint.compare.names import Named, differences, letter, short_names

WEEK = 7 * 86400


def named(number: int, version: str = "3.5.16", title: str = "etcd-ramp", **plan: Any) -> Named:
    started = 1_790_000_000.0 + number * WEEK
    return Named(f"id-{number}", "etcd", version, title, started, {"name": "etcd-ramp", **plan})


def test_releases_are_called_by_their_versions() -> None:
    assert short_names([named(1, "3.4.23"), named(2, "3.5.16")]) == ["3.4.23", "3.5.16"]
    other = Named("x", "juju", "3.5.16", "juju-leases", None, {})
    assert short_names([named(1), other]) == ["etcd 3.5.16", "juju 3.5.16"]


def test_one_release_is_called_by_titles_or_by_the_only_setting_that_differs() -> None:
    assert short_names([named(1, title="before"), named(2, title="after")]) == ["before", "after"]
    titles = [named(n, title=f"Rally, {title}") for n, title in enumerate(("one broker", "two, apart"))]
    assert short_names(titles) == ["one broker", "two, apart"]
    assert short_names([named(1, title="Rally"), named(2, title="Rally, again")]) == ["Rally", "Rally, again"]
    apis = [named(n, target={"kind": "etcd", "api": api}) for n, api in enumerate(("v2", "v3"))]
    assert short_names(apis) == ["api v2", "api v3"]


def test_the_same_week_after_week_is_called_by_its_days() -> None:
    names = short_names([named(number) for number in range(12)])
    assert names[0] == "2026-09-21"
    assert len(set(names)) == 12
    hours = [Named(f"id-{n}", "etcd", "", "t", 1_790_000_000.0 + n * 3600, {}) for n in range(2)]
    assert short_names(hours) == ["2026-09-21 14:13", "2026-09-21 15:13"]


def test_a_run_beside_itself_is_a_letter() -> None:
    assert short_names([named(1), named(1)]) == ["A", "B"]
    assert [letter(number) for number in (0, 25, 26, 27, 702)] == ["A", "Z", "AA", "AB", "AAA"]


def test_where_a_target_is_and_who_asks_is_no_difference_between_plans() -> None:
    def plan(api: str, port: int, over: str) -> dict[str, Any]:
        target = {"kind": "etcd", "api": api, "endpoints": [f"http://h:{port}"], "credentials": f"/s/{port}"}
        return {
            "name": api,
            "lab": f"/tmp/{port}",
            "target": target,
            "stages": [{"leases": 1000, "over": over, "kind": "ramp"}],
        }

    assert differences([plan("v2", 1, "2s"), plan("v3", 2, "4s")]) == [
        "target.api: v2 / v3",
        "stages: leases 1000 over 2s / leases 1000 over 4s",
    ]
    assert differences([plan("v2", 1, "2s"), {}]) == []
    assert differences([{f"s{n}": run for n in range(30)} for run in (1, 2)])[-1] == "and 18 more settings"
