"""The command lines of an OpenStack lab's services, which are not installed as system services."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lab.openstack.places import Site, environment
from lab.openstack.programs import NO_SNAPSHOT_ISOLATION, PYTHON
from lab.service import Service, Starter

_HERE = Path(__file__).parent
_APPLICATIONS = {
    "keystone": "keystone.server.wsgi:initialize_public_application",
    "placement": "placement.wsgi:init_application",
    "glance-api": "glance.common.wsgi_app:init_app",
}
"""The services that run in uwsgi, where answers can be delayed."""
LATE = tuple(_APPLICATIONS)
_PROGRAMS = {
    "neutron-server": ("neutron.cmd.eventlet.server", "neutron", "neutron.conf", "ml2.ini"),
    "nova-api": ("nova.cmd.api_os_compute", "nova", "nova.conf"),
    "nova-conductor": ("nova.cmd.conductor", "nova", "nova.conf"),
    "nova-scheduler": ("nova.cmd.scheduler", "nova", "nova.conf"),
}
_UWSGI_PROCESSES, _UWSGI_THREADS = 2, 4


def mariadb(site: Site, starter: Starter) -> Service:
    """Start the database, whose data survive its own crash, but not that of the machine."""
    line = ["mariadbd", "--no-defaults", f"--user={getpass.getuser()}", f"--datadir={site.state('mariadb')}"]
    line += [f"--socket={site.database}", "--skip-networking", "--skip-grant-tables"]
    line += ["--max-connections=1000", "--innodb-buffer-pool-size=256M", "--innodb-log-file-size=16M"]
    line += ["--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync"]
    line += [NO_SNAPSHOT_ISOLATION]
    line += ["--character-set-server=utf8mb3", "--collation-server=utf8mb3_general_ci"]
    return Service(starter, "mariadb", site.programs.line(*line), environment(site))


def memcached(site: Site, starter: Starter) -> Service:
    """Start memcached, the services' cache of tokens."""
    line = ["memcached", f"--user={getpass.getuser()}", "--listen=127.0.0.1", "--memory-limit=64"]
    line += [f"--port={site.ports['memcached']}"]
    return Service(starter, "memcached", site.programs.line(*line), environment(site))


def services(site: Site, starter: Starter) -> dict[str, Service]:
    """Start OpenStack's services, without computes and agents, and return them by name."""
    found = {name: _web(site, starter, name) for name in _APPLICATIONS}
    for name, (module, *files) in _PROGRAMS.items():
        line = program(site, name, module, *files)
        if name != "neutron-server":
            line.append(f"--log-file={site.log(name)}")
        found[name] = Service(starter, name, line, environment(site))
    return found


def brief_keystone(site: Site, starter: Starter, port: int, token_life: int) -> Service:
    """Return a second Keystone with the same users and keys, whose tokens live for `token_life` seconds."""
    brief = replace(site, ports={**site.ports, "keystone": port})
    return _web(brief, starter, "keystone", OS_TOKEN__EXPIRATION=str(token_life))


def program(site: Site, name: str, module: str, directory: str, *files: str) -> list[str]:
    """Return the command line of an OpenStack program with `main` in a module, and these configuration files."""
    line = site.programs.line(PYTHON, "-I", str(_HERE / "run_program.py"), name, module, "main")
    return line + [f"--config-file={site.configuration(directory, file)}" for file in files]


def delay_file(site: Site, name: str) -> Path:
    """Return the file with the delay of a service's answers (wsgi.py)."""
    return site.directory / f"{name}.delay"


def _web(site: Site, starter: Starter, name: str, **settings: str) -> Service:
    service = name.removesuffix("-api")
    own = {
        "LAB_APPLICATION": _APPLICATIONS[name],
        "LAB_DELAY": str(delay_file(site, name)),
        f"OS_{service.upper()}_CONFIG_DIR": str(site.configuration(service, "x").parent),
    }
    line = [
        "uwsgi",
        f"--plugin={site.programs.uwsgi_plugin}",
        "--master",
        "--no-orphans",
        "--lazy-apps",
        "--need-app",
    ]
    line += ["--enable-threads", "--thunder-lock", "--buffer-size=65535", "--disable-logging"]
    line += _listening(site, service)
    line += [f"--processes={_UWSGI_PROCESSES}", f"--threads={_UWSGI_THREADS}"]
    # uwsgi closes the connection after each answer. Without this header a client would reuse it, and fail.
    line += ["--add-header=Connection: close"]
    line += [f"--shared-import={_HERE / 'preload.py'}", f"--wsgi-file={_HERE / 'wsgi.py'}"]
    return Service(starter, name, site.programs.line(*line), environment(site) | own | settings)


def _listening(site: Site, service: str) -> Sequence[str]:
    address = f"127.0.0.1:{site.ports[service]}"
    made = site.certificates
    if made is None:
        return [f"--http-socket={address}"]
    return [f"--https-socket={address},{made.server_cert},{made.server_key}"]
