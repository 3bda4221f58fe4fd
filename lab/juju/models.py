"""Creates, lists, blocks and destroys models: ModelManager, Block, and the requests of `juju add-model` to Cloud.

Access to clouds is from source (apiserver/facades/client/cloud of Juju 4.0), the rest is recorded.
"""

from __future__ import annotations

from typing import Any

from lab.juju.accounts import CLOUD_LEVELS, MODEL_LEVELS, change, has
from lab.juju.controller import VERSION, Controller
from lab.juju.methods import facade, method
from lab.juju.model import Model
from lab.juju.refusals import Refused, not_found, permission_denied
from lab.juju.rpc import Call, for_each
from lab.juju.statuses import now

CLOUD = "simulated"
REGION = "default"
CREDENTIAL = "simulator"
_NO_STATUS: dict[str, Any] = {
    "model-tag": "",
    "qualifier": "",
    "life": "",
    "type": "",
    "hosted-machine-count": 0,
    "application-count": 0,
    "unit-count": 0,
}

facade("ModelManager", "user")
facade("Cloud", "user")
facade("Block", "user")


@method("Cloud", "Clouds")
def _clouds(_call: Call) -> dict[str, Any]:
    return {"clouds": {f"cloud-{CLOUD}": _cloud()}}


@method("Cloud", "Cloud")
def _one_cloud(call: Call) -> dict[str, Any]:
    return {
        "results": [
            {"cloud": _cloud()}
            if entity["tag"] == f"cloud-{CLOUD}"
            else {"error": not_found(f"cloud {entity['tag']}").as_dict()}
            for entity in call.params["entities"]
        ]
    }


@method("Cloud", "UserCredentials")
def _credentials(call: Call) -> dict[str, Any]:
    users = call.session.controller.users
    results: list[dict[str, Any]] = []
    for wanted in call.params["user-clouds"]:
        user = str(wanted["user-tag"]).removeprefix("user-")
        there = user in users and wanted["cloud-tag"] == f"cloud-{CLOUD}"
        results.append({"result": [_credential_tag(user)]} if there else {})
    return {"results": results}


@method("ModelManager", "CreateModel")
def _create(call: Call) -> dict[str, Any]:
    controller, params = call.session.controller, call.params
    owner = str(params.get("qualifier") or str(params.get("owner-tag", "")).removeprefix("user-"))
    name = str(params["name"])
    if not call.user.superuser:
        if not has(controller.cloud_users.get(call.user.name, ""), "add-model", CLOUD_LEVELS):
            raise permission_denied()
        if owner != call.user.name:
            raise Refused(f'cannot create model with qualifier "{owner}"', "not valid")
    if owner not in controller.users:
        raise Refused(f'creating model: "{owner}" is not a user', "unauthorized access")
    if any(model.name == name and model.owner == owner for model in controller.models.values()):
        raise Refused(f"model {owner}/{name} already exists", "already exists")
    cloud = str(params.get("cloud-tag") or f"cloud-{CLOUD}")
    if cloud != f"cloud-{CLOUD}":
        raise Refused(f'cloud "{cloud.removeprefix("cloud-")}" not found, expected ["{CLOUD}"]', "not found")
    info = _info(call, controller.new_model(name, owner))
    del info["cloud-credential-validity"]
    return info | {"machines": None, "secret-backends": None}


@method("ModelManager", "ListModels")
def _list(call: Call) -> dict[str, Any]:
    listed = [
        {
            "model": {
                "name": model.name,
                "qualifier": model.owner,
                "uuid": model.uuid,
                "type": "iaas",
            },
            "last-connection": model.last_connections.get(call.user.name),
        }
        for model in _of(call, str(call.params["tag"]))
    ]
    return {"user-models": listed or None}


