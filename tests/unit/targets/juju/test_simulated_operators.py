"""The simulated Juju controller serves people: many models, access, offers, secrets, and what they may not do."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from lab.control import LabError
from lab.juju.client import WireClient
from lab.juju.simulator import JujuLab
from tests.unit.targets.juju.simulated_population import Population

DENIED = {"message": "permission denied", "code": "unauthorized access"}
VALUE = {"data": {"key": base64.b64encode(b"value").decode()}}


@pytest.fixture(scope="module")
def lab() -> Iterator[JujuLab]:
    with JujuLab() as lab:
        yield lab


@pytest.fixture
def model(lab: JujuLab) -> Iterator[Population]:
    with Population(lab) as population:
        yield population


@pytest.fixture
def other(lab: JujuLab) -> Iterator[Population]:
    with Population(lab) as population:
        yield population


def _destroy(model: Population, uuid: str) -> dict[str, Any]:
    destroy = {"model-tag": f"model-{uuid}", "destroy-storage": True, "force": True, "max-wait": 0}
    (result,) = model.ask(model.controller, "ModelManager.DestroyModels", models=[destroy])["results"]
    return result


# -- models --------------------------------------------------------------------------------------


def test_a_hundred_models_are_listed_and_destroyed(model: Population) -> None:
    names = [f"many{number}" for number in range(100)]
    made = [
        model.ask(model.controller, "ModelManager.CreateModel", name=name, qualifier="admin")["uuid"]
        for name in names
    ]
    admin = {"user-tag": "user-admin", "all": True}
    summaries = model.ask(model.controller, "ModelManager.ListModelSummaries", **admin)["results"]
    listed = {one["result"]["uuid"]: one["result"] for one in summaries}
    taken = model.refusal(model.controller, "ModelManager.CreateModel", name="many7", qualifier="admin")

    assert [listed[uuid]["name"] for uuid in made] == names
    assert listed[made[0]]["counts"] == []
    counted = {count["entity"]: count["count"] for count in listed[model.uuid]["counts"]}
    assert counted == {"machines": 2, "units": 4}
    assert taken == ("model admin/many7 already exists", "already exists")
    assert [_destroy(model, uuid) for uuid in made] == [{}] * 100
    left = model.ask(model.controller, "ModelManager.ListModels", tag="user-admin")["user-models"]
    assert not {one["model"]["uuid"] for one in left} & set(made)


def test_a_kept_model_refuses_to_be_destroyed(model: Population) -> None:
    model.lab.ask({"do": "keep-model", "model": model.uuid})
    refused = _destroy(model, model.uuid)
    model.lab.ask({"do": "keep-model", "model": model.uuid, "keep": False})

    assert refused == {"error": {"message": "the operation has been blocked", "code": "operation is blocked"}}
    assert _destroy(model, model.uuid) == {}
    with pytest.raises(LabError, match="model: 'none': expected one of"):
        model.lab.ask({"do": "keep-model", "model": "none"})


def test_a_user_needs_access_to_add_and_to_enter_models(model: Population) -> None:
    user = model.add_user("ann")

    def change(what: str, action: str, **fields: str) -> dict[str, Any]:
        changes = [{"user-tag": "user-ann", "action": action} | fields]
        return model.ask(model.controller, what, changes=changes)["results"][0]

    assert model.refusal(user, "ModelManager.CreateModel", name="mine", qualifier="ann") == tuple(
        DENIED.values()
    )
    cloud = {"cloud-tag": "cloud-simulated", "access": "add-model"}
    assert change("Cloud.ModifyCloudAccess", "grant", **cloud) == {}
    assert (
        model.ask(user, "ModelManager.CreateModel", name="mine", qualifier="ann")["users"][0]["user"] == "ann"
    )
    assert model.refusal(user, "ModelManager.CreateModel", name="mine", qualifier="admin")[1] == "not valid"

    with WireClient(model.lab.addresses[0], model.lab.ca, model.uuid) as client:
        assert client.login("user-ann", "ann")["error"] == "permission denied"
    read = {"model-tag": f"model-{model.uuid}", "access": "read"}
    assert change("ModelManager.ModifyModelAccess", "grant", **read) == {}
    again = change("ModelManager.ModifyModelAccess", "grant", **read)
    within = model.connect("ann", "ann", model.uuid)
    assert again["error"]["message"] == 'user "ann" already has "read" access or greater'
    assert len(model.ask(within, "Client.FullStatus", patterns=[])["applications"]) == 2
    add = {"application": "a", "num-units": 1}
    assert model.refusal(within, "Application.AddUnits", **add) == tuple(DENIED.values())
    seen = model.ask(user, "ModelManager.ListModels", tag="user-ann")["user-models"]
    assert {one["model"]["name"] for one in seen} == {"mine", model.name}
    destroy = {"model-tag": f"model-{model.uuid}", "force": True}
    assert model.ask(user, "ModelManager.DestroyModels", models=[destroy])["results"] == [{"error": DENIED}]
    assert change("ModelManager.ModifyModelAccess", "revoke", **read) == {}
    assert model.refusal(within, "Client.FullStatus", patterns=[]) == tuple(DENIED.values())


# -- applications --------------------------------------------------------------------------------


def test_an_exposed_application_is_shown_so(model: Population) -> None:
    model.ask(model.admin, "Application.Expose", application="a")
    shown = model.status()["applications"]
    model.ask(model.admin, "Application.Unexpose", application="a", **{"exposed-endpoints": []})

    assert [shown[name]["exposed"] for name in "ab"] == [True, False]
    assert shown["a"]["exposed-endpoints"] == {"": {"expose-to-cidrs": ["0.0.0.0/0", "::/0"]}}
    assert model.status()["applications"]["a"]["exposed"] is False


def test_what_is_written_waits_for_a_slow_disk(model: Population) -> None:
    """Given a server whose disk is slow, when something is changed, then reads go on, and the change comes later."""

    def exposed() -> bool:
        return model.status()["applications"]["a"]["exposed"]

    model.lab.ask({"do": "slow-disk", "member": "s1", "writes_per_s": 1e-6})
    other = model.connect(model.lab.user, model.lab.password, model.uuid)
    number = other.send(
        {"type": "Application", "version": 22, "request": "Expose", "params": {"application": "a"}}
    )
    model.ask(other, "Client.FullStatus", patterns=[])
    before = exposed()
    model.lab.ask({"do": "free-disk", "member": "s1"})

    assert before is False
    assert other.reply(number)["response"] == {}
    assert exposed() is True
    model.ask(model.admin, "Application.Unexpose", application="a", **{"exposed-endpoints": []})
    with pytest.raises(LabError, match="writes_per_s: 0: expected a number more than 0"):
        model.lab.ask({"do": "slow-disk", "member": "s1", "writes_per_s": 0})


def test_a_relation_is_in_the_status_until_it_is_removed(model: Population) -> None:
    before = model.status()
    model.ask(model.admin, "Application.DestroyRelation", endpoints=["a:link", "b:link-from"])
    after = model.status()

    assert before["applications"]["a"]["relations"] == {"cluster": ["a"], "link": ["b"]}
    assert {one["key"] for one in before["relations"]} == {"a:cluster", "b:cluster", "b:link-from a:link"}
    assert {one["key"] for one in after["relations"]} == {"a:cluster", "b:cluster"}


# -- offers --------------------------------------------------------------------------------------


def _offer(model: Population, name: str = "share") -> dict[str, Any]:
    offer = {"model-tag": f"model-{model.uuid}", "offer-name": name, "application-name": "a"}
    offer |= {"endpoints": {"link": "link"}, "owner-tag": "user-admin"}
    return model.ask(model.controller, "ApplicationOffers.Offer", Offers=[offer])["results"][0]


def _consume(model: Population, source: Population, alias: str = "") -> dict[str, Any]:
    url = f"admin/{source.name}.share"
    params = {"offer-urls": {"offer-urls": [url]}}
    (details,) = model.ask(model.controller, "ApplicationOffers.GetConsumeDetails", **params)["results"]
    fields = details["offer"] | {"application-alias": alias, "macaroon": details["macaroon"]}
    fields |= {"external-controller": details["external-controller"]}
    return model.ask(model.admin, "Application.Consume", args=[fields])["results"][0]


def test_an_offer_is_found_consumed_related_and_removed(model: Population, other: Population) -> None:
    """Given an offer of one model, when another consumes it and relates, then both show it, and it is in use."""
    assert _offer(other) == {}
    assert _consume(model, other) == {}
    related = model.ask(model.admin, "Application.AddRelation", endpoints=["b:link-from", "share"])
    wanted = {"Filters": [{"model-name": other.name, "model-qualifier": "admin"}]}
    (listed,) = model.ask(model.controller, "ApplicationOffers.ListApplicationOffers", **wanted)["results"]
    consuming, offering = model.status(), other.status()
    url = {"offer-urls": [f"admin/{other.name}.share"], "force": False}
    (refused,) = model.ask(model.controller, "ApplicationOffers.DestroyOffers", **url)["results"]

    assert related["endpoints"]["share"]["name"] == "link"
    shown = consuming["remote-applications"]["share"]
    assert (shown["offer-url"], shown["relations"]) == (f"admin/{other.name}.share", {"link": ["b"]})
    assert consuming["applications"]["b"]["relations"]["link-from"] == ["a", "share"]
    assert offering["offers"]["share"]["total-connected-count"] == 1
    assert listed["connections"][0]["source-model-tag"] == f"model-{model.uuid}"
    assert listed["application-name"] == "a"
    assert "it has 1 connections" in refused["error"]["message"]
    gone = [{"application-tag": "application-share"}]
    assert model.ask(model.admin, "Application.DestroyConsumedApplications", applications=gone) == {
        "results": [{}]
    }
    assert other.status()["offers"]["share"]["total-connected-count"] == 0
    assert model.status()["remote-applications"] == {}
    assert model.ask(model.controller, "ApplicationOffers.DestroyOffers", **url) == {"results": [{}]}
    assert other.status()["offers"] == {}


def test_an_offer_whose_model_is_destroyed_is_shown_as_removed(model: Population, other: Population) -> None:
    _offer(other)
    _consume(model, other)
    model.ask(model.admin, "Application.AddRelation", endpoints=["b:link-from", "share"])
    _destroy(model, other.uuid)
    status = model.status()

    shown = status["remote-applications"]["share"]
    assert (shown["status"]["status"], shown["status"]["info"]) == ("terminated", "offer has been removed")
    assert shown["relations"] == {}
    assert "share" not in str(status["relations"])


def test_an_offer_is_consumed_once_under_a_name_that_is_free(model: Population, other: Population) -> None:
    _offer(other)

    assert _consume(model, other) == _consume(model, other) == {}
    assert _consume(model, other, "a")["error"] == {
        "message": 'application "a" already exists',
        "code": "already exists",
    }


def test_what_cannot_be_offered_is_refused(model: Population) -> None:
    assert _offer(model) == _offer(model) == {}
    offer = {"model-tag": f"model-{model.uuid}", "offer-name": "share", "endpoints": {"link": "link"}}

    def refusal(application: str) -> tuple[str, str]:
        wanted = [offer | {"application-name": application}]
        (result,) = model.ask(model.controller, "ApplicationOffers.Offer", Offers=wanted)["results"]
        return result["error"]["message"], result["error"]["code"]

    assert refusal("b") == ('offer "share" already exists, updating offers is not supported', "bad request")
    assert refusal("c") == (f'application "c" not found in model "{model.uuid}"', "not found")


def test_an_offer_is_for_those_to_whom_it_is_granted(model: Population) -> None:
    _offer(model)
    user = model.add_user("bob")
    url = f"admin/{model.name}.share"
    details = {"offer-urls": {"offer-urls": [url]}}

    def granted() -> dict[str, Any]:
        return model.ask(user, "ApplicationOffers.GetConsumeDetails", **details)["results"][0]

    def found() -> list[dict[str, Any]]:
        wanted = [{"model-name": model.name, "model-qualifier": "admin"}]
        return model.ask(user, "ApplicationOffers.FindApplicationOffers", Filters=wanted)["results"] or []

    assert granted() == {"error": DENIED}
    assert found() == []
    change = {"user-tag": "user-bob", "action": "grant", "access": "consume", "offer-url": url}
    assert model.ask(user, "ApplicationOffers.ModifyOfferAccess", changes=[change])["results"] == [
        {"error": DENIED}
    ]
    assert model.ask(model.controller, "ApplicationOffers.ModifyOfferAccess", changes=[change]) == {
        "results": [{}]
    }
    assert granted()["offer"]["offer-url"] == url
    assert found()[0]["users"] == [{"user": "bob", "display-name": "", "access": "consume"}]
    missing = {"offer-urls": {"offer-urls": [f"admin/{model.name}.none"]}}
    (absent,) = model.ask(user, "ApplicationOffers.GetConsumeDetails", **missing)["results"]
    assert absent["error"] == {
        "message": f'application offer "admin/{model.name}.none" not found',
        "code": "not found",
    }


# -- secrets -------------------------------------------------------------------------------------


def test_a_users_secret_is_granted_to_an_application_and_updated(model: Population) -> None:
    (made,) = model.ask(model.admin, "Secrets.CreateSecrets", args=[{"label": "s", "content": VALUE}])[
        "results"
    ]
    uri = made["result"]
    reader = model.unit("a/0")

    def read() -> dict[str, Any]:
        wanted = {"args": [{"uri": uri, "refresh": True}]}
        return model.ask(reader, "SecretsManager.GetSecretContentInfo", **wanted)["results"][0]

    assert read()["error"]["code"] == "unauthorized access"
    granted = {"label": "s", "applications": ["a", "none"]}
    done, missing = model.ask(model.admin, "Secrets.GrantSecret", **granted)["results"]
    assert done == {}
    assert missing["error"]["message"].endswith('application "none" not found')
    assert read()["content"] == VALUE
    new = {"data": {"key": base64.b64encode(b"new").decode()}}
    updated = {"uri": "", "existing-label": "s", "content": new}
    assert model.ask(model.admin, "Secrets.UpdateSecrets", args=[updated]) == {"results": [{}]}
    (listed,) = model.ask(model.admin, "Secrets.ListSecrets", **{"show-secrets": True})["results"]
    assert read()["content"] == new
    assert (listed["latest-revision"], listed["value"]) == (2, new)
    assert [one["revision"] for one in listed["revisions"]] == [1, 2]
    assert listed["access"][0]["target-tag"] == "application-a"
    assert model.ask(model.admin, "Secrets.RevokeSecret", uri=uri, applications=["a"]) == {"results": [{}]}
    assert read()["error"]["code"] == "unauthorized access"
    assert model.ask(model.admin, "Secrets.RemoveSecrets", args=[{"uri": uri, "label": ""}]) == {
        "results": [{}]
    }
    assert model.ask(model.admin, "Secrets.ListSecrets") == {"results": []}


def test_a_secrets_name_is_used_once(model: Population) -> None:
    wanted = [{"label": "twice", "content": VALUE}] * 2
    _, second = model.ask(model.admin, "Secrets.CreateSecrets", args=wanted)["results"]

    assert second["error"] == {"message": 'secret with name "twice" already exists', "code": "already exists"}
