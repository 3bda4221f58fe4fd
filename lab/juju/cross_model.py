"""Offers between models: the ApplicationOffers facade, and what consumes offers in Application.

Recorded. All models are on one controller. A macaroon has the shape of one, but nothing checks it: the facade has
checked the user.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

from lab.juju.accounts import OFFER_LEVELS, change, has
from lab.juju.methods import facade, method
from lab.juju.model import Model
from lab.juju.offers import Consumed, Offer, OfferURL, parse_url
from lab.juju.refusals import Refused, permission_denied
from lab.juju.rpc import Call, for_each
from lab.juju.statuses import now

facade("ApplicationOffers", "user")


# -- offers --------------------------------------------------------------------------------------


@method("ApplicationOffers", "Offer")
def _offer(call: Call) -> dict[str, Any]:
    wanted: list[dict[str, Any]] = call.params["Offers"]
    if len(wanted) != 1:
        raise Refused(f"expected exactly one offer, got {len(wanted)}")

    def offer(fields: dict[str, Any]) -> dict[str, Any]:
        model = call.session.controller.models.get(str(fields["model-tag"]).removeprefix("model-"))
        if model is None or not call.may("admin", model):
            uuid = str(fields["model-tag"]).removeprefix("model-")
            raise Refused(
                f'checking user "user-{call.user.name}" has admin permission on model "{uuid}": permission denied',
                "unauthorized access",
            )
        _make(call, model, fields)
        return {}

    return {"results": for_each(wanted, offer)}


def _make(call: Call, model: Model, fields: dict[str, Any]) -> None:
    name = str(fields["application-name"])
    application = model.applications.get(name)
    if application is None:
        raise Refused(f'application "{name}" not found in model "{model.uuid}"', "not found")
    called = str(fields.get("offer-name") or name)
    named = sorted(fields["endpoints"])
    missing = [endpoint for endpoint in named if endpoint not in application.charm.endpoints]
    if missing:
        raise Refused(f'creating offer "{called}": "{missing[0]}": endpoint not found')
    there = model.offers.get(called)
    if there is not None:
        if there.application == name and sorted(there.endpoints) == named:
            return
        raise Refused(f'offer "{called}" already exists, updating offers is not supported', "bad request")
    description = application.charm.description
    owner = str(fields.get("owner-tag") or "").removeprefix("user-") or call.user.name
    endpoints = {endpoint: application.charm.endpoints[endpoint] for endpoint in named}
    model.offers[called] = Offer(called, name, endpoints, {owner: "admin"}, description)


@method("ApplicationOffers", "ListApplicationOffers")
def _list(call: Call) -> dict[str, Any]:
    return {"results": _matching(call, call.params["Filters"], "admin") or None}


@method("ApplicationOffers", "FindApplicationOffers")
def _find(call: Call) -> dict[str, Any]:
    filters: list[dict[str, Any]] = call.params["Filters"]
    if len(filters) == 1 and not filters[0].get("model-name"):
        models = call.session.controller.models.values()
        filters = [filters[0] | {"model-name": one.name, "model-qualifier": one.owner} for one in models]
    return {"results": _matching(call, filters, "read") or None}


@method("ApplicationOffers", "ApplicationOffers")
def _show(call: Call) -> dict[str, Any]:
    def show(text: str) -> dict[str, Any]:
        url = parse_url(text, call.user.name)
        found = _matching(call, [_filter(url)], "read")
        if not found:
            raise Refused(f'application offer "{url}"', "not found")
        return {"result": found[0]}

    return {"results": for_each(call.params.get("offer-urls") or [], show)}


def _filter(url: OfferURL) -> dict[str, Any]:
    return {"model-qualifier": url.owner, "model-name": url.model, "offer-name": url.name}


def _matching(call: Call, filters: list[dict[str, Any]], access: str) -> list[dict[str, Any]]:
    """Return the details of offers that match one of the filters, as far as the user sees them."""
    if not filters:
        raise Refused("at least one offer filter is required")
    found: dict[str, dict[str, Any]] = {}
    for wanted in filters:
        if not wanted.get("model-name"):
            raise Refused("application offer filter must specify a model name")
        owner = str(wanted.get("model-qualifier") or call.user.name)
        model = _model(call, owner, str(wanted["model-name"]))
        admin = call.may("admin", model)
        if access == "admin" and not admin:
            raise permission_denied()
        for offer in model.offers.values():
            seen = call.may("read", model) or call.user.name in offer.users
            if seen and _matches(offer, wanted):
                found.setdefault(offer.uuid, _details(call, model, offer, admin))
    return list(found.values())


def _matches(offer: Offer, wanted: dict[str, Any]) -> bool:
    name = re.sub(r"\\(.)", r"\1", str(wanted.get("offer-name") or "").removeprefix("^").removesuffix("$"))
    endpoints: list[dict[str, Any]] = wanted.get("endpoints") or []
    return (
        name in ("", offer.name)
        and wanted.get("application-name") in ("", None, offer.application)
        and (not endpoints or any(_has_endpoint(offer, one) for one in endpoints))
    )


def _has_endpoint(offer: Offer, wanted: dict[str, Any]) -> bool:
    return any(
        wanted.get("name") in ("", None, endpoint.name)
        and wanted.get("interface") in ("", None, endpoint.interface)
        and wanted.get("role") in ("", None, endpoint.role)
        for endpoint in offer.endpoints.values()
    )


def _details(call: Call, model: Model, offer: Offer, admin: bool) -> dict[str, Any]:
    users = call.session.controller.users
    seen = dict(offer.users)
    if not admin:
        seen = {call.user.name: seen.get(call.user.name, "")}
    elif call.user.name not in seen:
        seen[call.user.name] = "admin"
    shown = _offered(model, offer) | {
        "application-description": offer.description,
        "users": [
            {
                "user": name,
                "display-name": users[name].display_name if name in users else "",
                "access": level,
            }
            for name, level in seen.items()
        ],
        "application-name": offer.application,
        "charm-url": model.applications[offer.application].charm.full_url,
    }
    if admin and offer.connections:
        shown["connections"] = [connection.as_dict() for connection in offer.connections.values()]
    return shown


def _offered(model: Model, offer: Offer) -> dict[str, Any]:
    return {
        "source-model-tag": f"model-{model.uuid}",
        "offer-uuid": offer.uuid,
        "offer-url": f"{model.owner}/{model.name}.{offer.name}",
        "offer-name": offer.name,
        "application-description": "",
        "endpoints": [endpoint.as_remote() for endpoint in offer.endpoints.values()],
    }


@method("ApplicationOffers", "GetConsumeDetails")
def _consume_details(call: Call) -> dict[str, Any]:
    name = str(call.params.get("user-tag") or "").removeprefix("user-") or call.user.name
    if name != call.user.name and not call.user.superuser:
        raise permission_denied()
    controller = call.session.controller

    def describe(text: str) -> dict[str, Any]:
        url = parse_url(text, name)
        model = _model(call, url.owner, url.model)
        offer = model.offers.get(url.name)
        if offer is None:
            raise Refused(f'application offer "{url}" not found', "not found")
        if not call.may("admin", model) and not has(offer.users.get(name, ""), "consume", OFFER_LEVELS):
            raise permission_denied()
        addresses = [f"{address}:{controller.setup.port}" for address in controller.setup.addresses]
        return {
            "offer": _offered(model, offer),
            "macaroon": _macaroon(),
            "external-controller": {
                "controller-tag": f"controller-{controller.uuid}",
                "controller-alias": "",
                "addrs": addresses,
                "ca-cert": controller.setup.ca,
            },
        }

    return {"results": for_each(call.params["offer-urls"].get("offer-urls") or [], describe)}


def _macaroon() -> dict[str, Any]:
    """Return something of a macaroon's shape."""
    caveats = [{"i": f"declared {what}"} for what in ("source-model-uuid", "username", "offer-uuid")]
    caveats.append({"i": f"time-before {now()}"})
    return {
        "c": caveats,
        "l": "juju model",
        "i64": secrets.token_urlsafe(64),
        "s64": secrets.token_urlsafe(32),
    }


