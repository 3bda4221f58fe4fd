"""Who may read the page: its token, logins that end, and pairs that are known by their fingerprint."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.collect.page.access import SESSION, PageAccess, checked_token, read_token
from tippingpoint.collect.page.tls import find_or_make, fingerprint, server_context
from tippingpoint.errors import UserError

TOKEN = "correct-horse-battery-staple"
NOW = 1_790_000_000.0


def test_the_token_and_no_other_text_is_the_token() -> None:
    access = PageAccess(TOKEN)

    assert access.is_token(TOKEN)
    assert access.is_bearer(f"bearer  {TOKEN}")
    assert not access.is_bearer(f"Basic {TOKEN}")


@given(st.text().filter(lambda text: text != TOKEN))
def test_no_other_text_is_the_token(text: str) -> None:
    assert not PageAccess(TOKEN).is_token(text)
    assert not PageAccess(TOKEN).is_login(text, NOW)


def test_a_login_ends_after_its_time() -> None:
    access = PageAccess(TOKEN)
    login = access.login(NOW)

    assert access.is_login(login, NOW + SESSION - 1)
    assert not access.is_login(login, NOW + SESSION)


def test_a_login_cannot_be_made_longer_or_taken_to_another_server() -> None:
    access = PageAccess(TOKEN)
    ends, _, mark = access.login(NOW).partition(".")

    assert not access.is_login(f"{int(ends) + 1}.{mark}", NOW)
    assert not PageAccess(TOKEN).is_login(f"{ends}.{mark}", NOW)


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 1001, "tökens-are-ascii-only", "no\ncontrol-characters"]
)
def test_a_token_that_cannot_be_used_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(UserError, match=r"^page-token: \(not shown\): expected 16 to 1000 characters"):
        checked_token("page-token", token)


def test_a_token_that_systemd_hands_over_is_systemds_to_protect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an access list for the service's user, which shows as a right of the group."""
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o440)
    with pytest.raises(UserError, match="mode 0600"):
        read_token("--token", token)

    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))

    assert read_token("--token", token) == TOKEN


def test_a_pair_of_our_own_is_kept_and_serves_the_names_it_was_made_for(tmp_path: Path) -> None:
    made = find_or_make(tmp_path, ["collector.example", "192.0.2.7", "2001:db8::7"])
    again = find_or_make(tmp_path, [])

    assert fingerprint("certificate", made.certificate) == fingerprint("certificate", again.certificate)
    context = server_context(again)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    trusted = ssl.create_default_context(cafile=made.certificate).get_ca_certs()
    assert trusted == []  # it is no authority, and so can vouch for nothing but itself


@pytest.mark.parametrize(
    "text", ["", "garbage", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_has_no_fingerprint(tmp_path: Path, text: str) -> None:
    (tmp_path / "page.crt").write_text(text)

    with pytest.raises(UserError, match=r"expected a certificate \(PEM\)$"):
        fingerprint("certificate", tmp_path / "page.crt")
