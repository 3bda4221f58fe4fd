"""Making, listing and destroying models: ModelManager, and what `juju add-model` asks of Cloud before."""

from __future__ import annotations

from typing import Any

from tests.lab.juju_controller import VERSION, Controller
from tests.lab.juju_model import Model, Refused, not_found, now
from tests.lab.juju_rpc import Call, facade, method

CLOUD = "simulated"
REGION = "default"
CREDENTIAL = "simulator"

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
        raise Refused(f'model "{name}" for {owner} already exists', "already exists")
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
                    "owner-tag": f"user-{model.owner}",
                },
                "last-connection": None,
            }
            for model in models
        ]
    }


@method("ModelManager", "ListModelSummaries")
def _summaries(call: Call) -> dict[str, Any]:
    controller = call.session.controller
    return {"results": [{"result": _summary(controller, model)} for model in controller.models.values()]}


@method("ModelManager", "ModelInfo")
def _model_info(call: Call) -> dict[str, Any]:
    controller = call.session.controller
    results: list[dict[str, Any]] = []
    for entity in call.params["entities"]:
        model = controller.models.get(str(entity["tag"]).removeprefix("model-"))
        if model is None:
            # Juju does not tell an unknown model from one the user may not see.
            results.append({"error": Refused("permission denied", "unauthorized access").as_dict()})
        else:
            results.append({"result": _info(controller, model)})
    return {"results": results}


@method("ModelManager", "ModelStatus")
def _model_status(call: Call) -> dict[str, Any]:
    controller = call.session.controller
    results: list[dict[str, Any]] = []
    for entity in call.params["entities"]:
        model = controller.models.get(str(entity["tag"]).removeprefix("model-"))
        if model is None:
            uuid = str(entity["tag"]).removeprefix("model-")
            results.append({"error": Refused(f'model "{uuid}" not found', "model not found").as_dict()})
            continue
        units = sum(len(application.units) for application in model.applications.values())
        results.append(
            {
                "model-tag": f"model-{model.uuid}",
                "qualifier": model.owner,
                "life": model.life,
                "type": "iaas",
                "hosted-machine-count": len(model.machines),
                "application-count": len(model.applications),
                "unit-count": units,
            }
        )
    return {"models": results}


@method("ModelManager", "DestroyModels")
def _destroy(call: Call) -> dict[str, Any]:
    controller = call.session.controller
    results: list[dict[str, Any]] = []
    for params in call.params["models"]:
        uuid = str(params["model-tag"]).removeprefix("model-")
        model = controller.models.get(uuid)
        if model is None:
            results.append({"error": Refused(f'model "{uuid}" not found', "model not found").as_dict()})
        elif model is controller.controller_model:
            results.append({"error": Refused("permission denied", "unauthorized access").as_dict()})
        else:
            controller.remove_model(model)
            results.append({})
    return {"results": results}


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


def _summary(controller: Controller, model: Model) -> dict[str, Any]:
    info = _info(controller, model)
    kept = {key: info[key] for key in info.keys() - {"users", "machines", "secret-backends"}}
    units = sum(len(application.units) for application in model.applications.values())
    counts = {"machines": len(model.machines), "units": units}
    return kept | {
        "user-access": "admin",
        "last-connection": None,
        "counts": [{"entity": name, "count": count} for name, count in counts.items()],
        "sla": None,
    }


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
                "model-tag": f"model-{model.uuid}",
                "user": model.owner,
                "display-name": model.owner,
                "last-connection": None,
                "access": "admin",
            }
        ],
        "machines": [
            {"id": machine.id, "instance-id": machine.instance_id, "status": machine.status.status}
            for machine in model.machines.values()
        ],
        "secret-backends": [],
        "agent-version": VERSION,
    }
