"""Errors about what a person wrote: no password, token or key in it is shown."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.cli.program import main
from tippingpoint.errors import TargetError, UserError
from tippingpoint.plan.read import parse_plan, read_yaml
from tippingpoint.util.secret_words import is_secret

MARKER = "hunter2MARKER"
OK = "name: p\ntarget: {kind: etcd}\nstages: [{leases: 1}]\n"
SECRETS = st.sampled_from(
    [
        "password",
        "PASSWORD",
        "passwd",
        "pwd",
        "passphrase",
        "token",
        "api_key",
        "api-key",
        "apikey",
        "client_key",
        "secret",
        "private_key",
        "key",
        "application_credential_secret",
        "db_password",
        "passwords",
        "bearer_token",
    ]
)
PLACES = st.sampled_from(
    ["", "target.", "workload.", "stages.0.", "stages.7.", "find.", "target.kind.", "a.b."]
)
VALUES = st.sampled_from(
    [
        "X",
        "[X]",
        "{a: X}",
        "'X'",
        '"X"',
        "[X",
        "*X",
        "&X",
        "!X",
        "!!int X",
        "!!binary X",
        "%X",
        "a: X: b",
        "http://u:X@h",
        "x X",
        "{password: X}",
        "- X",
        "{X: 1}",
        "X\t",
        "@X",
    ]
).map(lambda form: form.replace("X", MARKER))


def refusal(text: str, overrides: list[str]) -> str:
    """What a plan is refused with; empty for one that is taken, as `target.key=&anchor` leaves the field empty."""
    try:
        parse_plan(text, overrides)
    except UserError as refused:
        return str(refused)
    return ""


@given(place=PLACES, name=SECRETS, value=VALUES)
def test_no_override_shows_the_value_of_a_secret(place: str, name: str, value: str) -> None:
    assert MARKER not in refusal(OK, [f"{place}{name}={value}"])


@given(name=SECRETS, value=VALUES, deep=st.integers(0, 3))
def test_no_plan_shows_the_value_of_a_secret(name: str, value: str, deep: int) -> None:
    above = "".join(f"{'  ' * level}target:\n" for level in range(deep))
    assert MARKER not in refusal(f"name: p\n{above}{'  ' * deep}{name}: {value}\n", [])


@given(name=SECRETS, field=st.sampled_from(["target", "workload", "stages", "find", "name", "nonsense"]))
def test_no_value_shows_a_secret_inside_it(name: str, field: str) -> None:
    for value in (f"{{{name}: {MARKER}}}", f"[[{{{name}: {MARKER}}}]]", f"[{{a: {{{name}: [{MARKER}]}}}}]"):
        assert MARKER not in refusal(OK, [f"{field}={value}"])


@given(
    user=st.sampled_from(["u", "", "u%40x"]),
    password=st.sampled_from([MARKER, f"{MARKER}/x", f"a@{MARKER}", f"{MARKER}?#"]),
)
def test_no_error_shows_the_login_of_a_url(user: str, password: str) -> None:
    url = f"http://{user}:{password}@host:2379/path"
    said = [
        refusal(OK, [f"target.endpoints={url}"]),
        refusal(OK, [f"target.endpoints=[{url}]"]),
        str(UserError("--prometheus", url, "a URL")),
        str(UserError("field", "value", f"not {url}")),
        str(TargetError(url, f"cannot reach {url}", "a server")),
    ]
    assert MARKER not in "".join(said)
    assert all("host" in line for line in said)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "etcd-leases", "--set", f"target.password={MARKER}"],
        ["run", "etcd-leases", "--set", f"target.token.x={MARKER}"],
        ["run", "etcd-leases", f"target.password={MARKER}"],
        ["run", "etcd-leases", "--password", MARKER],
        ["run", "etcd-leases", "--passwd", MARKER],
        ["run", "etcd-leases", f"--api-key={MARKER}"],
        ["run", "etcd-leases", "--token", MARKER],
        ["run", f"http://u:{MARKER}@h"],
        ["run", "etcd-leases", "--prometheus", f"http://u:{MARKER}@h:1"],
        ["run", "lxd-members", "--set", f"target.token={MARKER}"],
    ],
    ids=lambda words: " ".join(words[1:]).replace(MARKER, "X"),
)
def test_no_command_shows_a_password_that_it_refuses(arguments: list[str]) -> None:
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(said), pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code in (2, 3)
    assert said.getvalue()
    assert MARKER not in said.getvalue()


def test_other_values_are_shown() -> None:
    assert refusal(OK, ["target.kind=etdc"]).startswith("target.kind: etdc: ")
    assert refusal(OK, ["target.credentialss=x.yaml"]).startswith("target.credentialss: x.yaml: ")
    assert refusal(OK, ["workload.renew_time=oops"]).startswith("workload.renew_time: oops: ")


@pytest.mark.parametrize(
    "name", ["keys_per_lease", "monkey", "keystone", "keyboard", "compass", "bypass", "hockey"]
)
def test_a_name_that_only_looks_alike_is_no_secret(name: str) -> None:
    assert not is_secret(name)


def test_yaml_that_is_none_says_where() -> None:
    with pytest.raises(ValueError, match=r"line 2, column 11$") as problem:
        read_yaml(f"a: 1\n  password: {MARKER}: x")
    assert MARKER not in str(problem.value)
