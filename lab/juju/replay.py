"""Replays recorded requests against any Juju controller, in a new model, and compares the replies.

A recorded pair names the owner of its connection ("machine-0", "unit-hol1-0", "user-admin", "user-admin at the
controller", ...). Words in angle brackets in a request stand for values that differ between models. A pair may `keep`
values of its reply as such words, each by its path in the response: {"<uri>": "results.0.result"}.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
import secrets
import zipfile
from types import TracebackType
from typing import Any, cast

from lab.juju.client import WireClient, upload
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.model import HollowMachineSpec, ModelAdmin
from tippingpoint.targets.juju.hollow import make_model

NO_MODEL = "00000000-0000-4000-8000-000000000000"
CHARM = "tiny"
Files = dict[str, str]
"""The text files of a charm."""
TINY: Files = {
    "metadata.yaml": (
        "name: tiny\nsummary: tiny\ndescription: tiny\npeers: {cluster: {interface: tiny_cluster}}\n"
        "provides: {link: {interface: tiny_link}}\n"
    ),
    "config.yaml": "options: {note: {type: string, default: '', description: a note}}\n",
    "manifest.yaml": ("analysis: {}\nbases: [{name: ubuntu, channel: '24.04', architectures: [amd64]}]\n"),
    "dispatch": "#!/bin/sh\nexit 0\n",
}
"""The smallest charm: a peer endpoint `cluster`, and it provides `link`."""
LINKED: Files = TINY | {
    "metadata.yaml": TINY["metadata.yaml"] + "requires: {link-from: {interface: tiny_link}}\n"
}
"""The same, and it requires `link-from`."""
WORKING: Files = LINKED | {
    "config.yaml": (
        "options: {setting: {type: string, default: none, description: s}, "
        "size: {type: int, default: 1, description: n}}\n"
    ),
    "actions.yaml": "work: {description: works, params: {text: {type: string, default: hi}}}\n",
}
"""The same with two options and an action."""
_PASSWORD = "a-password-of-the-contract-test"
_EXACT = frozenset({"error", "error-code", "message", "code", "life"})
"""Keys whose values must be the recorded ones. For all other keys, only the type must be the same."""
_ANY_LENGTH = frozenset(
    {"servers", "facades", "regions", "auth-types", "users", "user-models", "api-addresses"}
)
_OF_A_PROVIDER = frozenset({"config", "host-cloud-region", "endpoint", "public-dns-name"})
"""Keys that only some cloud providers have."""


class Stage:
    """A new model with the contents of the recording's: machine 0, and a charm with its application hol0 there."""

    def __init__(self, access: ControllerAccess, charm: Files = LINKED) -> None:
        self._access = access
        self._charm = charm
        self._connections: dict[str, WireClient] = {}
        self._passwords = {access.user.tag: access.user.password}
        self._nonces: dict[str, str] = {}
        self.prefix = f"tp{secrets.token_hex(4)}"
        self.words: dict[str, Any] = {}
        """The values of the words in angle brackets; `sanitized` puts the words back."""

    def __enter__(self) -> Stage:
        self.model, machine = asyncio.run(self._make())
        self.words = {"<model>": self.model, "<prefix>": self.prefix}
        try:
            self._deploy(machine)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()
        for connection in self._connections.values():
            connection.close()

    def destroy(self) -> None:
        """Destroy the model by force. Clients stay logged in."""
        with self._connect(None) as client:
            client.login(self._access.user.tag, self._access.user.password)
            destroy = {"destroy-storage": True, "force": True, "max-wait": 0, "timeout": 600 * 10**9}
            models = [{"model-tag": f"model-{self.model}", **destroy}]
            client.call("ModelManager", 11, "DestroyModels", {"models": models})

    def exchange(self, on: str, request: dict[str, Any]) -> dict[str, Any]:
        """Send a recorded request on its connection, with this model's values."""
        filled = self._filled(request)
        if filled["type"] == "Admin" and filled["request"] == "Login":
            return self._login(on, filled)
        connection = self._connections.get(on) or self.logged_in(on)
        if filled["request"] == "AddUser":
            self._passwords |= {
                f"user-{user['username']}": user["password"] for user in filled["params"]["users"]
            }
        if filled["request"] != "SetPasswords":
            return connection.exchange(filled)
        changes: list[dict[str, str]] = filled["params"]["changes"]
        for change in changes:  # no two units may have the same
            if change["password"] == _PASSWORD:
                change["password"] += f"-of-{change['tag']}"
        reply = connection.exchange(filled)
        for change, result in zip(changes, reply["response"]["results"], strict=True):
            if not result:
                self._passwords[change["tag"]] = change["password"]
        return reply

    def replay(self, pair: dict[str, Any]) -> dict[str, Any]:
        """Send a pair's request, keep what the pair names, and return the reply without this model's values."""
        reply = self.exchange(pair["on"], pair["request"])
        for word, path in pair.get("keep", {}).items():
            value: Any = reply["response"]
            for key in path.split("."):
                value = value[int(key) if isinstance(value, list) else key]
            self.words[word] = value
        return self.sanitized(reply)

    def begin(self, on: str, request: dict[str, Any]) -> int:
        """Send a request that is answered later, and return the number for `end`."""
        return (self._connections.get(on) or self.logged_in(on)).send(self._filled(request))

    def end(self, on: str, number: int) -> dict[str, Any]:
        """Return the reply to a request that was begun."""
        return self._connections[on].reply(number)

    def try_login(self, tag: str) -> dict[str, Any]:
        """Return the reply to a login with known credentials on a new connection."""
        with self._connect(self.model) as client:
            return client.login(tag, self._passwords[tag], self._nonces.get(tag, ""))

    def sanitized(self, value: Any) -> Any:
        """Return a reply without the values of this controller and model."""
        text = json.dumps(value)
        for word, meant in self.words.items():
            if isinstance(meant, str):
                text = text.replace(meant, word)
        text = re.sub(
            r"(?!00000000)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>", text
        )
        text = re.sub(r"\b[0-9a-v]{19}[0g]\b", "<xid>", text)
        text = re.sub(r"\b(?!192\.0\.2\.|127\.0\.0\.1\b)(\d{1,3}\.){3}\d{1,3}\b", "192.0.2.10", text)
        text = re.sub(r'"(i64|s64|secret-key)": "[^"]+"', r'"\1": "<secret>"', text)
        text = re.sub(r"-----BEGIN CERTIFICATE.*?END CERTIFICATE-----(\\n)*", "<certificate>", text)
        return json.loads(text)

    async def _make(self) -> tuple[str, str]:
        model = await make_model(self._access, f"{self.prefix}-contract")
        client = ApiClient(self._access.addresses, self._access.ca)
        try:
            admin = await ModelAdmin.open(client, self._access, model)
            spec = HollowMachineSpec(f"manual:{self.prefix}-contract-0", "192.0.2.1")
            (machine,) = await admin.add_machines([spec])
            identity = await admin.machine_identity(machine, spec.nonce)
        finally:
            await client.close()
        self._passwords[identity.tag] = identity.password
        self._nonces[identity.tag] = identity.nonce
        return model, machine

    def _deploy(self, machine: str) -> None:
        archive = _archive(self._charm)
        access = self._access
        sha256 = hashlib.sha256(archive).hexdigest()
        status, answer, url = upload(
            access.addresses[0],
            access.ca,
            access.user.tag,
            access.user.password,
            self.model,
            CHARM,
            sha256,
            archive,
        )
        assert status == 200, answer
        self.words["<charm>"] = url
        origin = {"source": "local", "type": "", "id": "", "revision": 0, "architecture": "amd64"}
        origin |= {"base": {"name": "ubuntu", "channel": "24.04"}}
        self.words["<origin>"] = origin
        place = [{"scope": "#", "directive": machine}]
        application = {"application": "hol0", "charm-url": url, "charm-origin": origin, "num-units": 1}
        deploy = {"applications": [application | {"placement": place, "constraints": {}, "channel": ""}]}
        admin = self.logged_in("user-admin")
        reply = admin.call("Application", 22, "Deploy", deploy)
        assert reply["response"]["results"] == [{}], reply
        got = admin.call("Application", 22, "GetCharmURLOrigin", {"application": "hol0"})
        self.words["<origin>"] = got["response"]["charm-origin"]

    def _filled(self, request: dict[str, Any]) -> dict[str, Any]:
        def fill(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: fill(inner) for key, inner in cast(dict[str, Any], value).items()}
            if isinstance(value, list):
                return [fill(inner) for inner in cast(list[Any], value)]
            if isinstance(value, str) and value in self.words:
                return self.words[value]
            if isinstance(value, str) and value == "<password>":
                return _PASSWORD
            if isinstance(value, str):
                for word, meant in self.words.items():
                    if isinstance(meant, str):
                        value = value.replace(word, meant)
            return value

        return {key: fill(value) for key, value in request.items() if key != "request-id"}

    def _login(self, on: str, request: dict[str, Any]) -> dict[str, Any]:
        params = request["params"]
        tag = params.get("auth-tag")
        if tag is None:
            return (self._connections.get(on) or self._new(on)).exchange(request)
        if "wrong password" in on:
            params["credentials"] = "not-the-password-of-anybody"
        elif params["credentials"]:
            params["credentials"] = self._passwords.get(tag, "nobody-has-this-password")
        if tag in self._nonces and params["nonce"] and "wrong nonce" not in on:
            params["nonce"] = self._nonces[tag]
        return self._new(on).exchange(request)

    def logged_in(self, on: str) -> WireClient:
        """Open a new connection, logged in as an entity; `exchange` uses it from now on."""
        connection = self._connections.get(on) or self._new(on)
        if on != "nobody":
            tag = on.split(" ", maxsplit=1)[0]
            if tag not in self._passwords:
                self._set_password(tag)
            reply = connection.login(tag, self._passwords[tag], self._nonces.get(tag, ""))
            assert "error" not in reply, reply
        return connection

    def _set_password(self, tag: str) -> None:
        password = secrets.token_urlsafe(24)
        change = {"changes": [{"tag": tag, "password": password}]}
        machine = self._connections.get("machine-0") or self.logged_in("machine-0")
        reply = machine.call("Deployer", 1, "SetPasswords", change)
        assert reply["response"]["results"] == [{}], reply
        self._passwords[tag] = password

    def _new(self, on: str) -> WireClient:
        if "not there" in on:
            connection = self._connect(NO_MODEL)
        elif "at the controller" in on:
            connection = self._connect(None)
        elif "in the other model" in on:
            connection = self._connect(self.words["<other>"])
        else:
            connection = self._connect(self.model)
        before = self._connections.get(on)
        if before is not None:
            before.close()
        self._connections[on] = connection
        return connection

    def _connect(self, model: str | None) -> WireClient:
        return WireClient(self._access.addresses[0], self._access.ca, model)


