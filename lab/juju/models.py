"""Creates, lists and destroys models: ModelManager, and the requests of `juju add-model` to Cloud."""

from __future__ import annotations

from typing import Any

from lab.juju.controller import VERSION, Controller
from lab.juju.methods import facade, method
from lab.juju.model import Model, Refused, not_found, now, permission_denied
from lab.juju.rpc import Call, for_each

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
    if owner not in controller.users:
        raise Refused(f'creating model: "{owner}" is not a user', "unauthorized access")
    if any(model.name == name and model.owner == owner for model in controller.models.values()):
        raise Refused(f"model {owner}/{name} already exists", "already exists")
    cloud = str(params.get("cloud-tag") or f"cloud-{CLOUD}")
    if cloud != f"cloud-{CLOUD}":
        raise Refused(f'cloud "{cloud.removeprefix("cloud-")}" not found, expected ["{CLOUD}"]', "not found")
    return _info(controller, controller.new_model(name, owner))


@method("ModelManager", "ListModels")
def _list(call: Call) -> dict[str, Any]:
    models = call.session.controller.models.values()
    return {
        "user-models": [
            {
                "model": {
                    "name": model.name,
                    "qualifier": model.owner,
                    "uuid": model.uuid,
                    "type": "iaas",
                },
                "last-connection": model.last_connection,
            }
            for model in models
        ]
    }


@method("ModelManager", "ModelInfo")
def _model_info(call: Call) -> dict[str, Any]:
    controller = call.session.controller

    def inform(entity: dict[str, Any]) -> dict[str, Any]:
        return {"result": _info(controller, _model(controller, entity["tag"]))}

    return {"results": for_each(call.params["entities"], inform)}


@method("ModelManager", "ModelStatus")
def _model_status(call: Call) -> dict[str, Any]:
    controller = call.session.controller

    def describe(entity: dict[str, Any]) -> dict[str, Any]:
        model = controller.models.get(str(entity["tag"]).removeprefix("model-"))
        if model is None:
            raise Refused(f'model "{entity["tag"]}" does not exist', "not found")
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
        if model is controller.controller_model:
            raise permission_denied()
        if model.machines and not params.get("force"):
            model.life = "dying"  # permanently, because it waits for agents, which hollow units do not have
        else:
            controller.remove_model(model)
        return {}

    return {"results": for_each(call.params["models"], destroy)}


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


def _info(controller: Controller, model: Model) -> dict[str, Any]:
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
                "user": model.owner,
                "display-name": model.owner,
                "last-connection": model.last_connection,
                "access": "admin",
            }
        ],
        "machines": _machines(model),
        "secret-backends": [
            {
                "result": {"name": "internal", "backend-type": "controller", "config": None},
                "id": "",
                "num-secrets": 0,
                "status": "active",
            }
        ],
        "agent-version": VERSION,
        "supported-features": [
            {"name": "juju", "description": "the version of Juju used by the model", "version": VERSION}
        ],
    }
