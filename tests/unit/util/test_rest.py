"""What fails on the way to a REST API is told in words, once."""

from __future__ import annotations

import errno
import socket
import ssl

import aiohttp
import pytest

from tippingpoint.util.rest import broken, told


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (ssl.SSLCertVerificationError("self-signed certificate"), "the server's certificate: self-signed certificate"),
        (aiohttp.ServerDisconnectedError(), "Server disconnected"),
        (OSError(), "OSError"),
    ],
)  # fmt: skip
def test_a_failure_of_the_network_is_told_in_words(problem: BaseException, words: str) -> None:
    assert told(problem) == words


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
