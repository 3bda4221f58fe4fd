"""Calls OpenStack's APIs for a lab, without a client library."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.control import LabError
from lab.patience import PATIENCE_S

_POLL_S = 0.1
COMPUTE_VERSION = "2.87"
"""The newest version of Victoria's Nova, the oldest release that the lab runs. Later ones have it too."""


class Rest:
    """One user's calls to the services of the catalogue, by type, such as `compute`.

    A call returns the answer's JSON. It raises LabError with the answer if it is an error.
    """

    def __init__(self, auth_url: str, user: str, password: str, project: str, ca: Path | None) -> None:
        self.auth_url = auth_url
        self.password = password
        domain = {"name": "Default"}
        identity = {"name": user, "domain": domain, "password": password}
        self._login = {
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": identity}},
                "scope": {"project": {"name": project, "domain": domain}},
            }
        }
        context = ssl.create_default_context(cafile=ca) if ca else None
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
        self._opener = urllib.request.build_opener(*handlers)
        self._token = ""
        self._endpoints: dict[str, str] = {}
        self.user = ""
        """The user's id."""
        self.project = ""
        """The project's id."""
        self._logging_in = threading.Lock()

    def log_in(self) -> None:
        """Get a new token and the catalogue."""
        answer, token = self._ask("POST", f"{self.auth_url}/auth/tokens", self._login, "")
        self._token = token
        said = answer["token"]
        self.user, self.project = said["user"]["id"], said["project"]["id"]
        self._endpoints = {
            service["type"]: endpoint["url"]
            for service in said["catalog"]
            for endpoint in service["endpoints"]
            if endpoint["interface"] == "public"
        }

    def get(self, service: str, path: str) -> Any:
        """Get the content of a service's path."""
        return self.call("GET", service, path)

    def post(self, service: str, path: str, body: Any) -> Any:
        """Create something, or start an action."""
        return self.call("POST", service, path, body)

    def put(self, service: str, path: str, body: Any = None) -> Any:
        """Set something; a body of bytes is sent unchanged."""
        return self.call("PUT", service, path, body)

    def patch(self, service: str, path: str, body: Any) -> Any:
        """Change something."""
        return self.call("PATCH", service, path, body)

    def delete(self, service: str, path: str) -> Any:
        """Remove something."""
        return self.call("DELETE", service, path)

    def call(self, method: str, service: str, path: str, body: Any = None) -> Any:
        """Call a service of the catalogue."""
        with self._logging_in:
            if not self._token:
                self.log_in()
        return self._ask(method, self.endpoint(service) + path, body, self._token)[0]

    def await_answer(
        self, service: str, path: str, body: Any = None, check: Callable[[], object] = lambda: None
    ) -> Any:
        """Repeat `get`, or with a body `post`, until it succeeds. Raises LabError if it takes too long.

        `check` is called between, and raises if there can be no answer any more.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.call("GET" if body is None else "POST", service, path, body)
            except LabError:
                check()
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)

    def endpoint(self, service: str) -> str:
        if service == "identity":
            return self.auth_url
        if service not in self._endpoints:
            raise LabError(f"{service}: not in the catalogue", f"one of {', '.join(self._endpoints)}")
        return self._endpoints[service]

    def _ask(self, method: str, url: str, body: Any, token: str) -> tuple[Any, str]:
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        headers = {
            "Content-Type": kind,
            "X-Auth-Token": token,
            "OpenStack-API-Version": f"compute {COMPUTE_VERSION}",
        }
        request = urllib.request.Request(url, sent, headers, method=method)
        try:
            with self._opener.open(request, timeout=PATIENCE_S) as answer:
                content = answer.read()
                return json.loads(content) if content else None, answer.headers.get("X-Subject-Token", "")
        except urllib.error.HTTPError as refusal:
            with refusal:
                said = refusal.read(2000).decode(errors="replace")
            raise LabError(f"{method} {url}: {refusal.code} {said}", "success") from None
        except (OSError, http.client.HTTPException, ValueError) as problem:
            raise LabError(f"{method} {url}: {problem}", "an answer") from None
