"""Creates the initial contents of an OpenStack lab: users, endpoints, a project, and the parts of servers."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from lab.openstack.places import REGION, SERVICE_USERS, Site, write_private
from lab.openstack.rest import Rest

IMAGE, FLAVOR, NETWORK = "tiny", "tiny", "net"
PROJECT = "tippingpoint"
_IMAGE_BYTES = 1024


def make_identities(admin: Rest, site: Site) -> None:
    """Create the services' users and endpoints."""
    roles = {role["name"]: role["id"] for role in admin.get("identity", "/roles")["roles"]}
    if "service" not in roles:
        roles["service"] = _make(admin, "/roles", "role", name="service")
    project = _make(admin, "/projects", "project", name="service", domain_id="default")

    for user in SERVICE_USERS:
        made = _make(admin, "/users", "user", name=user, password=site.password, domain_id="default")
        for role in ("admin", "service"):
            admin.put("identity", f"/projects/{project}/users/{made}/roles/{roles[role]}")
    paths = {
        "nova": ("compute", "/v2.1"),
        "glance": ("image", ""),
        "placement": ("placement", ""),
        "neutron": ("network", ""),
    }
    for name, (kind, path) in paths.items():
        service = _make(admin, "/services", "service", name=name, type=kind)
        _make(
            admin,
            "/endpoints",
            "endpoint",
            service_id=service,
            interface="public",
            url=site.url(name) + path,
            region_id=REGION,
        )


def make_tenant(admin: Rest, site: Site, path: Path) -> Rest:
    """Create a project with a user, who only has the role `member`. `path` is for the file of all clouds."""
    roles = {role["name"]: role["id"] for role in admin.get("identity", "/roles")["roles"]}
    project = _make(admin, "/projects", "project", name=PROJECT, domain_id="default")
    password = secrets.token_urlsafe(16)
    user = _make(admin, "/users", "user", name=PROJECT, password=password, domain_id="default")
    admin.put("identity", f"/projects/{project}/users/{user}/roles/{roles['member']}")
    tenant = Rest(admin.auth_url, PROJECT, password, PROJECT, site.ca)
    tenant.log_in()
    # Keystone may not find a role that was just granted, because its cache is a moment behind.
    credential = tenant.await_answer(
        "identity",
        f"/users/{tenant.user}/application_credentials",
        {"application_credential": {"name": PROJECT}},
    )["application_credential"]
    clouds = {
        PROJECT: {"auth": _password(admin.auth_url, PROJECT, PROJECT, password)},
        f"{PROJECT}-app": {
            "auth_type": "v3applicationcredential",
            "auth": {
                "auth_url": admin.auth_url,
                "application_credential_id": credential["id"],
                "application_credential_secret": credential["secret"],
            },
        },
        "admin": {"auth": _password(admin.auth_url, "admin", "admin", admin.password)},
    }
    common: dict[str, Any] = {"region_name": REGION, "identity_api_version": 3}
    if site.ca:
        common["cacert"] = str(site.ca)
    write_private(path, yaml.safe_dump({"clouds": {name: cloud | common for name, cloud in clouds.items()}}))
    return tenant


def make_resources(admin: Rest, tenant: Rest) -> None:
    """Create a flavor, an image and a network for all projects, once their services answer.

    This also creates the project's default security group, which Neutron makes at the first request for it.
    """
    with ThreadPoolExecutor(3) as pool:
        for made in [pool.submit(make, admin) for make in (_flavor, _image, _network)]:
            made.result()
    tenant.get("network", "/v2.0/security-groups")


def _flavor(admin: Rest) -> None:
    admin.await_answer("compute", "/flavors")
    # With a disk of 0, only administrators may create servers without a volume.
    size = {"ram": 64, "disk": 1, "vcpus": 1}
    admin.post("compute", "/flavors", {"flavor": {"name": FLAVOR, **size}})


def _image(admin: Rest) -> None:
    admin.await_answer("image", "/v2/images")
    form = {"disk_format": "raw", "container_format": "bare", "visibility": "public"}
    image = admin.post("image", "/v2/images", {"name": IMAGE, **form})["id"]
    admin.put("image", f"/v2/images/{image}/file", bytes(_IMAGE_BYTES))


def _network(admin: Rest) -> None:
    admin.await_answer("network", "/v2.0/networks")
    network = admin.post("network", "/v2.0/networks", {"network": {"name": NETWORK, "shared": True}})
    subnet = {"network_id": network["network"]["id"], "cidr": "10.99.0.0/16", "ip_version": 4}
    admin.post("network", "/v2.0/subnets", {"subnet": {"name": NETWORK, "enable_dhcp": False, **subnet}})


def _make(admin: Rest, path: str, kind: str, **fields: Any) -> str:
    return admin.post("identity", path, {kind: fields})[kind]["id"]


def _password(auth_url: str, user: str, project: str, password: str) -> dict[str, str]:
    return {
        "auth_url": auth_url,
        "username": user,
        "password": password,
        "project_name": project,
        "user_domain_name": "Default",
        "project_domain_name": "Default",
    }
