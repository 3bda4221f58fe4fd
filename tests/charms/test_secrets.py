"""What a charm may ask for in a secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tippingpoint_charm.secrets import read_any_secret

from tests.charms.related import context, credentials, state
from tippingpoint.util.secret_keys import Keys


def read(**content: str) -> dict[str, str] | None:
    """What a charm reads of a secret with this content."""
    ctx = context()
    with ctx(ctx.on.update_status(), state(**credentials(**content))) as manager:
        return read_any_secret(manager.charm, "credentials")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_newline_that_ends_a_file_is_no_part_of_a_password_or_a_token(end: str) -> None:
    """Given password#file=FILE, then what an editor ends the file with does not count."""
    secret = read(user=f"bob{end}", password=f"pass word{end}", token=f"abc{end}")

    assert secret == {"user": "bob", "password": "pass word", "token": "abc"}


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1).filter(str.strip))
def test_all_else_of_a_password_is_its_own(password: str) -> None:
    """One newline is the file's; spaces, and a second newline, are the password's."""
    assert read(password=password) == {"password": password}
    assert read(password=f"{password}\n") == {"password": password}
    assert read(password=f"{password}\n\n") == {"password": f"{password}\n"}


@pytest.mark.parametrize("key", ["ca", "private_key", "Token", "9lives"])
def test_no_key_is_asked_for_that_juju_refuses(key: str) -> None:
    with pytest.raises(ValueError, match=f"^{key}: expected a key that Juju takes"):
        Keys(("username",), (key,))


def test_keys_fit_a_secret_with_all_that_are_required_and_no_others() -> None:
    keys = Keys(("username", "password"), ("cacert",))
    assert keys.fit({"username", "password"})
    assert keys.fit({"username", "password", "cacert"})
    assert not keys.fit({"username"})
    assert not keys.fit({"username", "password", "token"})
    assert str(keys) == "username, password (and cacert)"
