"""Label matchers that say which of a Prometheus' series are the target's."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.endless import ends
from tippingpoint.errors import UserError
from tippingpoint.monitoring.selecting import MOST_TEXT, all_but_generators, applications, read_matchers


@pytest.mark.parametrize(
    ("text", "matchers"),
    [
        ("", ""),
        ("  \n", ""),
        ("juju_model=lxd", 'juju_model="lxd"'),
        (" juju_model = lxd , instance=~10[.]0[.].* ,", 'juju_model="lxd",instance=~"10[.]0[.].*"'),
        ('a!="b, c",d!~x', 'a!="b, c",d!~"x"'),
        (r'a="say \"b\"",c=~"\d"', r'a="say \"b\"",c=~"\\d"'),
        (r"a=C:\b", r'a="C:\\b"'),
        ("a=", 'a=""'),
        ("a=b=c", 'a="b=c"'),
    ],
)
def test_matchers_are_read_as_people_write_them(text: str, matchers: str) -> None:
    assert read_matchers("--only", text) == matchers


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("lxd", "--only: lxd: expected LABEL=VALUE, or with != =~ !~, separated by commas"),
        ("a=b c=d, e", "--only: a=b c=d, e: expected LABEL=VALUE"),
        ('a="b"c', '--only: a="b"c: expected LABEL=VALUE'),
        ("{a=b}", "--only: {a: expected the name of a label; LABEL=VALUE"),
        ("__name__=up", "--only: __name__: expected the name of a label"),
        ("a=~(", "--only: (: expected a regular expression (missing ), unterminated subpattern"),
        ("a=" + "b" * 5000, "--only: 5002 characters: expected at most 4000"),
    ],
)
def test_what_is_no_matcher_is_refused_in_a_line(text: str, line: str) -> None:
    with pytest.raises(UserError) as refused:
        read_matchers("--only", text)
    assert str(refused.value).startswith(line)


def test_applications_are_those_that_are_related() -> None:
    related = [("12ab", "lxd"), ("12ab", "lxd.extra"), ("", "etcd")]
    assert applications(iter(related)) == 'juju_model_uuid=~"12ab",juju_application=~"etcd|lxd|lxd\\\\.extra"'
    assert applications([]) == ""


def test_our_own_machines_are_none_of_the_targets() -> None:
    matchers = all_but_generators(["load-claimer/1", "mine/0"])
    assert 'job!="tippingpoint"' in matchers
    (units,) = re.findall(r'juju_unit!~"([^"]*)"', matchers)
    expression = re.compile(units.replace("\\\\", "\\"))
    assert expression.fullmatch("mine/0")
    assert expression.fullmatch("load-claimer/1")
    assert not expression.fullmatch("lxd/0")
    assert "juju_unit" not in all_but_generators([])


@given(
    text=st.text(max_size=60) | st.from_regex(r'[a-c_]{1,3}(=|=~|!=)[a-c."\\,=~( )]{0,20}', fullmatch=True)
)
def test_whatever_is_written_is_matchers_or_refused_in_a_line(text: str) -> None:
    try:
        matchers = read_matchers("only", text)
    except UserError as refused:
        assert "\n" not in str(refused)  # noqa: PT017
    else:
        # all of them are pairs of a label and a quoted value
        assert re.sub(r'[a-zA-Z0-9_]+(=~|!~|!=|=)"(?:[^"\\\n]|\\.)*"(,|$)', "", matchers) == ""


@pytest.mark.parametrize("pump", [" ", "a", "=", "\\", '"', "\n", "a=b,", "a= "])
def test_a_text_of_the_most_characters_is_read_or_refused(pump: str) -> None:
    with ends():
        for begin in ("a=", 'a="', "a", ""):
            for end in ("", '"', "\n!"):
                with suppress(UserError):
                    read_matchers("where", (begin + pump * MOST_TEXT)[: MOST_TEXT - 2] + end)
