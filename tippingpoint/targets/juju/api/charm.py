"""The hollow charm: the smallest archive that a controller accepts, and its upload.

It does nothing, because no agent ever runs it. Its endpoints can relate any two applications: `link` of the one
with `link-from` of the other.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import io
import json
import socket
import zipfile
from http import HTTPStatus
from typing import Any, cast

from tippingpoint.errors import one_line
from tippingpoint.targets.juju.api.dialling import Controller
from tippingpoint.targets.juju.api.errors import ApiError, ConnectionLost
from tippingpoint.targets.juju.api.login import Identity

NAME = "tippingpoint-hollow"
PEER, PROVIDES, REQUIRES = "cluster", "link", "link-from"
"""Names of the charm's endpoints."""
OPTION, ACTION = "setting", "work"
"""Names of the charm's option and action."""

_METADATA = f"""\
name: {NAME}
summary: Units without agents, made by Tipping Point
description: Applications and units that exist in the controller only, to put load on it.
peers:
  {PEER}:
    interface: hollow_cluster
provides:
  {PROVIDES}:
    interface: hollow_link
requires:
  {REQUIRES}:
    interface: hollow_link
"""
_MANIFEST = """\
analysis: {}
bases:
- name: ubuntu
  channel: '22.04'
  architectures: [amd64, arm64, ppc64el, riscv64, s390x]
- name: ubuntu
  channel: '24.04'
  architectures: [amd64, arm64, ppc64el, riscv64, s390x]
"""
_CONFIG = f"""\
options:
  {OPTION}:
    type: string
    default: ""
    description: Read by units at work.
"""
_ACTIONS = f"""\
{ACTION}:
  description: Answered by units at work.
"""
_DISPATCH = "#!/bin/sh\nexit 0\n"
_ANSWER_WITHIN = 60.0
_LARGEST_ANSWER = 1 << 20
_PLAIN = "plain text"
"""The key of an answer that is not JSON."""


def archive() -> bytes:
    """Return the charm as a zip; every call gives the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as charm:
        for name, text, mode in (
            ("metadata.yaml", _METADATA, 0o644),
            ("manifest.yaml", _MANIFEST, 0o644),
            ("config.yaml", _CONFIG, 0o644),
            ("actions.yaml", _ACTIONS, 0o644),
            ("dispatch", _DISPATCH, 0o755),
        ):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # Unix, so that the mode is used
            entry.external_attr = (0o100000 | mode) << 16
            charm.writestr(entry, text)
    return content.getvalue()


async def upload(server: str, ca: str, user: Identity, model: str) -> str:
    """Upload the charm to a model (its UUID) and return its URL, such as "local:tippingpoint-hollow-0".

    As `juju deploy ./x.charm` does (api/client/charms/localcharmputters.go): PUT to the model's charm objects, or POST
    to its charms on a controller that has no charm objects (before 3.3). `user` has logged in before. ApiError if the
    controller refuses the charm, ConnectionLost if it cannot be reached, or stops or starts meanwhile.
    """
    return await asyncio.to_thread(_upload, server, ca, user, model)


def _upload(server: str, ca: str, user: Identity, model: str) -> str:
    charm = archive()
    reference = f"{NAME}-{hashlib.sha256(charm).hexdigest()[:7]}"
    curl = {"Juju-Curl": f"local:{NAME}-0"}
    status, headers, answer = _request(
        server, ca, user, "PUT", f"/model-{model}/charms/{reference}", charm, curl
    )
    if status in (404, 405, 501) and not answer.get("error-code"):
        path = f"/model/{model}/charms?series=jammy&schema=local&revision=0"
        status, headers, answer = _request(server, ca, user, "POST", path, charm, {})
    if status != 200:
        error = answer.get("error")
        problem = error or f"answers HTTP {status}{f': {said}' if (said := answer.get(_PLAIN)) else ''}"
        if not error and (status == HTTPStatus.UNAUTHORIZED or status >= HTTPStatus.INTERNAL_SERVER_ERROR):
            # The user has just logged in. A controller that stops or starts reports any error of its database as 401.
            raise ConnectionLost(server, f"charm {NAME}: {problem}")
        raise ApiError(f"charm {NAME}: {problem}", str(answer.get("error-code") or ""), "Charms", "upload")
    url = headers.get("Juju-Curl") or answer.get("charm-url")
    if not isinstance(url, str) or not url.startswith("local:"):
        raise ApiError(f"charm {NAME}: accepted without a charm URL", "", "Charms", "upload")
    return url


def _request(
    server: str, ca: str, user: Identity, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, http.client.HTTPMessage, dict[str, Any]]:
    host, _, port = server.rpartition(":")
    credentials = base64.b64encode(f"{user.tag}:{user.password}".encode()).decode()
    sent = {"Content-Type": "application/zip", "Authorization": f"Basic {credentials}", **headers}
    context = Controller([server], ca).context
    try:
        plain = socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_WITHIN)
        with plain, context.wrap_socket(plain, server_hostname="juju-apiserver") as encrypted:
            connection = http.client.HTTPConnection(host, int(port))
            connection.sock = encrypted
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            content = response.read(_LARGEST_ANSWER)
            return response.status, response.headers, _answer(content)
    except (OSError, http.client.HTTPException) as problem:
        raise ConnectionLost(server, str(problem) or type(problem).__name__) from None


def _answer(content: bytes) -> dict[str, Any]:
    try:
        answer: object = json.loads(content)
    except ValueError:  # a plain page, for instance for an unknown path
        return {_PLAIN: one_line(content.decode(errors="replace"), 200)}
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
