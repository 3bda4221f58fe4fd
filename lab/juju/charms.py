"""Handles the upload of a local charm over HTTP, on the API's port: PUT /model-UUID/charms/NAME-SHA256PREFIX.

Its refusals are those of apiserver/internal/handlers/objects/charms.go of Juju 4.0.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from base64 import b64decode
from dataclasses import dataclass
from http import HTTPStatus

import orjson

from lab.juju.accounts import MODEL_LEVELS, User, has
from lab.juju.controller import Controller
from lab.juju.refusals import Refused

_PATH = re.compile(r"/model-(?P<model>[0-9a-f-]{36})/charms/(?P<object>[^/?]+)")
_STATUS = {
    "unauthorized access": HTTPStatus.UNAUTHORIZED,
    "forbidden": HTTPStatus.FORBIDDEN,
    "not found": HTTPStatus.NOT_FOUND,
    "model not found": HTTPStatus.NOT_FOUND,
}


class _Forbidden(Exception):
    """The user may not change the model."""


@dataclass(slots=True)
class Request:
    """One HTTP request, with header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


def answer(controller: Controller, request: Request) -> bytes:
    """Return the complete response, after which the connection is closed."""
    path = _PATH.fullmatch(request.path)
    if path is None:
        return _response(HTTPStatus.NOT_FOUND, b"404 page not found\n", "text/plain; charset=utf-8")
    if request.method != "PUT":
        text = f"http method {request.method} not implemented\n".encode()
        return _response(HTTPStatus.NOT_IMPLEMENTED, text, "text/plain; charset=utf-8")
    try:
        url = _upload(controller, path["model"], path["object"], request)
    except _Forbidden:
        text = b"authorization failed: permission denied\n"
        return _response(HTTPStatus.FORBIDDEN, text, "text/plain; charset=utf-8")
    except Refused as refusal:
        return refusal_response(refusal, "uploading charm: ")
    return _response(
        HTTPStatus.OK, orjson.dumps({"charm-url": url}), "application/json", f"Juju-Curl: {url}\r\n"
    )


def refusal_response(refusal: Refused, what: str) -> bytes:
    """Return the complete response that refuses a request."""
    status = _STATUS.get(refusal.code, HTTPStatus.BAD_REQUEST)
    reply = {"error": f"{what}{refusal.message}", "error-code": refusal.code}
    return _response(status, orjson.dumps(reply), "application/json")


def _upload(controller: Controller, uuid: str, name_and_hash: str, request: Request) -> str:
    user = _authenticate(controller, request.headers.get("authorization", ""))
    model = controller.models.get(uuid)
    if model is None:
        raise Refused(f'unknown model: "{uuid}"', "model not found")
    if not user.superuser and not has(model.users.get(user.name, ""), "write", MODEL_LEVELS):
        raise _Forbidden
    if (kind := request.headers.get("content-type")) != "application/zip":
        raise Refused(f"expected Content-Type: application/zip, got: {kind}", "bad request")
    name, _, prefix = name_and_hash.rpartition("-")
    if not name:
        raise Refused(f'"{name_and_hash}" is not a valid charm object path', "bad request")
    if len(prefix) < 7:
        raise Refused(f'invalid sha length: "{prefix}"', "bad request")
    url = request.headers.get("juju-curl", "")
    if not url.startswith("local:"):
        raise Refused(f'"{url}" is not a valid charm url', "bad request")
    sha256 = hashlib.sha256(request.body).hexdigest()
    if not sha256.startswith(prefix):
        raise Refused("charm hash mismatch", "bad request")
    return model.add_charm(name, request.body, sha256).url


def _authenticate(controller: Controller, header: str) -> User:
    tag, password = basic(header)
    known = controller.users.get(tag.removeprefix("user-"))
    if known is None or known.password != password:
        raise Refused("invalid entity name or password", "unauthorized access")
    return known


def basic(header: str) -> tuple[str, str]:
    """Return the tag and the password of a header for HTTP's basic authentication; empty ones if it has none."""
    try:
        tag, _, password = b64decode(header.removeprefix("Basic "), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return tag, password


def _response(status: HTTPStatus, body: bytes, kind: str, more: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n"
    )
    return head.encode() + body
