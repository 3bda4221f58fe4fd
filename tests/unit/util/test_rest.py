"""What fails on the way to a REST API is told in words, once."""

from __future__ import annotations

import errno
import ssl

import aiohttp

from tippingpoint.util.rest import broken


def test_a_refused_certificate_is_a_matter_of_trust_and_the_rest_of_reach() -> None:
    refused = aiohttp.ClientError("Cannot connect")
    refused.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    gone = aiohttp.ClientError("Cannot connect")
    gone.__cause__ = ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    assert broken("lxd:8443", refused) == (
        "lxd:8443: the server's certificate: self-signed certificate",
        "trust",
    )
    assert broken("lxd:8443", gone) == ("lxd:8443: Connection refused", "unreachable")
    assert broken("lxd:8443", aiohttp.ConnectionTimeoutError()) == (
        "lxd:8443: no connection within 10 s",
        "unreachable",
    )


def test_a_server_that_leaves_without_an_answer_has_closed_the_connection() -> None:
    for problem in (aiohttp.ServerDisconnectedError(), aiohttp.ClientPayloadError("not all of it")):
        assert broken("lxd:8443", problem) == ("lxd:8443: connection closed by the server", "unreachable")
