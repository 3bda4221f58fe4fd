"""The UserManager facade: adds, lists and removes users, as a superuser asks.

Recorded. A user that is added may log in to the controller, and nothing more: models, the cloud and offers have levels
of their own.
"""

from __future__ import annotations

import re
import secrets
from typing import Any
from uuid import uuid4

from lab.juju.accounts import User
from lab.juju.methods import facade, method
from lab.juju.refusals import Refused, not_found, permission_denied
from lab.juju.rpc import Call, entries, for_each

facade("UserManager", "user")

_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.+-]*[a-zA-Z0-9])?")  # names.IsValidUserName


@method("UserManager", "AddUser")
def _add(call: Call) -> dict[str, Any]:
    users = call.session.controller.users
    if not call.user.superuser:
        raise permission_denied()

    def add(fields: dict[str, Any]) -> dict[str, Any]:
        name = str(fields["username"])
        if not _NAME.fullmatch(name):
            raise Refused(f'creating user: user name "{name}" not valid', "not valid")
        if name in users:
            raise Refused(
                f'creating user: adding user with uuid "{uuid4()}": adding user "{name}": user already exists'
            )
        users[name] = User(name, str(fields.get("password") or ""), str(fields.get("display-name") or ""))
        key = {} if fields.get("password") else {"secret-key": secrets.token_urlsafe(32)}  # to register with
        return {"tag": f"user-{name}"} | key

    return {"results": for_each(entries(call.params, "users"), add)}


@method("UserManager", "RemoveUser")
def _remove(call: Call) -> dict[str, Any]:
    controller = call.session.controller
    if not call.user.superuser:
        raise permission_denied()

    def remove(entity: dict[str, Any]) -> dict[str, Any]:
        name = str(entity["tag"]).removeprefix("user-")
        if name == controller.setup.user:
            raise Refused(f'cannot delete controller owner "{name}"', "bad request")
        if controller.users.pop(name, None) is None:
            raise Refused(f'failed to delete user "{name}": active user "{name}": user not found')
        controller.cloud_users.pop(name, None)
        for model in controller.models.values():
            model.users.pop(name, None)
        return {}

    return {"results": for_each(call.params["entities"], remove)}


@method("UserManager", "UserInfo")
def _info(call: Call) -> dict[str, Any]:
    users = call.session.controller.users
    names = [str(entity["tag"]).removeprefix("user-") for entity in entries(call.params, "entities")]

    def inform(name: str) -> dict[str, Any]:
        if not call.user.superuser and name != call.user.name:
            raise permission_denied()
        user = users.get(name)
        if user is None:
            raise not_found(f'user "{name}"')
        return {
            "result": {
                "username": user.name,
                "display-name": user.display_name,
                "access": user.controller_access,
                "created-by": call.session.controller.setup.user,
                "date-created": user.created,
                **({"last-connection": user.last_connection} if user.last_connection else {}),
                "disabled": False,
            }
        }

    return {"results": for_each(names or list(users), inform)}
