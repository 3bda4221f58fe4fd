"""What messages show of URLs with a login."""

from __future__ import annotations

import pytest

from tippingpoint.errors import without_logins


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("such as qemu+ssh://USER@HOST/system", "such as qemu+ssh://USER@HOST/system"),
        ("http://USER:hush@h/", "http://...@h/"),
        ("http://USER@hush@h/", "http://...@h/"),
        ("http://USERS@h/", "http://...@h/"),
        ("http://ann:hush@h/ or ssh://USER@h", "http://...@h/ or ssh://USER@h"),
    ],
)
def test_only_the_user_of_an_example_is_shown(text: str, shown: str) -> None:
    assert without_logins(text) == shown
