"""Writes the configuration files of an OpenStack lab's services."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from lab.openstack.places import REGION, Site, write_private

SERVICE_DOWN_AFTER_S = 30
"""Seconds without a report (three intervals) after which Nova takes a compute for down, and Neutron an agent. Their own
defaults are 60 and 75 s."""
_TOKEN_LIFE_S = 86_400
"""Seconds of life of Keystone's tokens, which is longer than a lab lasts."""
_REPORT_EVERY_S = 10
_DISCOVER_EVERY_S = 2
_BCRYPT_ROUNDS = 4
"""The fewest that Keystone takes, and 1/256 of the work of its default of 12, with which a login costs a quarter of a
CPU-second: passwords here are random, and last as long as the lab."""
_API_WORKERS = 2

Sections = Mapping[str, Mapping[str, object]]


def write_configuration(site: Site) -> None:
    """Write the files of all services. `write_compute` writes those of single computes."""
    for service, pipeline in site.programs.pipelines.items():
        shutil.copyfile(pipeline, site.configuration(service, pipeline.name))
    _write(site, ("keystone", "keystone.conf"), _keystone(site))
    _write(site, ("glance", "glance-api.conf"), _glance(site))
    _write(site, ("placement", "placement.conf"), _placement(site))
    _write(site, ("nova", "nova.conf"), _nova(site))
    _write(site, ("neutron", "neutron.conf"), _neutron(site))
    _write(site, ("neutron", "ml2.ini"), _ml2())


def write_compute(site: Site, host: str) -> None:
    """Write the configuration that a host's nova-compute has beside Nova's."""
    state = site.state("nova", host)
    own = {
        "host": host,
        "state_path": state,
        "instances_path": state / "instances",
        "log_file": site.log(host),
    }
    _write(site, ("nova", f"{host}.conf"), {"DEFAULT": own, "oslo_concurrency": {"lock_path": state}})


def _write(site: Site, names: tuple[str, ...], sections: Sections) -> None:
    lines: list[str] = []
    for section, options in sections.items():
        lines += [f"[{section}]", *(f"{name} = {value}" for name, value in options.items())]
    write_private(site.configuration(*names), "\n".join([*lines, ""]))


def _keystone(site: Site) -> Sections:
    return {
        "DEFAULT": {"log_file": site.log("keystone")},
        "database": {"connection": site.database_url("keystone")},
        "cache": {
            "enabled": "true",
            "backend": "oslo_cache.memcache_pool",
            "memcache_servers": site.memcached,
        },
        "identity": {"password_hash_rounds": _BCRYPT_ROUNDS},
        "token": {"provider": "fernet", "expiration": _TOKEN_LIFE_S},
        "fernet_tokens": {"key_repository": site.state("keystone") / "fernet-keys"},
        "credential": {"key_repository": site.state("keystone") / "credential-keys"},
    }


def _glance(site: Site) -> Sections:
    return {
        "DEFAULT": {
            "log_file": site.log("glance-api"),
            "use_keystone_limits": "false",
            "enabled_backends": "file:file",
        },
        "database": {"connection": site.database_url("glance")},
        "glance_store": {"default_backend": "file"},
        "file": {"filesystem_store_datadir": site.state("glance", "images")},
        "paste_deploy": {
            "flavor": "keystone",
            "config_file": site.configuration("glance", "glance-api-paste.ini"),
        },
        "oslo_concurrency": {"lock_path": site.state("lock")},
        "keystone_authtoken": _tokens(site, "glance"),
    }


def _placement(site: Site) -> Sections:
    return {
        "DEFAULT": {"log_file": site.log("placement")},
        "placement_database": {"connection": site.database_url("placement"), "max_pool_size": 20},
        "api": {"auth_strategy": "keystone"},
        "keystone_authtoken": _tokens(site, "placement"),
    }


