"""Query packs: what is read, what is refused in one line, and the queries that come of it."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.errors import UserError
from tippingpoint.monitoring.query_packs import Pack, load_pack, packs_for, shipped_packs

FIGURE: dict[str, Any] = {
    "name": "broker-fds",
    "title": "Open files",
    "unit": "count",
    "meaning": "File descriptors that are open.",
    "source": "broker_exporter",
    "expr": "broker_fds{$selector}",
}
PACK: dict[str, Any] = {
    "name": "broker",
    "title": "Broker",
    "meaning": "What a broker tells.",
    "targets": ["openstack"],
    "figures": [FIGURE],
}


def pack_with(figure: dict[str, Any] | None = None, **fields: Any) -> Pack:
    """A pack of one figure, which has these fields besides."""
    return load_pack(
        yaml.safe_dump({**PACK, "figures": [{**FIGURE, **(figure or {})}], **fields}), "broker.yaml"
    )


class TestShipped:
    def test_there_is_a_pack_for_everything_a_seed_looked_at(self) -> None:
        assert set(shipped_packs()) == {
            *("host", "process", "prometheus"),
            *("etcd", "juju", "lxd", "maas", "nova", "neutron", "pacemaker", "rabbitmq"),
        }

    def test_a_pack_is_called_as_its_figures_begin(self) -> None:
        for pack in shipped_packs().values():
            assert all(figure.name.startswith(f"{pack.name}-") for figure in pack.figures)

    def test_no_two_figures_have_one_name(self) -> None:
        names = [figure.name for pack in shipped_packs().values() for figure in pack.figures]
        assert len(set(names)) == len(names)

    @pytest.mark.parametrize(
        ("target", "own"),
        [
            ("etcd", ["etcd"]),
            ("juju", ["juju"]),
            ("lxd", ["lxd"]),
            ("maas", ["maas"]),
            ("openstack", ["neutron", "nova", "rabbitmq"]),
            ("pacemaker", ["pacemaker"]),
            ("somebody-else-s", []),
        ],
    )
    def test_a_run_has_its_target_s_packs_before_those_of_every_target(
        self, target: str, own: list[str]
    ) -> None:
        assert [pack.name for pack in packs_for(target)] == [*own, "host", "process", "prometheus"]

    def test_rates_and_only_rates_span_a_window(self) -> None:
        for pack in shipped_packs().values():
            for figure in pack.figures:
                if figure.unit.endswith("/s") or figure.unit == "cores":
                    assert "[$window]" in figure.expr, figure.name
                elif "$window" in figure.expr:
                    # a mean or a percentile over it, or a share of it
                    assert figure.unit in ("seconds", "ratio"), figure.name

    def test_a_limit_says_why_in_a_sentence(self) -> None:
        limits = [
            figure.limit for pack in shipped_packs().values() for figure in pack.figures if figure.limit
        ]
        assert {limit.of for limit in limits} >= {"CPU", "CPU quota", "memory", "disk", "network", "queue"}
        for limit in limits:
            assert re.fullmatch(r"[A-Za-z0-9].*\.", limit.because.strip()), limit.because

    def test_every_meaning_is_a_sentence(self) -> None:
        for pack in shipped_packs().values():
            for text in (pack.meaning, *(figure.meaning for figure in pack.figures)):
                assert re.fullmatch(r"[A-Z0-9].*\.", text.strip()), text


class TestQuery:
    def test_a_query_names_hosts_whoever_scraped_them(self) -> None:
        (figure,) = pack_with().figures
        query = figure.query(60)
        assert re.search(r"sum by \(host, [a-z_, ]+\) \(label_replace\(label_join\(", query)
        assert re.search(r"sum by \(host, juju_unit, instance, [a-z_, ]+\) \(broker_fds\{\}\)", query)
        assert '"host", "|", "host", "juju_unit", "instance"' in query

    def test_sums_are_within_a_job_and_the_largest_of_a_host_s_jobs_counts(self) -> None:
        (figure,) = pack_with().figures
        assert figure.query(60).startswith("max by (host) (sum by (host, job, ")

    def test_a_part_is_told_apart_beside_the_host(self) -> None:
        (figure,) = pack_with({"by": ["host", "vhost"], "over": "max"}).figures
        assert figure.part == "vhost"
        assert figure.query(60).startswith("max by (host, vhost) (")
        assert "max by (host, juju_unit, instance, vhost) (broker_fds{})" in figure.query(60)

    @pytest.mark.parametrize(
        ("window", "written"),
        [(60, "[60s]"), (7.6, "[8s]"), (0.2, "[1s]"), ("$__rate_interval", "[$__rate_interval]")],
    )
    def test_the_window_is_seconds_or_grafana_s(self, window: float | str, written: str) -> None:
        (figure,) = pack_with({"expr": "rate(broker_io{$selector}[$window])"}).figures
        assert f"broker_io{{}}{written}" in figure.query(window)

    def test_a_selector_is_in_every_selector(self) -> None:
        (figure,) = pack_with({"expr": 'a{b="c",$selector} + d{$selector}'}).figures
        assert 'a{b="c",juju_model="m"} + d{juju_model="m"}' in figure.query(60, 'juju_model="m"')

    def test_words_that_expressions_share_are_written_out(self) -> None:
        pack = pack_with(
            {"expr": "sent{$cards,$selector}"},
            words={"cards": 'device!="lo"'},
            leader="leads{$cards,$selector}",
        )
        assert 'sent{device!="lo",}' in pack.figures[0].query(60)
        assert 'leads{device!="lo",x="y"}' in pack.leader_query('x="y"')

    def test_a_pack_that_cannot_tell_who_leads_has_no_query_for_it(self) -> None:
        assert pack_with().leader_query() == ""


class TestRefused:
    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"figures": []}, "broker.yaml.figures: []: expected "),
            ({"targets": "lxd"}, "broker.yaml.targets: lxd: expected "),
            ({"name": "Broker"}, "broker.yaml.name: Broker: expected "),
            ({"titles": "x"}, "broker.yaml.titles: given: expected one of name, title"),
            ({"figures": [FIGURE, FIGURE]}, "expected each name once (broker-fds is there again)"),
            ({"words": [1]}, "broker.yaml.words: given: expected one of"),
        ],
    )
    def test_a_pack(self, fields: dict[str, Any], said: str) -> None:
        with pytest.raises(UserError) as refused:
            pack_with(**fields)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"unit": "MB"}, "broker.yaml.figures.0.unit: MB: expected 'bytes'"),
            ({"expr": "broker_fds"}, "PromQL whose selectors end with $selector"),
            ({"expr": "a{$cards,$selector}"}, "expected $cards among the words of the pack"),
            ({"by": ["vhost"]}, "host, then at most one other label"),
            ({"by": ["host", "host"]}, "host, then at most one other label"),
            ({"by": []}, "broker.yaml.figures.0.by"),
            ({"over": "median"}, "broker.yaml.figures.0.over: median: expected 'sum'"),
            ({"cost": "yes"}, "broker.yaml.figures.0.cost: yes"),
            (
                {"sauce": "x"},
                "broker.yaml.figures.0.sauce: given: expected one of name, title, unit, meaning, source",
            ),
            ({"alert": {"for": "1m", "summary": "Full"}}, "expected one of above and below"),
            (
                {"alert": {"above": 1, "below": 1, "for": "1m", "summary": "Full"}},
                "expected one of above and below",
            ),
            (
                {"alert": {"above": 1, "for": "soon", "summary": "Full"}},
                "broker.yaml.figures.0.alert.for: soon",
            ),
            ({"alert": {"above": 1, "fore": "1m"}}, "alert.for: missing"),
            ({"limit": {"of": "luck", "above": 1, "because": "So."}}, "broker.yaml.figures.0.limit.of: luck"),
            ({"limit": {"of": "disk", "because": "So."}}, "expected one of above and below"),
            ({"limit": {"of": "disk", "above": 1}}, "limit.because: missing"),
            (
                {"limit": {"of": "disk", "over": 1, "because": "So."}},
                "limit.over: given: expected one of of, above, below, wait, because",
            ),
        ],
    )
    def test_a_figure(self, fields: dict[str, Any], said: str) -> None:
        with pytest.raises(UserError) as refused:
            pack_with(fields)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)

    @pytest.mark.parametrize("name", sorted(FIGURE))
    def test_a_figure_that_lacks_what_it_needs(self, name: str) -> None:
        figure = {field: value for field, value in FIGURE.items() if field != name}
        with pytest.raises(UserError, match=rf"^broker.yaml.figures.0.{name}: missing: expected a value$"):
            load_pack(yaml.safe_dump({**PACK, "figures": [figure]}), "broker.yaml")

    @pytest.mark.parametrize(
        "text", ["", "- a", "a: [", "2001-99-99", "x", "\x00", "!!python/object:os.system {}"]
    )
    def test_what_is_no_mapping(self, text: str) -> None:
        with pytest.raises(UserError, match=r"^broker.yaml: "):
            load_pack(text, "broker.yaml")

    def test_what_is_too_long(self) -> None:
        with pytest.raises(UserError, match=r"expected at most 262144$"):
            load_pack("#" * 300_000, "broker.yaml")


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.integers(),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=8), inside, max_size=3),
    max_leaves=8,
)


@given(
    field=st.sampled_from([*PACK, "words", "leader"]),
    of_figure=st.sampled_from([*FIGURE, "by", "over", "alert", "limit", "cost", "chart", "optional"]),
    value=_ANYTHING,
    other=_ANYTHING,
)
def test_whatever_a_pack_says_it_is_read_or_refused_in_one_line(
    field: str, of_figure: str, value: Any, other: Any
) -> None:
    fields = {**PACK, "figures": [{**FIGURE, of_figure: other}], **{field: value}}
    with contextlib.suppress(UserError):
        load_pack(yaml.safe_dump(fields), "broker.yaml")
        return
    with pytest.raises(UserError, match=r"\A[^\n]+\Z"):
        load_pack(yaml.safe_dump(fields), "broker.yaml")
