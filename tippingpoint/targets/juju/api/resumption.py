"""Resuming a server's TLS session without a copy of the server's certificate for each connection.

Python's `ssl` copies a session by serialising and parsing it. So each connection that resumes one has its own copy of
the certificate, about 5 KiB. OpenSSL's SSL_SESSION_dup shares the certificate. It is called here through ctypes. So are
other documented functions of OpenSSL, but none of Python's own. OpenSSL calls a function of ours for each new SSL
object, which gives us the object's address. If Python has OpenSSL linked in, or uses another library in its place,
these functions may be missing. Then sessions are resumed the way `ssl` does it.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import ssl
import threading
from socket import socket
from typing import Any

_CRYPTO_EX_INDEX_SSL = 0  # of openssl/crypto.h

_newest = threading.local()
"""`address` is that of the last SSL object that this thread made."""


@ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_long,
    ctypes.c_void_p,
)
def _made(address: int, *_others: Any) -> None:
    _newest.address = address


class _OpenSSL:
    """Functions of the OpenSSL that `ssl` uses; AttributeError or OSError if they are missing."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        pointer = ctypes.c_void_p
        self.session = library.SSL_get_session
        self.session.restype, self.session.argtypes = pointer, (pointer,)
        self.copy = library.SSL_SESSION_dup
        self.copy.restype, self.copy.argtypes = pointer, (pointer,)
        self.set = library.SSL_set_session
        self.set.restype, self.set.argtypes = ctypes.c_int, (pointer, pointer)
        self.free = library.SSL_SESSION_free
        self.free.restype, self.free.argtypes = None, (pointer,)
        index = library.CRYPTO_get_ex_new_index
        index.restype = ctypes.c_int
        index.argtypes = (ctypes.c_int, ctypes.c_long, pointer, type(_made), pointer, pointer)
        if index(_CRYPTO_EX_INDEX_SSL, 0, None, _made, None, None) < 0:
            raise OSError("CRYPTO_get_ex_new_index")


@functools.cache
def _openssl() -> _OpenSSL | None:
    found = importlib.util.find_spec("_ssl")
    try:
        return _OpenSSL(found.origin) if found is not None and found.has_location and found.origin else None
    except (AttributeError, OSError):
        return None


class Resumption:
    """The session of one server, for all of its connections; none before the first one."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._context = context
        self._server_name = server_name
        self._openssl = _openssl()
        self._session: ssl.SSLSession | None = None
        self._holder: ssl.SSLObject | None = None
        """An SSL object that is never used, and keeps the session that connections' sessions are copied from."""
        self._held = 0
        """The address of the holder's session; 0 if OpenSSL's own copying is not available."""

    def keep(self, session: ssl.SSLSession | None) -> None:
        """Have later connections resume this session."""
        self._held = 0
        self._session, self._holder = session, None
        if session is None or self._openssl is None:
            return
        _newest.address = None
        self._holder = self._context.wrap_bio(
            ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=self._server_name, session=session
        )
        if _newest.address:
            self._held = self._openssl.session(_newest.address) or 0

    def wrap(self, plain: socket) -> ssl.SSLSocket:
        """Put TLS on a connected socket, and take over its descriptor; the handshake is still to be done."""
        _newest.address = None
        tls = self._context.wrap_socket(
            plain, do_handshake_on_connect=False, server_hostname=self._server_name
        )
        if self._session is not None and not self._share(_newest.address):
            tls.session = self._session
        return tls

    def _share(self, address: int | None) -> bool:
        if self._openssl is None or not self._held or not address:
            return False
        # A copy, because OpenSSL marks a session that ended without a shutdown alert, and does not resume it again.
        copy = self._openssl.copy(self._held)
        if not copy:
            return False
        shared = self._openssl.set(address, copy) == 1
        self._openssl.free(copy)  # one reference is left: the SSL object's
        return shared