def differences(recorded: Any, replied: Any, at: str = "reply") -> list[str]:
    """Return the differences between a reply and the recorded one that matter to a client; empty without any."""
    if isinstance(recorded, dict) and isinstance(replied, dict):
        return _dict_differences(cast(dict[str, Any], recorded), cast(dict[str, Any], replied), at)
    if isinstance(recorded, list) and isinstance(replied, list):
        first, second = _ordered(cast(list[Any], recorded)), _ordered(cast(list[Any], replied))
        key = at.rpartition(".")[2]
        if key in _ANY_LENGTH:
            pairs = list(zip(first[:1], second[:1], strict=False))
            return [found for one, other in pairs for found in differences(one, other, f"{at}.0")] or (
                [] if bool(first) == bool(second) else [f"{at}: {len(second)} items, recorded {len(first)}"]
            )
        if len(first) != len(second):
            return [f"{at}: {len(second)} items, recorded {len(first)}"]
        return [
            found
            for place, (one, other) in enumerate(zip(first, second, strict=True))
            for found in differences(one, other, f"{at}.{place}")
        ]
    if at.rpartition(".")[2] in _EXACT and isinstance(recorded, str):
        return [] if recorded == replied else [f"{at}: {replied!r}, recorded {recorded!r}"]
    if _kind(cast(object, recorded)) != _kind(cast(object, replied)):
        return [f"{at}: {replied!r}, recorded {recorded!r}"]
    return []


