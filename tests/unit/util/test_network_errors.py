"""What fails on the way to a server is told in words, the same for every client."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from tippingpoint.util.network_errors import in_words


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (ssl.SSLCertVerificationError("self-signed certificate"), "the server's certificate: self-signed certificate"),
        (ConnectionResetError(), "connection closed by the server"),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), "connection closed by the server"),
        (TimeoutError(), "no answer in time"),
        (OSError(), "OSError"),
    ],
)  # fmt: skip
def test_a_failure_of_the_network_is_told_in_words(problem: BaseException, words: str) -> None:
    assert in_words(problem) == words
