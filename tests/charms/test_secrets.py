"""What a charm may ask for in a secret."""

from __future__ import annotations

import pytest
from tippingpoint_charm.secrets import Keys


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