def _dict_differences(recorded: dict[str, Any], replied: dict[str, Any], at: str) -> list[str]:
    if at.endswith(".clouds"):  # with any names
        return differences(next(iter(recorded.values())), next(iter(replied.values())), f"{at}.*")
    ignored = _OF_A_PROVIDER | {"request-id"}
    missing = [f"{at}.{key}: missing" for key in recorded.keys() - replied.keys() - ignored]
    more = [f"{at}.{key}: not in the recording" for key in replied.keys() - recorded.keys() - ignored]
    both = sorted((recorded.keys() & replied.keys()) - ignored)
    within = [found for key in both for found in differences(recorded[key], replied[key], f"{at}.{key}")]
    return sorted(missing) + sorted(more) + within


def _ordered(items: list[Any]) -> list[Any]:
    """Sort relations and secrets, because they come in any order."""
    for key in ("key", "relation-id", "label"):
        if all(isinstance(item, dict) and key in item for item in items):
            return sorted(items, key=lambda item: str(item[key]))
    return items


def _kind(value: object) -> type[object]:
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def _archive(files: Files) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as charm:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # Unix, so that the mode counts
            entry.external_attr = (0o100755 if name == "dispatch" else 0o100644) << 16
            charm.writestr(entry, text)
    return content.getvalue()
