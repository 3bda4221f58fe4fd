"""Which addresses a secret can be read on the way to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.util.in_clear import is_in_clear, is_loopback


@pytest.mark.parametrize(
    "url",
    [
        "https://cloud.example/v3",
        "http://127.0.0.1:5000/v3",
        "http://127.8.8.8",
        "http://localhost:5000",
        "http://LOCALHOST./",
        "http://[::1]:5000/v3",
        "http://[::ffff:127.0.0.1]/",
    ],
)
def test_tls_and_this_machine_are_safe(url: str) -> None:
    assert not is_in_clear(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1:5000/v3",
        "HTTP://cloud.example",
        "http://localhost.example",
        "http://127.0.0.1.example:5000",
        "http://127.1",
        "http://user@10.0.0.1",
        "http://127.0.0.1@10.0.0.1",
        "http://[fe80::1%25lo]/",
        "http://[::ffff:10.0.0.1]/",
        "http://0.0.0.0",
        "http://[",
    ],
)
def test_plain_http_to_anywhere_else_is_not(url: str) -> None:
    assert is_in_clear(url)


@given(st.ip_addresses())
def test_of_numbers_only_loopback_ones_are(address: object) -> None:
    text = str(address)
    assert is_loopback(text) == (text.startswith("127.") or text == "::1" or text.startswith("::ffff:7f"))
