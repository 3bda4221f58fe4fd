"""Runs the distribution's RabbitMQ on loopback, without systemd, and with virtual hosts like OpenStack's.

    with RabbitLab() as lab:  # or another release's: RabbitLab("trixie"), RabbitLab("4.0")
        with lab.client("nova") as nova:
            nova.publish("conductor", 10)
        ...  # lab.per_object

Clients speak STOMP, which needs no library.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from lab.control import LabError
from lab.patience import PATIENCE_S
from lab.places import Places
from lab.ports import free_ports
from lab.program import vanishing_directory
from lab.releases.find import find
from lab.releases.usr import PATH, check_usr, with_usr_of
from lab.service import Service, Starter

VHOSTS = ("nova", "neutron")
_POLL_S = 0.1
_PASSWORD = "lab"  # on loopback, for as long as a test
_PER_OBJECT_FROM = (3, 9)
"""The first release with /metrics/per-object. An older one has to be told to have objects in /metrics."""
_SCHEDULERS = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
"""Two schedulers of Erlang's, which sleep as soon as there is nothing to do. By default they spin for a while first."""
_SERVER = "usr/lib/rabbitmq/bin/rabbitmq-server"
_CHECKOUT = Path(__file__).resolve().parents[1]


def find_rabbitmq() -> Path:
    """Find the root with usr/lib/rabbitmq and usr/lib/erlang: the machine's, or the one unpacked by ./scripts/test."""
    for root in (Path("/"), _CHECKOUT / ".cache" / "packages" / "rabbitmq"):
        if (root / _SERVER).exists():
            return root
    raise LabError("rabbitmq-server: not found", "the package, or the one that ./scripts/test fetches")


class RabbitLab:
    """One broker with the virtual hosts of VHOSTS, each with a user of that name. It ends with the context.

    `metrics` is the address of its exporter, and `service` the broker's process. A `release` is a suite or a version,
    which is fetched the first time and needs root. It runs on the processors of `places`. LabError as `find` raises it.
    """

    def __init__(self, release: str | None = None, places: Places | None = None) -> None:
        self._places = places or Places.everywhere()
        if release is not None:
            check_usr()
        self.release = find("rabbitmq", release) if release is not None else None
        self._amqp, self._stomp, metrics, self._epmd, self._between = free_ports(5)
        self.metrics = f"127.0.0.1:{metrics}"
        self._old = self.release is not None and self.release.numbers < _PER_OBJECT_FROM
        self.per_object = f"http://{self.metrics}/metrics{'' if self._old else '/per-object'}"
        """The URL of figures of each connection, channel and queue, which have the virtual host."""

    def __enter__(self) -> RabbitLab:
        with ExitStack() as cleanup:
            self._directory = vanishing_directory(cleanup)
            self._starter = Starter(cleanup, self._directory, self._places)
            self._configure()
            epmd, server, places = self._programs()
            environment = self._environment(places)
            self._starter.start("epmd", [*epmd, "-port", str(self._epmd)], environment)
            self.service = Service(self._starter, "rabbitmq-server", server, environment)
            self.service.start()
            self.await_clients()
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def url(self, vhost: str) -> str:
        """Return a virtual host's URL for AMQP clients, with user and password."""
        return f"rabbit://{vhost}:{_PASSWORD}@127.0.0.1:{self._amqp}/{vhost}"

    def client(self, vhost: str) -> StompClient:
        """A new connection to a virtual host."""
        return StompClient(self._stomp, vhost)

    def await_clients(self) -> None:
        """Wait until clients are accepted, some seconds after the broker first answers."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with self.client(VHOSTS[-1]):
                    break
            except (LabError, OSError) as problem:
                self.service.check()
                if time.monotonic() > deadline:
                    raise LabError(f"rabbitmq-server: {problem}", "a broker that lets clients in") from None
                time.sleep(_POLL_S)
        self.service.await_served(f"http://{self.metrics}/metrics")

    def _configure(self) -> None:
        for name in ("mnesia", "log", "bin"):
            (self._directory / name).mkdir()
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        definitions = {
            "users": [{"name": name, "password": _PASSWORD, "tags": ""} for name in VHOSTS],
            "vhosts": [{"name": name} for name in ("/", *VHOSTS)],
            "permissions": [{"user": name, "vhost": name, **everything} for name in VHOSTS],
        }
        (self._directory / "definitions.json").write_text(json.dumps(definitions))
        (self._directory / "enabled_plugins").write_text("[rabbitmq_prometheus,rabbitmq_stomp].\n")
        (self._directory / "rabbitmq.conf").write_text(
            f"""listeners.tcp.1 = 127.0.0.1:{self._amqp}
