"""A model in a simulated Juju controller with two related applications, and connections of its units and users."""

from __future__ import annotations

import hashlib
import io
import itertools
import zipfile
from types import TracebackType
from typing import Any

from lab.juju.client import WireClient, upload
from lab.juju.simulator import JujuLab

_FILES = {
    "metadata.yaml": (
        "name: work\nsummary: s\ndescription: d\npeers: {cluster: {interface: c}}\n"
        "provides: {link: {interface: l}}\nrequires: {link-from: {interface: l}}\n"
    ),
    "config.yaml": "options: {setting: {type: string, default: none}, size: {type: int}}\n",
    "actions.yaml": "work:\n  description: Does nothing.\n",
    "manifest.yaml": "analysis: {}\nbases: [{name: ubuntu, channel: '24.04', architectures: [amd64]}]\n",
    "dispatch": "#!/bin/sh\nexit 0\n",
}
_BASE = {"name": "ubuntu", "channel": "24.04"}
LINK = "relation-b.link-from#a.link"
"""The tag of the relation between the applications a and b."""
_numbers = itertools.count()


class Population:
    """The applications a (a/0, a/1) and b (b/0, b/1), related by `link`, each with the charm's action and options."""

    def __init__(self, lab: JujuLab, name: str | None = None) -> None:
        self.lab = lab
        self.name = name or f"model{next(_numbers)}"
        self._open: list[WireClient] = []
        self.controller = self.connect(lab.user, lab.password)
        self.uuid = self.ask(self.controller, "ModelManager.CreateModel", name=self.name, qualifier=lab.user)[
            "uuid"
        ]
        self.admin = self.connect(lab.user, lab.password, self.uuid)
        self.charm = self._upload()
        for application in "ab":
            self._deploy(application)
        self.ask(self.admin, "Application.AddRelation", endpoints=["a:link", "b:link-from"])
        self.passwords = {
            f"{name}/{number}": f"a-long-password-of-{name}-{number}" for name in "ab" for number in (0, 1)
        }
        self._set_passwords()

    def __enter__(self) -> Population:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._open:
            client.close()

    def connect(self, user: str, password: str, model: str | None = None) -> WireClient:
        """Open a user's connection to the controller, or to a model."""
        return self._login(f"user-{user}", password, model)

    def unit(self, name: str) -> WireClient:
        """Open a unit's connection."""
        return self._login(f"unit-{name.replace('/', '-')}", self.passwords[name], self.uuid)

    def add_user(self, name: str) -> WireClient:
        """Add a user with a password of its name, and open its connection to the controller."""
        self.ask(self.controller, "UserManager.AddUser", users=[{"username": name, "password": name}])
        return self.connect(name, name)

    def ask(self, client: WireClient, what: str, **params: Any) -> dict[str, Any]:
        """Send a request of a facade, and return the response of its reply, which is no refusal."""
        reply = self.reply(client, what, **params)
        assert "error" not in reply, reply
        return reply["response"]

    def refusal(self, client: WireClient, what: str, **params: Any) -> tuple[str, str]:
        """Send a request that is refused as a whole, and return the message and the code."""
        reply = self.reply(client, what, **params)
        return reply["error"], reply.get("error-code", "")

    def reply(self, client: WireClient, what: str, **params: Any) -> dict[str, Any]:
        """Send a request of a facade, in the highest version, and return its reply."""
        return client.exchange(_request(what, params))

    def begin_next(self, client: WireClient, facade: str, watcher: str) -> int:
        """Ask for a watcher's next event, and return the number of the request for `event`."""
        return client.send(_request(f"{facade}.Next", {}) | {"id": watcher})

    def event(self, client: WireClient, number: int) -> Any:
        """Return a watcher's event: its changes; None for a notice."""
        return client.reply(number)["response"].get("changes")

    def enter(self, client: WireClient, unit: str) -> None:
        """Have a unit enter the scope of the relation."""
        pair = {"relation": LINK, "unit": f"unit-{unit.replace('/', '-')}"}
        assert self.ask(client, "Uniter.EnterScope", **{"relation-units": [pair]}) == {"results": [{}]}

    def commit(self, client: WireClient, unit: str, **changes: Any) -> dict[str, Any]:
        """Commit a hook's changes, with `_` for `-` in their names, and return the result."""
        named = {key.replace("_", "-"): value for key, value in changes.items()}
        tag = f"unit-{unit.replace('/', '-')}"
        return self.ask(client, "Uniter.CommitHookChanges", args=[{"tag": tag} | named])["results"][0]

    def lead(self, client: WireClient, unit: str) -> None:
        """Have a unit claim the lead of its application."""
        application, _, number = unit.partition("/")
        claim = {"application-tag": f"application-{application}", "unit-tag": f"unit-{application}-{number}"}
        got = self.ask(client, "LeadershipService.ClaimLeadership", params=[claim | {"duration": 60.0}])
        assert got == {"results": [{}]}

    def status(self) -> dict[str, Any]:
        """Return the model's full status."""
        return self.ask(self.admin, "Client.FullStatus", patterns=[])

    def _login(self, tag: str, password: str, model: str | None) -> WireClient:
        client = WireClient(self.lab.addresses[0], self.lab.ca, model)
        self._open.append(client)
        reply = client.login(tag, password)
        assert "error" not in reply, reply
        return client

    def _upload(self) -> str:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for name, text in _FILES.items():
                archive.writestr(name, text)
        archive_bytes = content.getvalue()
        sha256 = hashlib.sha256(archive_bytes).hexdigest()
        lab = self.lab
        status, answer, url = upload(
            lab.addresses[0],
            lab.ca,
            f"user-{lab.user}",
            lab.password,
            self.uuid,
            "work",
            sha256,
            archive_bytes,
        )
        assert status == 200, answer
        assert url is not None
        return url

    def _deploy(self, application: str) -> None:
        machine = {"instance-id": f"manual:{application}", "nonce": "nonce", "addresses": [], "base": _BASE}
        hardware = {"hardware-characteristics": {"arch": "amd64"}}
        added = self.ask(self.admin, "MachineManager.AddMachines", params=[machine | hardware])
        number = added["machines"][0]["machine"]
        origin = {
            "source": "local",
            "type": "",
            "id": "",
            "revision": 0,
            "architecture": "amd64",
            "base": _BASE,
        }
        fields = {"application": application, "charm-url": self.charm, "charm-origin": origin, "num-units": 2}
        placement = {"placement": [{"scope": "#", "directive": number}] * 2}
        deployed = self.ask(self.admin, "Application.Deploy", applications=[fields | placement])
        assert deployed == {"results": [{}]}

    def _set_passwords(self) -> None:
        for number, application in enumerate("ab"):
            params = {"machine-id": str(number), "nonce": "nonce"}
            script = self.ask(self.admin, "MachineManager.ProvisioningScript", **params)["script"]
            password = script.partition("oldpassword: ")[2].split()[0]
            client = WireClient(self.lab.addresses[0], self.lab.ca, self.uuid)
            self._open.append(client)
            client.login(f"machine-{number}", password, "nonce")
            changes = [
                {"tag": f"unit-{unit.replace('/', '-')}", "password": password}
                for unit, password in self.passwords.items()
                if unit.startswith(application)
            ]
            assert self.ask(client, "Deployer.SetPasswords", changes=changes) == {"results": [{}, {}]}


_VERSIONS = {
    "Uniter": 22,
    "Application": 22,
    "ModelManager": 11,
    "MachineManager": 11,
    "Client": 8,
    "Action": 7,
}
_VERSIONS |= {"Secrets": 2, "SecretsManager": 4, "ApplicationOffers": 6, "UserManager": 3, "Cloud": 8}
_VERSIONS |= {"LeadershipService": 2}


def _request(what: str, params: dict[str, Any]) -> dict[str, Any]:
    facade, _, name = what.partition(".")
    return {"type": facade, "version": _VERSIONS.get(facade, 1), "request": name, "params": params}
