"""Handles logins: users and units by password, machines by password and nonce, with rate limit and redirect.

The rules are those of Juju 4.0 (apiserver/admin.go, apiserver/authentication/agent.go). All but users are rate limited.
An unknown entity and a wrong password get the same answer.
"""

from __future__ import annotations

import hmac
from typing import Any

from lab.juju.accounts import User
from lab.juju.controller import VERSION
from lab.juju.facades import listed
from lab.juju.methods import facade, method
from lab.juju.model import Model
from lab.juju.refusals import Refused, permission_denied
from lab.juju.rpc import Call, Entity
from lab.juju.statuses import now

facade("Admin")
facade("Pinger")


@method("Admin", "Login")
def _login(call: Call) -> dict[str, Any]:
    session, params = call.session, call.params
    controller = session.controller
    to = controller.redirects.get(session.server)
    if to is not None:
        raise Refused(
            "redirection to alternative server required", "redirection required", _redirect_info(call, to)
        )
    tag = str(params.get("auth-tag", ""))
    kind, _, rest = tag.partition("-")
    if kind != "user":
        limit = controller.limits.get(session.server)
        if limit is not None and not limit.take():
            raise Refused("try again", "try again")
    secret = str(params.get("credentials", ""))
    model = session.model
    entity = (
        user_of(controller.users, rest, secret)
        if kind == "user"
        else agent(tag, secret, str(params.get("nonce", "")), model)
    )
    if entity.kind == "user":
        user = controller.users[entity.id]
        if model is not None and not user.superuser and user.name not in model.users:
            raise permission_denied()
        user.last_connection = now()
    session.entity = entity
    controller.entered(session)
    if entity.kind == "user":
        (model or controller.controller_model).last_connections[entity.id] = now()
    reply: dict[str, Any] = {"servers": controller.host_ports()}
    if model is not None:
        reply["model-tag"] = f"model-{model.uuid}"
    reply["controller-tag"] = f"controller-{controller.uuid}"
    if entity.kind == "user":
        reply["user-info"] = {
            "display-name": "",
            "identity": f"user-{entity.id}",
            "controller-access": controller.users[entity.id].controller_access,
            "model-access": "" if model is None else model.users.get(entity.id, "admin"),
        }
    else:
        session.channel.expect_pings()
    reply["facades"] = listed(controller.offered(model is not None))
    reply["server-version"] = VERSION
    return reply


@method("Admin", "RedirectInfo")
def _redirect(call: Call) -> dict[str, Any]:
    to = call.session.controller.redirects.get(call.session.server)
    if to is None:
        raise Refused("not redirected")
    info = _redirect_info(call, to)
    return {"servers": info["servers"], "ca-cert": info["ca-cert"]}


@method("Pinger", "Ping")
def _ping(call: Call) -> dict[str, Any]:
    call.session.channel.pinged()
    return {}


def user_of(users: dict[str, User], name: str, password: str) -> Entity:
    """Return a user by the credentials. Raises Refused."""
    name = name.removesuffix("@local")
    known = users.get(name)
    if known is None or not _same(known.password, password):
        raise _unauthorized()
    return Entity("user", name)


def agent(tag: str, password: str, nonce: str, model: Model | None) -> Entity:
    """Return a unit or a machine by its credentials. Raises Refused."""
    kind, _, rest = tag.partition("-")
    if kind == "machine":
        if not password or not nonce:
            raise Refused("machine authentication: invalid request", "unauthorized access")
        machine = model.machines.get(rest) if model else None
        if machine is None or machine.nonce != nonce or not _same(machine.password, password):
            raise _unauthorized()
        return Entity("machine", rest)
    if kind == "unit":
        if not password:
            raise Refused("unit authentication: invalid request", "unauthorized access")
        application, _, number = rest.rpartition("-")
        unit = model.unit(f"{application}/{number}") if model else None
        if unit is None or not _same(unit.password, password):
            raise _unauthorized()
        return Entity("unit", unit.name)
    raise Refused(f'"{tag}" is not a valid tag')


def _same(known: str, given: str) -> bool:
    return bool(known) and hmac.compare_digest(known.encode(), given.encode())


def _unauthorized() -> Refused:
    return Refused("invalid entity name or password", "unauthorized access")


def _redirect_info(call: Call, to: str) -> dict[str, Any]:
    controller = call.session.controller
    return {
        "servers": controller.host_ports(to),
        "ca-cert": controller.setup.ca,
        "controller-tag": f"controller-{controller.uuid}",
    }
