"""What OpenStack answers: errors and faults by their kind, versions, and what limits leave room for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.targets.openstack.capacity import fitting, fitting_on
from tippingpoint.targets.openstack.errors import OpenstackGone, fault_of, openstack_error, trouble_of
from tippingpoint.targets.openstack.versions import SERVERS, choose, offered, read_version, show_version

# As a Zed answered them, or as they are in its sources.
ANSWERS: list[tuple[int, Any, str, str]] = [
    (403, {"forbidden": {"code": 403, "message": "Quota exceeded for instances: Requested 1, but already used 10 of 10 "
                         "instances"}}, "quota", "Quota exceeded for instances"),
    (403, {"forbidden": {"code": 403, "message": "Policy doesn't allow os_compute_api:os-services:list to be "
                         "performed."}}, "trust", "Policy doesn't allow"),
    (400, {"badRequest": {"code": 400, "message": "Can not find requested image"}}, "image", "requested image"),
    (400, {"badRequest": {"code": 400, "message": "Invalid flavorRef provided."}}, "setting", "Invalid flavorRef"),
    (409, {"conflict": {"code": 409, "message": "Cannot 'delete' instance 0e7ee8cf-3c0d-4bb0-93ec-d9ae7b9b1d0b "
                                  "while it is in task_state deleting"}}, "busy", "instance ID while it is in"),
    (409, {"NeutronError": {"type": "OverQuota", "message": "Quota exceeded for resources: network", "detail": ""}},
     "quota", "OverQuota: Quota exceeded"),
    (409, {"NeutronError": {"type": "IpAddressGenerationFailure", "message": "No more IP addresses on network "
                            "0e7ee8cf-3c0d-4bb0-93ec-d9ae7b9b1d0b.", "detail": ""}}, "full", "No more IP addresses"),
    (401, {"error": {"code": 401, "message": "The request you have made requires authentication.",
                     "title": "Unauthorized"}}, "trust", "requires authentication"),
    (500, {"computeFault": {"code": 500, "message": "Unexpected API Error.\n<class 'oslo_messaging.exceptions."
                            "MessagingTimeout'>"}}, "timeout", "MessagingTimeout"),
    (503, None, "unreachable", "no message (HTTP 503)"),
    (502, "<html>", "unreachable", "no message"),
    (500, {"computeFault": {"code": 500, "message": "(pymysql.err.OperationalError) (1213, 'Deadlock found when trying "
                            "to get lock')"}}, "locked", "Deadlock"),
    (418, {"a": [1, {"b": None}]}, "other", "no message"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "content", "kind", "text"), ANSWERS)
def test_an_answer_says_what_kind_of_failure_it_is(code: int, content: object, kind: str, text: str) -> None:
    problem = openstack_error("POST compute /servers", content, code)
    assert problem.kind == kind
    assert problem.code == code
    assert text in str(problem)
    assert str(problem).startswith("POST compute /servers: ")
    assert "\n" not in str(problem)


def test_what_is_not_there_is_gone() -> None:
    message = {"itemNotFound": {"code": 404, "message": "Instance x could not be found."}}
    assert isinstance(openstack_error("DELETE compute /servers/x", message, 404), OpenstackGone)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.integers(100, 599))
def test_any_answer_is_told_in_one_line(content: object, code: int) -> None:
    problem = openstack_error("GET x /", content, code)
    assert "\n" not in str(problem)
    assert len(str(problem)) <= 400


@given(st.dictionaries(st.sampled_from(["fault", "status"]), JSON))
def test_any_fault_is_told_in_one_line(server: dict[str, Any]) -> None:
    told = fault_of(server)
    assert told is None or (str(told).strip() and "\n" not in str(told))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("No valid host was found. There are not enough hosts available.", "full"),
        ("Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures for instance "
         "5c0d1e0e-6d5a-4f37-8d83-b4c4c62ff0a3.", "other"),
        ("Build of instance 5c0d1e0e-6d5a-4f37-8d83-b4c4c62ff0a3 aborted: Failed to allocate the network(s), not "
         "rescheduling.", "other"),
        ("Timed out waiting for a reply to message ID 5c0d1e0e6d5a4f378d83b4c4c62ff0a3", "timeout"),
        ("Maximum number of ports exceeded", "quota"),
    ],
)  # fmt: skip
def test_servers_that_failed_of_the_same_have_the_same_fault(fault: str, kind: str) -> None:
    other = fault.replace("5c0d1e0e", "99999999")
    told = fault_of({"fault": {"message": fault}})
    assert told is not None
    assert told.kind == kind
    assert str(told) == str(fault_of({"fault": {"message": other}}))


def test_a_text_says_more_than_a_code() -> None:
    assert trouble_of("Quota exceeded", 403) == "quota"
    assert trouble_of("", 403) == "trust"


# -- versions -----------------------------------------------------------------------------------------


def test_versions_are_read_from_a_service_s_document() -> None:
    nova = {"version": {"id": "v2.1", "status": "CURRENT", "version": "2.93", "min_version": "2.1"}}
    assert offered(nova) == ((2, 1), (2, 93))
    placement = {"versions": [{"id": "v1.0", "max_version": "1.39", "min_version": "1.0"}]}
    assert offered(placement) == ((1, 0), (1, 39))
    both = {"versions": [{"id": "v2.0", "version": "", "min_version": ""}, nova["version"]]}
    assert offered(both) == ((2, 1), (2, 93))


@given(JSON)
def test_any_document_is_read(document: object) -> None:
    has = offered(document)
    assert has is None or has[0] <= has[1]


@given(st.tuples(st.integers(1, 3), st.integers(0, 120)), st.tuples(st.integers(1, 3), st.integers(0, 120)))
def test_the_version_that_is_chosen_is_one_that_there_is(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    low, high = sorted((one, other))
    chosen = choose(SERVERS, (low, high))
    assert low <= chosen <= high
    assert chosen == SERVERS or not low <= SERVERS <= high
    assert read_version(show_version(chosen)) == chosen


# -- room ---------------------------------------------------------------------------------------------

FLAVOR = {"vcpus": 2, "ram": 512, "disk": 1}


def test_each_limit_of_a_quota_leaves_room_for_so_many() -> None:
    limits = {
        "maxTotalInstances": 10,
        "totalInstancesUsed": 4,
        "maxTotalCores": 20,
        "totalCoresUsed": 15,
        "maxTotalRAMSize": -1,
        "totalRAMUsed": 99999,
    }
    assert fitting(limits, FLAVOR) == {"quota of instances": 6, "quota of cores": 2}


def test_a_quota_that_is_used_up_leaves_none() -> None:
    limits = {"maxTotalInstances": 10, "totalInstancesUsed": 12}
    assert fitting(limits, FLAVOR) == {"quota of instances": 0}


def test_hypervisors_have_room_for_what_fits_on_each() -> None:
    told = [
        {"free_ram_mb": 1500, "free_disk_gb": 10},
        {"free_ram_mb": 600, "free_disk_gb": -3},
        {"free_ram_mb": None},
    ]
    assert fitting_on(told, FLAVOR) == {"memory of hypervisors": 3, "disks of hypervisors": 10}
    assert fitting_on([{}], FLAVOR) == {}