def _nova(site: Site) -> Sections:
    secure = {"enabled_ssl_apis": "osapi_compute"} if site.certificates else {}
    return {
        "DEFAULT": {
            "transport_url": site.brokers["nova"],
            "log_dir": site.directory,
            "state_path": site.state("nova"),
            "instances_path": site.state("nova") / "instances",
            "my_ip": "127.0.0.1",
            "enabled_apis": "osapi_compute",
            "osapi_compute_listen": "127.0.0.1",
            "osapi_compute_listen_port": site.ports["nova"],
            "osapi_compute_workers": _API_WORKERS,
            "compute_driver": "fake.FakeDriver",
            "report_interval": _REPORT_EVERY_S,
            "service_down_time": SERVICE_DOWN_AFTER_S,
            **secure,
        },
        "api": {"auth_strategy": "keystone"},
        "wsgi": {
            "api_paste_config": site.configuration("nova", "api-paste.ini"),
            **_certificate(site, "ssl_cert_file", "ssl_key_file"),
        },
        "database": {"connection": site.database_url("nova_cell1"), "max_pool_size": 20},
        "api_database": {"connection": site.database_url("nova_api"), "max_pool_size": 20},
        "conductor": {"workers": 2},
        "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": _DISCOVER_EVERY_S},
        "quota": {"instances": -1, "cores": -1, "ram": -1, "key_pairs": -1, "server_groups": -1},
        "glance": {"region_name": REGION, "endpoint_override": site.url("glance"), **_authority(site)},
        "placement": _credentials(site, "placement"),
        "neutron": {"service_metadata_proxy": "false", **_credentials(site, "neutron")},
        "service_user": {"send_service_user_token": "true", **_credentials(site, "nova")},
        "cinder": {"os_region_name": REGION},
        "vnc": {"enabled": "false"},
        "workarounds": {"skip_cpu_compare_on_dest": "true"},
        "oslo_concurrency": {"lock_path": site.state("lock")},
        "oslo_messaging_rabbit": {"heartbeat_in_pthread": "false"},
        "keystone_authtoken": _tokens(site, "nova"),
    }


def _neutron(site: Site) -> Sections:
    unlimited = ("network", "subnet", "port", "router", "floatingip", "security_group", "security_group_rule")
    return {
        "DEFAULT": {
            "bind_host": "127.0.0.1",
            "bind_port": site.ports["neutron"],
            "transport_url": site.brokers["neutron"],
            "log_file": site.log("neutron-server"),
            "state_path": site.state("neutron"),
            "core_plugin": "ml2",
            "service_plugins": "router",
            "api_workers": _API_WORKERS,
            "rpc_workers": 1,
            "rpc_state_report_workers": 1,
            "api_paste_config": site.configuration("neutron", "api-paste.ini"),
            "notify_nova_on_port_status_changes": "true",
            "notify_nova_on_port_data_changes": "true",
            "dhcp_agent_notification": "false",  # there is no DHCP agent
            "agent_down_time": SERVICE_DOWN_AFTER_S,
            "use_ssl": bool(site.certificates),
        },
        "ssl": _certificate(site, "cert_file", "key_file"),
        "agent": {"report_interval": _REPORT_EVERY_S},
        "database": {"connection": site.database_url("neutron"), "max_pool_size": 20},
        "nova": _credentials(site, "nova"),
        "oslo_concurrency": {"lock_path": site.state("lock")},
        "quotas": {f"quota_{name}": -1 for name in unlimited},
        "keystone_authtoken": _tokens(site, "neutron"),
    }


def _ml2() -> Sections:
    return {
        "ml2": {
            "type_drivers": "local,flat,vxlan",
            "tenant_network_types": "vxlan",
            "mechanism_drivers": "openvswitch",
        },
        "ml2_type_vxlan": {"vni_ranges": "1:100000"},
        "securitygroup": {"enable_security_group": "true", "firewall_driver": "noop"},
    }


def _credentials(site: Site, user: str) -> dict[str, object]:
    """Return the options for a service's login with its own user."""
    return {
        "auth_type": "password",
        "auth_url": f"{site.url('keystone')}/v3",
        "project_domain_name": "Default",
        "user_domain_name": "Default",
        "project_name": "service",
        "username": user,
        "password": site.password,
        "region_name": REGION,
        **_authority(site),
    }


def _tokens(site: Site, user: str) -> dict[str, object]:
    """Return the options for checking clients' tokens."""
    return {
        **_credentials(site, user),
        "www_authenticate_uri": site.url("keystone"),
        "memcached_servers": site.memcached,
        "service_token_roles_required": "true",
    }


def _certificate(site: Site, certificate: str, key: str) -> dict[str, object]:
    made = site.certificates
    return {certificate: made.server_cert, key: made.server_key} if made else {}


def _authority(site: Site) -> dict[str, object]:
    return {"cafile": site.ca} if site.ca else {}
