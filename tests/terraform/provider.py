"""A stand-in for the Juju provider of Terraform, which is in no registry that CI reaches.

It knows the resources and arguments that our modules use, by the provider's documentation (version 2.2.1), and nothing
else. OpenTofu validates modules against that, and mocks what a provider would do. An argument that was not given stays
null here, where the provider itself would compute some: a mock would make those up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from tippingpoint.util.protobuf import fields, integer, text

REQUIRED, OPTIONAL, COMPUTED, SENSITIVE, WRITE_ONLY = 4, 5, 6, 7, 11
"""Numbers of an attribute's flags in tfplugin6.proto of OpenTofu 1.12."""
LIST, SET = 2, 3
"""How a block may be repeated, in the same file."""

_STRINGS: Any = ["set", "string"]
_MAP: Any = ["map", "string"]
_ID = {"id": ("string", COMPUTED)}
_MODEL = {"model_uuid": ("string", REQUIRED)}

RESOURCES: dict[str, dict[str, Any]] = {
    "juju_application": _ID
    | _MODEL
    | {
        "name": ("string", OPTIONAL),
        "units": ("number", OPTIONAL),
        "machines": (_STRINGS, OPTIONAL),
        "constraints": ("string", OPTIONAL),
        "config": (_MAP, OPTIONAL),
        "charm": {
            LIST: {
                "name": ("string", REQUIRED),
                "channel": ("string", OPTIONAL),
                "revision": ("number", OPTIONAL),
                "base": ("string", OPTIONAL),
            }
        },
    },
    "juju_machine": _ID
    | _MODEL
    | {
        "base": ("string", OPTIONAL),
        "constraints": ("string", OPTIONAL),
        "machine_id": ("string", COMPUTED),
    },
    "juju_integration": _ID
    | _MODEL
    | {
        "application": {
            SET: {
                "name": ("string", OPTIONAL),
                "endpoint": ("string", OPTIONAL),
                "offer_url": ("string", OPTIONAL),
            }
        }
    },
    "juju_secret": _ID
    | _MODEL
    | {
        "name": ("string", OPTIONAL),
        "value_wo": (_MAP, OPTIONAL, SENSITIVE, WRITE_ONLY),
        "value_wo_version": ("number", OPTIONAL),
        "secret_id": ("string", COMPUTED),
        "secret_uri": ("string", COMPUTED),
    },
    "juju_access_secret": _ID
    | _MODEL
    | {"secret_id": ("string", REQUIRED), "applications": (_STRINGS, REQUIRED)},
}
"""Attributes (type, flags) and blocks (how they repeat, and their attributes) of each resource."""


def _block(content: dict[str, Any]) -> bytes:
    encoded = b""
    for name, what in content.items():
        if isinstance(what, dict):
            ((nesting, inner),) = what.items()
            nested = text(1, name.encode()) + text(2, _block(inner)) + integer(3, nesting)
            encoded += text(3, nested)
        else:
            kind, *flags = what
            attribute = text(1, name.encode()) + text(2, json.dumps(kind).encode())
            encoded += text(2, attribute + b"".join(integer(flag, 1) for flag in flags))
    return encoded


def _schema() -> bytes:
    """What GetProviderSchema answers: the provider's own settings, none of which we use, and the resources."""
    encoded = text(1, text(2, b""))
    for name, content in RESOURCES.items():
        encoded += text(2, text(1, name.encode()) + text(2, text(2, _block(content))))
    return encoded


def _kept_state(request: bytes) -> bytes:
    """What UpgradeResourceState answers: the state, in JSON, as it was stored."""
    raw = dict(fields(request))[3]
    assert isinstance(raw, bytes)
    stored = dict(fields(raw))[1]
    assert isinstance(stored, bytes)
    return text(1, text(2, stored))


class _Answers(grpc.GenericRpcHandler):
    """Answers the schema and stored states, and has no objections to anything else that is asked."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if not details.method.startswith("/tfplugin6.Provider/"):
            return None  # streams of go-plugin, which OpenTofu does without
        match details.method.rpartition("/")[2]:
            case "GetProviderSchema":
                return grpc.unary_unary_rpc_method_handler(lambda _request, _context: _schema())
            case "UpgradeResourceState":
                return grpc.unary_unary_rpc_method_handler(lambda request, _context: _kept_state(request))
            case _:
                return grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"")


@contextmanager
def serving() -> Iterator[dict[str, str]]:
    """Serve on loopback; yields the environment in which OpenTofu finds the provider there and installs none."""
    server = grpc.server(ThreadPoolExecutor(2), handlers=[_Answers()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    found = {
        "Protocol": "grpc",
        "ProtocolVersion": 6,
        "Pid": os.getpid(),
        "Test": True,
        "Addr": {"Network": "tcp", "String": f"127.0.0.1:{port}"},
    }
    try:
        yield {"TF_REATTACH_PROVIDERS": json.dumps({"juju/juju": found})}
    finally:
        server.stop(None).wait()