@method("ModelManager", "ListModelSummaries")
def _summaries(call: Call) -> dict[str, Any]:
    params = call.params
    if params.get("all") and not call.user.superuser:
        raise Refused("permission denied: cannot list all models as non-admin user", "unauthorized access")
    name = str(params["user-tag"]).removeprefix("user-")
    models = _of(call, str(params["user-tag"]))
    if not params.get("all"):
        models = [model for model in models if name in model.users]
    return {
        "results": [{"result": _summary(call, model, "" if params.get("all") else name)} for model in models]
    }


def _summary(call: Call, model: Model, user: str) -> dict[str, Any]:
    controller = call.session.controller
    units = sum(len(application.units) for application in model.applications.values())
    counts = (("machines", len(model.machines)), ("units", units))
    provider = {} if model is controller.controller_model else {"provider-type": "manual"}
    return {
        "name": model.name,
        "qualifier": model.owner,
        "uuid": model.uuid,
        "type": "iaas",
        "controller-uuid": controller.uuid,
        "is-controller": model is controller.controller_model,
        **provider,
        "cloud-tag": f"cloud-{CLOUD}",
        "cloud-region": REGION,
        "life": model.life,
        "status": {"status": "available", "info": "", "since": now()},
        "user-access": model.users.get(user, ""),
        "last-connection": model.last_connections.get(user),
        "counts": [{"entity": entity, "count": count} for entity, count in counts if count],
        "agent-version": VERSION,
    }


def _of(call: Call, tag: str) -> list[Model]:
    """Return the models that a user sees: a superuser all, others those that they have access to."""
    name = tag.removeprefix("user-")
    models = call.session.controller.models.values()
    if call.user.superuser:
        return list(models)
    if name != call.user.name:
        raise permission_denied()
    return [model for model in models if name in model.users]


@method("ModelManager", "ModelInfo")
def _model_info(call: Call) -> dict[str, Any]:
    controller = call.session.controller

    def inform(entity: dict[str, Any]) -> dict[str, Any]:
        model = _model(controller, entity["tag"])
        if not call.may("read", model):
            raise permission_denied()
        info = _info(call, model)
        return {
            "result": info if call.may("write", model) else info | {"machines": None, "secret-backends": None}
        }

    return {"results": for_each(call.params["entities"], inform)}


@method("ModelManager", "ModelStatus")
def _model_status(call: Call) -> dict[str, Any]:
    controller = call.session.controller

    def describe(entity: dict[str, Any]) -> dict[str, Any]:
        model = controller.models.get(str(entity["tag"]).removeprefix("model-"))
        if model is None:
            raise Refused(f'model "{entity["tag"]}" does not exist', "not found")
        if not call.may("admin", model):
            raise permission_denied()
        return {
            "model-tag": f"model-{model.uuid}",
            "qualifier": model.owner,
            "life": model.life,
            "type": "iaas",
            "hosted-machine-count": len(model.machines),
            "application-count": len(model.applications),
            "unit-count": sum(len(application.units) for application in model.applications.values()),
            "applications": [{"name": name} for name in model.applications],
            "machines": _machines(model),
        }

    return {"models": for_each(call.params["entities"], describe, _NO_STATUS)}


@method("ModelManager", "DestroyModels")
def _destroy(call: Call) -> dict[str, Any]:
    controller = call.session.controller

    def destroy(params: dict[str, Any]) -> dict[str, Any]:
        model = _model(controller, params["model-tag"])
        if not call.may("admin", model):
            raise permission_denied()
        if model is controller.controller_model:
            raise Refused(
                f'removing model "{model.uuid}": cannot remove controller model "{model.uuid}" without force'
            )
        if model.kept is not None:
            raise Refused(model.kept or "the operation has been blocked", "operation is blocked")
        if model.machines and not params.get("force"):
            model.life = "dying"  # permanently, because it waits for agents, which hollow units do not have
        else:
            controller.remove_model(model)
        return {}

    return {"results": for_each(call.params["models"], destroy)}


@method("Block", "SwitchBlockOn", "write")
def _block(call: Call) -> dict[str, Any]:
    _check_block(call)
    call.model.kept = str(call.params.get("message") or "")
    return {}