@method("ApplicationOffers", "ModifyOfferAccess")
def _modify_access(call: Call) -> dict[str, Any]:
    def modify(fields: dict[str, Any]) -> dict[str, Any]:
        url = parse_url(str(fields["offer-url"]), call.user.name)
        model = _model(call, url.owner, url.model)
        offer = model.offers.get(url.name)
        if offer is None:
            raise Refused(f'offer "{url}" not found', "not found")
        if not call.may("admin", model) and offer.users.get(call.user.name) != "admin":
            raise permission_denied()
        user, action = str(fields["user-tag"]).removeprefix("user-"), str(fields["action"])
        if user not in call.session.controller.users:
            raise Refused(
                f'could not {action} offer access for "{user}": active users "{user}": user not found'
            )
        try:
            change(offer.users, user, action, str(fields["access"]), OFFER_LEVELS, "offer")
        except Refused as refusal:
            message = f'could not {action} offer access for "{user}": {refusal.message}'
            raise Refused(message, refusal.code) from None
        return {}

    return {"results": for_each(call.params["changes"], modify)}


@method("ApplicationOffers", "DestroyOffers")
def _destroy(call: Call) -> dict[str, Any]:
    def destroy(text: str) -> dict[str, Any]:
        url = parse_url(text, call.user.name)
        model = _model(call, url.owner, url.model)
        if not call.may("admin", model):
            raise permission_denied()
        offer = model.offers.get(url.name)
        if offer is None:
            raise Refused(f'"{url.name}": offer not found')
        if offer.connections and not call.params.get("force"):
            count = len(offer.connections)
            raise Refused(
                f'deleting offer "{offer.uuid}": cannot delete offer {{"{offer.uuid}"}}, it has {count} connections'
            )
        model.remove_offer(offer)
        return {}

    return {"results": for_each(call.params["offer-urls"], destroy)}


def _model(call: Call, owner: str, name: str) -> Model:
    for model in call.session.controller.models.values():
        if model.name == name and model.owner == owner:
            return model
    raise Refused(f'model "{owner}/{name}": not found', "not found")


# -- consuming -----------------------------------------------------------------------------------


@method("Application", "Consume", "write")
def _consume(call: Call) -> dict[str, Any]:
    def consume(fields: dict[str, Any]) -> dict[str, Any]:
        model = call.session.controller.models.get(str(fields["source-model-tag"]).removeprefix("model-"))
        offers = model.offers.values() if model is not None else ()
        offer = next((one for one in offers if one.uuid == fields["offer-uuid"]), None)
        url = parse_url(str(fields["offer-url"]), call.user.name)
        name = str(fields.get("application-alias") or "") or url.name
        if model is None or offer is None:
            raise Refused(f'saving remote application offerer "{name}": offer not found')
        call.model.consume(Consumed(name, offer, str(url), model.uuid, call.user.name))
        return {}

    return {"results": for_each(call.params.get("args") or [], consume)}


@method("Application", "DestroyConsumedApplications", "write")
def _destroy_consumed(call: Call) -> dict[str, Any]:
    def destroy(fields: dict[str, Any]) -> dict[str, Any]:
        there = call.model.consumed.get(str(fields["application-tag"]).removeprefix("application-"))
        if there is not None:
            call.model.remove_consumed(there)
        return {}

    return {"results": for_each(call.params["applications"], destroy)}