stomp.listeners.tcp.1 = 127.0.0.1:{self._stomp}
prometheus.tcp.ip = 127.0.0.1
prometheus.tcp.port = {self.metrics.rpartition(":")[2]}
load_definitions = {self._directory / "definitions.json"}
collect_statistics_interval = 1000
{"prometheus.return_per_object_metrics = true" if self._old else ""}
"""
        )

    def _programs(self) -> tuple[list[str], list[str], dict[str, str]]:
        """Return the command lines of epmd and of the broker, and the variables that tell where their files are."""
        if self.release is not None:
            usr = self._directory / "usr"
            usr.mkdir()
            epmd, server = (
                with_usr_of(self.release.path, usr, [program]) for program in ("/usr/bin/epmd", f"/{_SERVER}")
            )
            return epmd, server, {"PATH": PATH}
        root = find_rabbitmq()
        (erts,) = (root / "usr/lib/erlang").glob("erts-*/bin")
        (plugins,) = (root / "usr/lib/rabbitmq/lib").glob("*/plugins")
        # Erlang's own script only works in the place where the package would be installed.
        erl = self._directory / "bin" / "erl"
        erl.write_text(f"#!/bin/sh\nROOTDIR={erts.parents[1]} BINDIR={erts} EMU=beam PROGNAME=erl\n")
        with erl.open("a") as script:
            script.write('export ROOTDIR BINDIR EMU PROGNAME\nexec "$BINDIR/erlexec" "$@"\n')
        erl.chmod(0o755)
        places = {"PATH": f"{erl.parent}:{os.environ['PATH']}", "RABBITMQ_PLUGINS_DIR": str(plugins)}
        return [str(erts / "epmd")], [str(root / _SERVER)], places

    def _environment(self, places: dict[str, str]) -> dict[str, str]:
        directory = self._directory
        ours = {
            name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))
        }
        ours |= places
        return ours | {
            "HOME": str(directory),
            "RUNNING_UNDER_SYSTEMD": "true",  # the started process is the broker, not a script
            "RABBITMQ_NODENAME": f"{directory.name}@localhost",
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(directory),
            "RABBITMQ_DIST_PORT": str(self._between),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{127,0,0,1}} {_SCHEDULERS}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd),
        }


class StompClient:
    """One connection of a client (STOMP 1.2); it ends with the context."""

    def __init__(self, port: int, vhost: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._send(
            "CONNECT", **{"accept-version": "1.2", "host": vhost, "login": vhost, "passcode": _PASSWORD}
        )
        said = self._socket.recv(4096)
        if not said.startswith(b"CONNECTED"):
            raise LabError(f"{vhost}: {said!r}", "to be let in")

    def __enter__(self) -> StompClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def consume(self, queue: str) -> None:
        """Subscribe to a queue."""
        self._send("SUBSCRIBE", id="0", destination=f"/queue/{queue}", ack="auto")

    def publish(self, queue: str, messages: int) -> None:
        """Send some short messages to a queue."""
        for _ in range(messages):
            self._send("SEND", destination=f"/queue/{queue}")

    def _send(self, command: str, **headers: str) -> None:
        lines = [command, *(f"{name}:{value}" for name, value in headers.items())]
        self._socket.sendall("\n".join([*lines, "", "hi" if command == "SEND" else ""]).encode() + b"\0")