@method("Block", "SwitchBlockOff", "write")
def _unblock(call: Call) -> dict[str, Any]:
    _check_block(call)
    if call.model.kept is None:
        return {"error": Refused("executing block command: block not found").as_dict()}
    call.model.kept = None
    return {}


def _check_block(call: Call) -> None:
    if call.params["type"] != "BlockDestroy":
        raise Refused(f"{call.params['type']}: only BlockDestroy is simulated", "not implemented")


@method("ModelManager", "ModifyModelAccess")
def _modify_access(call: Call) -> dict[str, Any]:
    controller = call.session.controller

    def modify(fields: dict[str, Any]) -> dict[str, Any]:
        model = _model(controller, fields["model-tag"])
        if not call.may("admin", model):
            raise permission_denied()
        change(
            model.users,
            _user(call, fields),
            str(fields["action"]),
            str(fields["access"]),
            MODEL_LEVELS,
            "model",
        )
        return {}

    return {"results": for_each(call.params["changes"], modify)}


@method("Cloud", "ModifyCloudAccess")
def _modify_cloud_access(call: Call) -> dict[str, Any]:
    if not call.user.superuser:
        raise permission_denied()
    held = call.session.controller.cloud_users

    def modify(fields: dict[str, Any]) -> dict[str, Any]:
        change(held, _user(call, fields), str(fields["action"]), str(fields["access"]), CLOUD_LEVELS, "cloud")
        return {}

    return {"results": for_each(call.params["changes"], modify)}


def _user(call: Call, fields: dict[str, Any]) -> str:
    name = str(fields["user-tag"]).removeprefix("user-")
    # A user of an identity provider becomes known by the first grant, as recorded.
    if "@" not in name and name not in call.session.controller.users:
        raise Refused(f'active users "{name}": user not found')
    return name


def _model(controller: Controller, tag: object) -> Model:
    model = controller.models.get(str(tag).removeprefix("model-"))
    if model is None:
        # The message of Juju 4.0.15 for a missing or removed model.
        raise not_found("invoking getDB: database")
    return model


def _machines(model: Model) -> list[dict[str, str]]:
    return [
        {"id": machine.id, "instance-id": machine.instance_id, "status": machine.status.status}
        for machine in model.machines.values()
    ]


def _cloud() -> dict[str, Any]:
    return {
        "type": "manual",
        "auth-types": ["simulated"],
        "endpoint": "simulated",
        "regions": [{"name": REGION}],
        "is-controller-cloud": True,
    }


def _credential_tag(user: str) -> str:
    return f"cloudcred-{CLOUD}_{user}_{CREDENTIAL}"


def _info(call: Call, model: Model) -> dict[str, Any]:
    controller = call.session.controller
    seen = model.users if call.user.superuser else {call.user.name: model.users.get(call.user.name, "")}
    return {
        "name": model.name,
        "type": "iaas",
        "uuid": model.uuid,
        "controller-uuid": controller.uuid,
        "is-controller": model is controller.controller_model,
        "provider-type": "manual",
        "cloud-tag": f"cloud-{CLOUD}",
        "cloud-region": REGION,
        "cloud-credential-tag": _credential_tag(model.owner),
        "cloud-credential-validity": True,
        "qualifier": model.owner,
        "life": model.life,
        "status": {"status": "available", "info": "", "since": now()},
        "users": [
            {
                "model-tag": "",
                "user": name,
                "display-name": controller.users[name].display_name if name in controller.users else "",
                "last-connection": model.last_connections.get(name),
                "access": access,
            }
            for name, access in seen.items()
        ],
        "machines": _machines(model),
        "secret-backends": [
            {
                "result": {"name": "internal", "backend-type": "controller", "config": None},
                "id": "",
                "num-secrets": len(model.secrets.all),
                "status": "active",
            }
        ],
        "agent-version": VERSION,
        "supported-features": [
            {"name": "juju", "description": "the version of Juju used by the model", "version": VERSION}
        ],
    }
