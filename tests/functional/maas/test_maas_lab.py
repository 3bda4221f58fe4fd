"""The simulated MAAS region, asked by a plain HTTP client: it does what a region of 3.3 was seen to do."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab.control import LabError
from lab.maas.description import read_description
from lab.maas.region import Timings
from lab.maas.simulator import MaasLab
from tests.functional.maas.region_client import Region
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.plan import MaasTarget

QUICK = Timings(commissioning_s=0.05, deploying_s=0.05, releasing_s=0.05, power_timeout_s=0.05, timeout_s=0.2)
VIRSH = {
    "power_type": "virsh",
    "power_parameters": '{"power_address": "qemu+ssh://host/system", "power_id": "vm"}',
}


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The series of a page of metrics by name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def services(controller: dict[str, Any]) -> dict[str, str]:
    """The services of a controller, and how each is."""
    return {service["name"]: service["status"] for service in controller["service_set"]}


@pytest.fixture(scope="module")
def lab() -> Iterator[MaasLab]:
    """A region that the tests leave whole; nothing takes long in it."""
    with MaasLab(timings=QUICK) as lab:
        yield lab


@pytest.fixture
def new_lab() -> Iterator[Callable[..., MaasLab]]:
    """Starts regions of the test's own, with MaasLab's arguments."""
    with contextlib.ExitStack() as labs:
        yield lambda **named: labs.enter_context(MaasLab(**named))


@pytest.fixture
async def region(lab: MaasLab) -> AsyncIterator[Region]:
    """A client of the shared region, which is empty."""
    async with Region(lab) as region:
        yield region
        for machine in await region.ok("GET", "machines/"):
            await region.ok("DELETE", f"machines/{machine['system_id']}/")


class TestAccess:
    async def test_version_says_that_the_region_is_simulated(self, lab: MaasLab) -> None:
        # given nobody's key; when the version is asked for
        async with Region(lab, key=None) as region:
            version = await region.ok("GET", "version/")
        # then it is that of the description, and no real region's
        assert version["version"] == "3.3.11"
        assert version["subversion"] == "simulated"
        assert "authenticate-api" in version["capabilities"]
        assert lab.ask({"do": "facts"}) == {"simulated": True, "version": "3.3.11"}

    async def test_describe_has_every_call_of_a_real_region(self, lab: MaasLab) -> None:
        # when a client asks what there is
        async with Region(lab, key=None) as region:
            described = await region.ok("GET", "describe/")
        # then all 96 resources are there, with the hash of MAAS 3.3.11
        assert described["hash"] == "1d020ba276dee29a88822f085bea1125af4cff1b"
        assert len(described["resources"]) == 96
        machines = next(one for one in described["resources"] if one["name"] == "MachinesHandler")
        assert {"create", "read", "allocate"} <= {action["name"] for action in machines["auth"]["actions"]}

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            (None, "Forbidden"),
            ("a:b:c", "Authorization Error: Invalid API key."),
            ("token", "Authorization Error: 'Invalid access token: x'"),
            ("secret", "Authorization Error: 'Invalid signature.'"),
        ],
    )
    async def test_a_wrong_key_is_refused(self, lab: MaasLab, wrong: str | None, said: str) -> None:
        # given no key, one of nobody, one whose token is another, or one with another secret
        consumer, token, secret = lab.key.split(":")
        key = {"token": f"{consumer}:x:{secret}", "secret": f"{consumer}:{token}:x"}.get(wrong or "", wrong)
        # when machines are listed with it, then MAAS's own text refuses that
        async with Region(lab, key=key) as region:
            assert await region.call("GET", "machines/") == (401, said)

    async def test_a_request_counts_once(self, region: Region) -> None:
        # given the headers of a request
        headers = region.headers()
        # when it is sent twice
        answers = [await region.call("GET", "zones/", headers=headers) for _ in range(2)]
        # then the second is refused, because its nonce is known
        assert [status for status, _ in answers] == [200, 401]
        assert "Nonce already used" in answers[1][1]

    async def test_a_password_gives_a_key(self, lab: MaasLab) -> None:
        # given a login with the password, and one without
        login = f"{lab.url}/accounts/authenticate/"
        async with aiohttp.ClientSession() as http:
            right = {"username": "admin", "password": lab.password, "consumer": "test"}
            async with http.post(login, data=right) as answer:
                token = await answer.json()
            async with http.post(login, data=right | {"password": "x"}) as answer:
                assert answer.status == 403
        # when the key of the first is used, then it is the administrator's
        key = ":".join(token[part] for part in ("consumer_key", "token_key", "token_secret"))
        async with Region(lab, key=key) as region:
            whoami = await region.ok("GET", "users/?op=whoami")
        assert (whoami["username"], whoami["is_superuser"]) == ("admin", True)
        assert "password" not in whoami

    async def test_the_target_reads_the_labs_file_of_credentials(
        self, new_lab: Callable[..., MaasLab]
    ) -> None:
        # given the file of a lab with TLS; when the target's client logs in with it
        lab = new_lab(tls=True)
        client = MaasClient(access(MaasTarget(kind="maas", credentials=lab.credentials)))
        try:
            # then it takes the lab for a region of that version
            assert await client.log_in() == "3.3.11-simulated"
        finally:
            await client.close()

    async def test_revoked_keys_are_refused_until_they_are_restored(
        self, lab: MaasLab, region: Region
    ) -> None:
        # given a key that works; when keys are revoked
        lab.ask({"do": "revoke-keys"})
        refused, _ = await region.call("GET", "machines/")
        # then it does not, until they are restored
        lab.ask({"do": "restore-keys"})
        assert refused == 401
        assert await region.ok("GET", "machines/") == []

    async def test_tls_is_of_the_labs_own_authority(self, new_lab: Callable[..., MaasLab]) -> None:
        # given a region with TLS
        lab = new_lab(tls=True)
        # when it is asked by a client that knows its authority, and by one that does not
        async with Region(lab) as region:
            assert await region.ok("GET", "machines/") == []
        async with aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.ClientConnectorCertificateError) as refused:
                await http.get(f"{lab.url}/api/2.0/version/")
        # then only the first is served
        assert isinstance(refused.value.certificate_error, ssl.SSLCertVerificationError)


class TestCalls:
    async def test_every_described_call_is_answered_or_refused_in_words(
        self, new_lab: Callable[..., MaasLab]
    ) -> None:
        # given every call that the description has
        calls = [
            (call, resource.path)
            for resource in read_description().resources
            for call in (*resource.calls.values(), *resource.anonymous.values())
        ]
        assert len(calls) > 250
        async with Region(new_lab()) as region:
            # when each is made of things that are not there, and without a parameter
            for call, path in calls:
                below = path.removeprefix("/MAAS/api/2.0/").replace("{", "").replace("}", "")
                status, answer = await region.call(call.method, below + (f"?op={call.op}" if call.op else ""))
                # then none fails in the region
                assert status in (200, 204, 400, 401, 404, 409, 501), (call, answer)
                if status == 501:
                    assert answer.endswith("not simulated by this lab."), call

    @pytest.mark.parametrize(
        ("method", "path", "status", "said"),
        [
            ("POST", "machines/?op=dance", 400, "Unrecognised signature: method=POST op=dance"),
            ("GET", "events/", 400, "Unrecognised signature: method=GET op=None"),
            ("PUT", "machines/", 405, ""),
            ("GET", "machines/nobody/", 404, "No Machine matches the given query."),
            ("GET", "tags/none/", 404, "No Tag matches the given query."),
        ],
    )
    async def test_what_is_not_described_is_refused(
        self, region: Region, method: str, path: str, status: int, said: str
    ) -> None:
        # when a call is made that there is not, or of a thing that there is not, then MAAS's text says so
        assert await region.call(method, path) == (status, said)

    async def test_required_parameters_are_named(self, region: Region) -> None:
        # when a zone is made without a name, then the answer is a form's
        assert await region.call("POST", "zones/") == (400, {"name": ["This field is required."]})

    async def test_zones_pools_tags_and_fabrics_are_kept(self, region: Region) -> None:
        for path, below in (
            ("zones", "zones/rack-a"),
            ("resourcepools", "resourcepool/1"),
            ("tags", "tags/rack-a"),
            ("fabrics", "fabrics/1"),
        ):
            # given a thing of this name
            made = await region.ok("POST", f"{path}/", name="rack-a")
            assert made["name"] == "rack-a"
            # when it is made again, then that is refused
            if path != "fabrics":
                label = {"zones": "Physical zone", "resourcepools": "Resource pool", "tags": "Tag"}[path]
                again = await region.call("POST", f"{path}/", data={"name": "rack-a"})
                assert again[0] == 400
                assert again[1] == {"name": [f"{label} with this Name already exists."]}
            # when it is read and removed, then it is gone
            assert made["resource_uri"] == f"/MAAS/api/2.0/{below}/"
            assert await region.ok("GET", f"{below}/") == made
            await region.ok("DELETE", f"{below}/")
            assert (await region.call("GET", f"{below}/"))[0] == 404

    async def test_a_thing_that_is_renamed_has_its_new_name_in_its_path(self, region: Region) -> None:
        # given two tags, one of them on a machine
        for name in ("old", "other"):
            await region.ok("POST", "tags/", name=name)
        system_id = (await region.enlist("52:54:00:00:03:02"))["system_id"]
        await region.ok("POST", "tags/old/?op=update_nodes", add=system_id)
        # when it gets the other's name, then that is refused; when it gets a new one, then the machine has that
        refused = await region.call("PUT", "tags/old/", data={"name": "other"})
        assert refused == (400, {"name": ["Tag with this Name already exists."]})
        assert (await region.ok("PUT", "tags/old/", name="new"))["resource_uri"] == "/MAAS/api/2.0/tags/new/"
        assert (await region.call("GET", "tags/old/"))[0] == 404
        assert (await region.ok("GET", f"machines/{system_id}/"))["tag_names"] == ["new"]
        for name in ("new", "other"):
            await region.ok("DELETE", f"tags/{name}/")

    async def test_what_is_below_nothing_is_not_there(self, region: Region) -> None:
        # when a VLAN of no fabric is made, or a disk of no machine, then there is no such fabric or machine
        vlan = await region.call("POST", "fabrics/99/vlans/", data={"vid": "7"})
        assert vlan == (404, "No Fabric matches the given query.")
        disk = {"name": "sdb", "size": "1", "block_size": "512"}
        assert (await region.call("POST", "nodes/nobody/blockdevices/", data=disk))[0] == 404

    async def test_values_have_the_types_of_a_region(self, region: Region) -> None:
        # given a user and a VLAN that were made by forms, which have only texts
        user = {"username": "anna", "email": "a@b", "password": "secret", "is_superuser": "0"}
        made = await region.ok("POST", "users/", **user)
        vlan = await region.ok("POST", "fabrics/0/vlans/", vid="7", name="seven")
        # then the answers have true, false and numbers, and no password
        assert (made["is_superuser"], "password" in made) == (False, False)
        assert vlan["vid"] == 7
        assert await region.ok("GET", "fabrics/0/vlans/7/") == vlan
        await region.ok("DELETE", "users/anna/")
        await region.ok("DELETE", "fabrics/0/vlans/7/")

    async def test_rack_controllers_are_listed(self, region: Region) -> None:
        racks = await region.ok("GET", "rackcontrollers/")
        assert [rack["hostname"] for rack in racks] == ["rack-1"]
        assert await region.ok("GET", "rackcontrollers/rack-1/") == racks[0]
        # then each says which of its services run, and so does the region controller
        assert (
            services(racks[0]).items() >= {"rackd": "running", "dhcpd": "running", "tftp": "running"}.items()
        )
        assert services(await region.ok("GET", "regioncontrollers/region/"))["regiond"] == "running"
        assert (await region.call("GET", "rackcontrollers/rack-9/"))[0] == 404

    async def test_the_default_zone_stays(self, region: Region) -> None:
        # when somebody deletes what a region cannot be without, then that is refused
        assert (await region.call("DELETE", "zones/default/"))[0] == 400
        assert (await region.ok("GET", "zones/default/"))["name"] == "default"

    async def test_a_pool_is_deleted_when_it_has_no_machines(self, region: Region) -> None:
        # given a pool with a machine
        pool = await region.ok("POST", "resourcepools/", name="ours")
        system_id = (await region.enlist("52:54:00:00:03:01", pool="ours"))["system_id"]
        below = f"resourcepool/{pool['id']}/"
        # when it is renamed, then the machine is in it still
        await region.ok("PUT", below, name="renamed")
        assert [machine["system_id"] for machine in await region.ok("GET", "machines/?pool=renamed")] == [
            system_id
        ]
        # when it is deleted, then that is refused until the machine is gone
        refused = await region.call("DELETE", below)
        assert refused == (400, "Pool has machines in it, it cannot be deleted.")
        await region.ok("DELETE", f"machines/{system_id}/")
        await region.ok("DELETE", below)

    async def test_parts_in_base64_are_read(self, region: Region) -> None:
        # given a body as MAAS's own clients send it
        boundary = "parts"
        fields = {"name": "from-parts", "comment": "é"}
        body = "".join(
            f"--{boundary}\r\nContent-Transfer-Encoding: base64\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f'MIME-Version: 1.0\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
            f"{base64.b64encode(value.encode()).decode()}\r\n"
            for name, value in fields.items()
        )
        # when a tag is made with it
        kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        status, tag = await region.call("POST", "tags/", f"{body}--{boundary}--\r\n".encode(), kind)
        # then its fields are those
        assert status == 200
        assert {name: tag[name] for name in fields} == fields
        await region.ok("DELETE", "tags/from-parts/")


class TestLife:
    async def test_a_machine_is_enlisted_commissioned_deployed_released_and_removed(
        self, region: Region
    ) -> None:
        # given a machine that was created
        made = await region.enlist("52:54:00:00:00:01", hostname="one", **VIRSH)
        assert (made["status"], made["status_name"], made["hostname"]) == (0, "New", "one")
        assert len(made) == 77
        system_id = made["system_id"]
        # when it is commissioned, deployed and released
        seen: list[str] = []
        for op, ends in (("commission", "Ready"), ("deploy", "Deployed"), ("release", "Ready")):
            seen.append((await region.ok("POST", f"machines/{system_id}/?op={op}"))["status_name"])
            after = await region.until(system_id, ends)
            assert after["power_state"] == ("on" if op == "deploy" else "off")
            assert after["owner"] == ("" if op == "release" else "admin")
            assert after["status_message"] == ("Released" if op == "release" else ends)
        # then it went through the statuses between, and its events say so
        assert seen == ["Commissioning", "Deploying", "Releasing"]
        page = await region.ok("GET", f"events/?op=query&id={system_id}&level=DEBUG&limit=1000")
        changes = [event["description"] for event in page["events"] if event["type"] == "Node changed status"]
        assert changes[::-1] == [
            "From 'New' to 'Commissioning'",
            "From 'Commissioning' to 'Ready'",
            "From 'Ready' to 'Allocated'",
            "From 'Allocated' to 'Deploying'",
            "From 'Deploying' to 'Deployed'",
            "From 'Deployed' to 'Releasing'",
            "From 'Releasing' to 'Ready'",
        ]
        # when it is removed, then nothing of it is left
        await region.ok("DELETE", f"machines/{system_id}/")
        assert await region.ok("GET", "machines/") == []
        assert (await region.ok("GET", "events/?op=query&level=DEBUG"))["count"] == 0

    async def test_an_administrators_machine_is_commissioned_at_once(self, region: Region) -> None:
        # when a machine is created without `commission`, then commissioning begins
        made = await region.ok(
            "POST",
            "machines/",
            architecture="amd64/generic",
            mac_addresses="52:54:00:00:00:02",
            power_type="manual",
        )
        assert made["status_name"] == "Commissioning"
        await region.until(made["system_id"], "Ready")

    async def test_a_machine_can_be_created_deployed(self, region: Region) -> None:
        assert (await region.enlist("52:54:00:00:00:03", deployed="true"))["status"] == 6

    async def test_a_mac_address_belongs_to_one_machine(self, region: Region) -> None:
        # given a machine with two MAC addresses
        await region.ok(
            "POST",
            "machines/",
            architecture="amd64",
            mac_addresses=["52:54:00:00:00:04", "52:54:00:00:00:05"],
            hostname="first",
            commission="false",
        )
        # when another has one of them
        fields = {"architecture": "amd64", "mac_addresses": "52:54:00:00:00:05", "commission": "false"}
        refused = await region.call("POST", "machines/", data=fields)
        # then it is refused with MAAS's text, and is not there
        said = {"mac_addresses": ["MAC address 52:54:00:00:00:05 already in use on first."]}
        assert refused == (400, said)
        # and where it has two addresses, MAAS says so in other words
        two = aiohttp.FormData([*fields.items(), ("mac_addresses", "52:54:00:00:00:99")])
        refused = await region.call("POST", "machines/", data=two)
        merged = f"One or more MAC addresses is invalid. ({said['mac_addresses'][0]})"
        assert refused == (400, {"mac_addresses": [merged]})
        assert len(await region.ok("GET", "machines/")) == 1

    @pytest.mark.parametrize(
        ("changed", "problems"),
        [
            ({"hostname": "taken"}, {"hostname": ["Node with this Hostname already exists."]}),
            ({"mac_addresses": "x"}, {"mac_addresses": ["'x' is not a valid MAC address."]}),
            ({"mac_addresses": ""}, {"mac_addresses": ["This field is required."]}),
            (
                {"zone": "nowhere"},
                {"zone": ["Select a valid choice. That choice is not one of the available choices."]},
            ),
            (
                {"power_type": "virsh", "power_parameters_power_address": "qemu:///system"},
                {"power_parameters": ["Power id: This field is required."]},
            ),
        ],
    )
    async def test_a_form_that_is_wrong_is_refused(
        self, region: Region, changed: dict[str, str], problems: dict[str, list[str]]
    ) -> None:
        # given a machine of the name `taken`, when another is created with something wrong
        await region.enlist("52:54:00:00:00:06", hostname="taken")
        fields = {"architecture": "amd64", "mac_addresses": "52:54:00:00:00:07", "commission": "false"}
        # then the answer names the field
        assert await region.call("POST", "machines/", data=fields | changed) == (400, problems)

    async def test_a_call_that_the_status_forbids_is_a_conflict(self, region: Region) -> None:
        # given a machine that is New
        system_id = (await region.enlist("52:54:00:00:00:08"))["system_id"]
        # when it is deployed or released, then the status is in the way
        for op, said in (
            ("deploy", "Can't deploy a machine that is in the 'New' state"),
            ("release", "Machine cannot be released in its current state ('New')."),
            ("power_on", "Can't start node: it hasn't been allocated."),
            ("unlock", "Machine is not locked"),
        ):
            assert await region.call("POST", f"machines/{system_id}/?op={op}") == (409, said)

    async def test_machines_are_found_by_what_they_have(self, region: Region) -> None:
        # given three machines, one of them in a zone and with a tag
        await region.ok("POST", "zones/", name="far")
        await region.ok("POST", "tags/", name="chosen")
        machines = [await region.enlist(f"52:54:00:00:01:0{n}", hostname=f"m{n}") for n in range(3)]
        ids = [machine["system_id"] for machine in machines]
        await region.ok("PUT", f"machines/{ids[1]}/", zone="far")
        added = await region.ok("POST", "tags/chosen/?op=update_nodes", add=[ids[1], ids[2], "nobody"])
        assert added == {"added": 2, "removed": 0}
        # when they are asked for, then those are listed
        for query, found in (
            (f"machines/?id={ids[0]}&id={ids[2]}", ["m0", "m2"]),
            ("machines/?hostname=m1&hostname=m2", ["m1", "m2"]),
            ("machines/?mac_address=52:54:00:00:01:00", ["m0"]),
            ("machines/?zone=far", ["m1"]),
            ("machines/?tags=chosen&tags=chosen", ["m1", "m2"]),
            ("machines/?pool=default&domain=maas", ["m0", "m1", "m2"]),
            ("machines/?power_state=on", []),
            ("machines/?status=testing&status=failed_commissioning", []),
            ("machines/?status=new", ["m0", "m1", "m2"]),
            ("machines/?status=deployed", []),
            ("tags/chosen/?op=machines", ["m1", "m2"]),
        ):
            assert [machine["hostname"] for machine in await region.ok("GET", query)] == found, query
        # when the tag is deleted, then no machine has it
        await region.ok("DELETE", "tags/chosen/")
        await region.ok("DELETE", "zones/far/")
        left = await region.ok("GET", "machines/")
        assert [machine["tag_names"] for machine in left] == [[], [], []]
        assert {machine["zone"]["name"] for machine in left} == {"default"}

    @pytest.mark.parametrize(
        ("query", "problems"),
        [
            ("pool=none", {"pool": ["No such pool(s): none."]}),
            ("zone=default&zone=none", {"zone": ["No such zone(s): none."]}),
            (
                "status=odd",
                {"status": ["Select a valid choice. odd is not one of the available choices."]},
            ),
        ],
    )
    async def test_a_filter_by_what_is_not_there_is_refused(
        self, region: Region, query: str, problems: dict[str, list[str]]
    ) -> None:
        assert await region.call("GET", f"machines/?{query}") == (400, problems)

    async def test_machines_that_are_not_there_are_not_released(self, region: Region) -> None:
        # given a machine that is deployed; when it is released with one that there is not
        system_id = (await region.enlist("52:54:00:00:01:10", deployed="true"))["system_id"]
        both = aiohttp.FormData([("machines", system_id), ("machines", "nobody")])
        refused = await region.call("POST", "machines/?op=release", both)
        # then neither is
        assert refused == (400, "Unknown machine(s): nobody.")
        assert (await region.ok("GET", f"machines/{system_id}/"))["status_name"] == "Deployed"

    async def test_a_machine_whose_power_nobody_can_ask_is_released_at_once(self, region: Region) -> None:
        # given a machine of the power type manual, which was created as deployed
        system_id = (await region.enlist("52:54:00:00:01:11", deployed="true"))["system_id"]
        # when it is released, then the answer shows it New, because it was never commissioned
        assert (await region.ok("POST", f"machines/{system_id}/?op=release"))["status_name"] == "New"
        # when it was commissioned and deployed before, then the answer shows it Ready
        for op, ends in (("commission", "Ready"), ("deploy", "Deployed")):
            await region.ok("POST", f"machines/{system_id}/?op={op}")
            await region.until(system_id, ends)
        assert (await region.ok("POST", f"machines/{system_id}/?op=release"))["status_name"] == "Ready"

    async def test_a_mac_address_is_registered_for_users_and_later_for_machines(
        self, lab: MaasLab, region: Region
    ) -> None:
        # given a machine that is New
        mac = "52:54:00:00:01:12"
        system_id = (await region.enlist(mac))["system_id"]
        asked = f"machines/?op=is_registered&mac_address={mac}"
        async with Region(lab, key=None) as anonymous:
            # when a user asks for its MAC address, and a machine does, which has no key
            assert await region.ok("GET", asked) is True
            # then only the user is told that it is known, until it is commissioned
            assert await anonymous.ok("GET", asked) is False
            await region.ok("POST", f"machines/{system_id}/?op=commission")
            await region.until(system_id, "Ready")
            assert await anonymous.ok("GET", asked) is True
        assert await region.call("GET", "machines/?op=is_registered") == (400, "No provided mac_address!")

    async def test_power_parameters_are_told_of_all_machines_or_of_some(self, region: Region) -> None:
        # given two machines with power parameters
        ids = [(await region.enlist(f"52:54:00:00:01:2{n}", **VIRSH))["system_id"] for n in range(2)]
        # when they are asked for, then each machine's come by its id
        found = await region.ok("GET", "machines/?op=power_parameters")
        assert found.keys() == set(ids)
        assert found[ids[0]]["power_id"] == "vm"
        assert (await region.ok("GET", f"machines/?op=power_parameters&id={ids[1]}")).keys() == {ids[1]}

    async def test_events_come_in_pages(self, region: Region) -> None:
        # given the events of a machine's commissioning
        system_id = (await region.enlist("52:54:00:00:00:09", **VIRSH))["system_id"]
        await region.ok("POST", f"machines/{system_id}/?op=commission")
        await region.until(system_id, "Ready")
        whole = await region.ok("GET", f"events/?op=query&id={system_id}&level=DEBUG")
        numbers = [event["id"] for event in whole["events"]]
        assert numbers == sorted(numbers, reverse=True)
        # when they are read two at a time
        seen: list[int] = []
        page = await region.ok("GET", f"events/?op=query&id={system_id}&level=DEBUG&limit=2")
        while page["events"]:
            seen += [event["id"] for event in page["events"]]
            page = await region.ok("GET", page["prev_uri"].removeprefix("/MAAS/api/2.0/"))
        # then each comes once
        assert seen == numbers
        after = await region.ok("GET", f"events/?op=query&id={system_id}&level=DEBUG&after={numbers[2]}")
        assert [event["id"] for event in after["events"]] == numbers[:2]


class TestMetrics:
    async def test_what_is_in_the_database_is_counted(self, new_lab: Callable[..., MaasLab]) -> None:
        # given a region with three machines, one of them deployed, and a VM host with one more
        lab = new_lab(machines=2, timings=QUICK)
        async with Region(lab) as region:
            await region.enlist("52:54:00:00:05:01", deployed="true")
            host = await region.ok("POST", "vm-hosts/", type="virsh", power_address="qemu:///system")
            made = await region.ok("POST", f"vm-hosts/{host['id']}/?op=compose", cores=2, memory=2048)
            await region.until(made["system_id"], "Ready")
            # when Prometheus asks, which has no key
            async with region.http.get(f"{lab.url}/metrics") as answer:
                found = samples(await answer.text())
            # then all are counted, with the id of the MAAS
            count = {labels["status"]: value for labels, value in found["maas_machines"]}
            assert {status for status, value in count.items() if value} == {"ready", "deployed"}
            assert (count["ready"], count["deployed"]) == (3, 1)
            assert all(labels["maas_id"] for of in found.values() for labels, _ in of)
            nodes = {labels["type"]: value for labels, value in found["maas_nodes"]}
            assert nodes == {"machines": 4, "devices": 0, "regions": 1, "regionracks": 0, "racks": 1}
            cores = {labels["status"]: value for labels, value in found["maas_kvm_cores"]}
            assert cores == {"available": 64, "used": 2}
            # when the setting is taken back, then nothing is there, as in a new MAAS
            await region.ok("POST", "maas/?op=set_config", name="prometheus_enabled", value="false")
            async with region.http.get(f"{lab.url}/metrics") as answer:
                assert answer.status == 404

    async def test_answers_are_timed_by_what_was_asked(self, new_lab: Callable[..., MaasLab]) -> None:
        # given a region whose database takes a tenth of a second
        lab = new_lab(machines=1)
        lab.slow("region", 0.1)
        async with Region(lab) as region:
            # when its machine is asked for twice, and one that is not there
            (machine,) = await region.ok("GET", "machines/")
            for system_id in (machine["system_id"], machine["system_id"], "nobody"):
                await region.call("GET", f"machines/{system_id}/")
            async with region.http.get(lab.metrics_url) as answer:
                found = samples(await answer.text())
        # then the controller's own metrics have that, by path and status
        path = "/MAAS/api/2.0/machines/:system_id/"
        counts = {
            labels["status"]: value
            for labels, value in found["maas_http_request_latency_count"]
            if labels["path"] == path
        }
        assert counts == {"200": 2, "404": 1}
        assert sum(value for _, value in found["maas_http_request_latency_sum"]) >= 0.4


class TestHosts:
    async def test_machines_are_composed_while_there_is_room(self, region: Region) -> None:
        # given a VM host
        host = await region.ok(
            "POST", "vm-hosts/", type="virsh", power_address="qemu+ssh://host/system", name="host-1"
        )
        compose = f"vm-hosts/{host['id']}/?op=compose"
        assert (await region.ok("POST", f"vm-hosts/{host['id']}/?op=add_tag", tag="ours"))["tags"] == ["ours"]
        # when a machine is composed on it
        made = await region.ok(
            "POST", compose, cores=4, memory=4096, storage="root:10,data:60", hostname="vm-1"
        )
        machine = await region.until(made["system_id"], "Ready")
        # then it is as was asked, and its room is used
        assert (machine["cpu_count"], machine["memory"], machine["hostname"]) == (4, 4096, "vm-1")
        assert [disk["size"] for disk in machine["blockdevice_set"]] == [10 * 1000**3, 60 * 1000**3]
        assert machine["pod"]["id"] == host["id"]
        used = (await region.ok("GET", f"vm-hosts/{host['id']}/"))["used"]
        assert used == {"cores": 4, "memory": 4096, "local_storage": 70 * 1000**3}
        # when one is too large, then the answer says what the host lacks, or never had
        lacks = "CPU overcommit ratio is 1.0 and there are 60 available resources; 61 requested."
        for field, status, said in (
            ({"cores": "61"}, 503, f"Unable to compose KVM instance in 'host-1'. {lacks}"),
            ({"cores": "65"}, 400, {"cores": ["Ensure this value is less than or equal to 64."]}),
            ({"storage": "root:4000"}, 500, "Not enough storage space on any storage pools: default"),
        ):
            assert await region.call("POST", compose, data=field) == (status, said)
        # when the host is deleted with its machines, then both are gone
        await region.ok("DELETE", f"vm-hosts/{host['id']}/?decompose=true")
        assert await region.ok("GET", "machines/") == []
        assert await region.ok("GET", "pods/") == []

    @pytest.mark.parametrize(
        ("state", "said"),
        [
            ("full", "there are 0 available resources; 1 requested."),
            ("unreachable", "Failed talking to pod: Failed to connect to the LXD REST API."),
        ],
    )
    async def test_a_host_that_is_full_or_unreachable_composes_nothing(
        self, lab: MaasLab, region: Region, state: str, said: str
    ) -> None:
        # given a VM host with a fault
        host = await region.ok("POST", "vm-hosts/", type="lxd", power_address=state, name="host-2")
        lab.ask({"do": "vm-host", "name": "host-2", "state": state})
        # when a machine is composed, then it is not, and not there
        status, text = await region.call("POST", f"vm-hosts/{host['id']}/?op=compose")
        assert status == 503
        assert said in text
        assert await region.ok("GET", "machines/") == []
        await region.ok("DELETE", f"vm-hosts/{host['id']}/")


class TestFaults:
    async def test_a_boot_that_never_comes_fails_after_the_time_out(
        self, lab: MaasLab, region: Region
    ) -> None:
        # given machines that never boot
        lab.ask({"do": "boots", "lost": 1})
        try:
            # when one is commissioned
            system_id = (await region.enlist("52:54:00:00:02:02", commission="true", **VIRSH))["system_id"]
            await region.until(system_id, "Failed commissioning")
        finally:
            lab.ask({"do": "boots", "lost": 0})
        # then an event says why
        events = (await region.ok("GET", f"events/?op=query&id={system_id}&level=ERROR"))["events"]
        assert [event["type"] for event in events] == ["Marking node failed"]
        assert events[0]["description"].startswith("Node operation 'Commissioning' timed out after")
        # and when it is commissioned again, then it is Ready
        await region.ok("POST", f"machines/{system_id}/?op=commission")
        await region.until(system_id, "Ready")

    @pytest.mark.parametrize("state", ["silent", "failing"])
    async def test_power_that_does_not_answer_fails_a_deployment(
        self, lab: MaasLab, region: Region, state: str
    ) -> None:
        # given a machine that is Ready, and power controllers that do not answer
        system_id = (await region.enlist("52:54:00:00:02:03", commission="true", **VIRSH))["system_id"]
        await region.until(system_id, "Ready")
        lab.ask({"do": "power", "state": state})
        try:
            # when it is deployed, then it fails, and a query of its power is an error
            await region.ok("POST", f"machines/{system_id}/?op=deploy")
            failed = await region.until(system_id, "Failed deployment")
            query = await region.ok("GET", f"machines/{system_id}/?op=query_power_state")
        finally:
            lab.ask({"do": "power", "state": "normal"})
        why = {
            "silent": "Timed out",
            "failing": "Power on for the node failed: Failed to complete power action: the power controller refused",
        }[state]
        assert failed["status_message"] == f"Failed to power on node - {why}"
        assert query == {"state": "error"}
        assert await region.ok("GET", f"machines/{system_id}/?op=query_power_state") == {"state": "off"}

    async def test_a_webhook_is_asked_over_http(self, new_lab: Callable[..., MaasLab]) -> None:
        # given a machine whose power controller is a webhook, which the lab answers
        lab = new_lab(timings=dataclasses.replace(QUICK, power_timeout_s=60.0))
        hook = f"{lab.url.removesuffix('/MAAS')}/lab/power"
        uris = {f"power_parameters_power_{name}_uri": f"{hook}/{name}" for name in ("on", "off", "query")}
        async with Region(lab) as region:
            made = await region.enlist("52:54:00:00:02:07", commission="true", power_type="webhook", **uris)
            system_id = made["system_id"]
            await region.until(system_id, "Ready")
            query = f"machines/{system_id}/?op=query_power_state"
            assert await region.ok("GET", query) == {"state": "off"}
            # when it is deployed, then its controller says that it is on, to whoever asks
            await region.ok("POST", f"machines/{system_id}/?op=deploy")
            await region.until(system_id, "Deployed")
            assert await region.ok("GET", query) == {"state": "on"}
            async with region.http.get(f"{hook}/query", headers={"System_Id": system_id}) as answer:
                assert await answer.json() == {"status": "running"}
            # when it has another controller, where nobody answers, then its power is an error
            nobody = {"power_parameters_power_query_uri": "http://127.0.0.1:9/query"}
            await region.ok("PUT", f"machines/{system_id}/", **nobody)
            assert await region.ok("GET", query) == {"state": "error"}

    async def test_a_machine_can_be_switched_by_hand(self, region: Region) -> None:
        # given a machine that is deployed
        system_id = (await region.enlist("52:54:00:00:02:08", deployed="true", **VIRSH))["system_id"]
        # when it is switched off, and on again, then its controller says so
        for op, state in (("power_off", "off"), ("power_on", "on")):
            await region.ok("POST", f"machines/{system_id}/?op={op}")
            assert await region.ok("GET", f"machines/{system_id}/?op=query_power_state") == {"state": state}

    async def test_manual_power_is_unknown(self, region: Region) -> None:
        system_id = (await region.enlist("52:54:00:00:02:04"))["system_id"]
        assert await region.ok("GET", f"machines/{system_id}/?op=query_power_state") == {"state": "unknown"}

    async def test_without_a_rack_controller_there_is_no_power(self, new_lab: Callable[..., MaasLab]) -> None:
        # given a region with two rack controllers, and a machine that is being deployed for long
        lab = new_lab(racks=2, timings=QUICK)
        async with Region(lab) as region:
            system_id = (await region.enlist("52:54:00:00:02:05", hostname="alone", **VIRSH))["system_id"]
            # when one of them is gone, then the other serves
            lab.kill("rack-1")
            assert {one["name"]: one["running"] for one in lab.members()} == {
                "region": True,
                "rack-1": False,
                "rack-2": True,
            }
            await region.ok("POST", f"machines/{system_id}/?op=commission")
            await region.until(system_id, "Ready")
            # when both are gone, then nothing can be deployed, until one is back
            lab.kill("rack-2")
            refused = await region.call("POST", f"machines/{system_id}/?op=deploy")
            assert refused == (400, "Deployment operating system ubuntu jammy is unavailable.")
            # and no power controller can be asked
            refused = await region.call("GET", f"machines/{system_id}/?op=query_power_state")
            said = "Unable to connect to any rack controller rack-1,rack-2; no connections available."
            assert refused == (503, said)
            # and the rack controllers are listed as dead
            racks = await region.ok("GET", "rackcontrollers/")
            assert [services(rack)["rackd"] for rack in racks] == ["dead", "dead"]
            assert (await region.ok("GET", f"machines/{system_id}/"))["status_name"] == "Ready"
            lab.start("rack-1")
            await region.ok("POST", f"machines/{system_id}/?op=deploy")
            await region.until(system_id, "Deployed")

    async def test_a_rack_controller_that_goes_while_machines_boot_fails_them(
        self, new_lab: Callable[..., MaasLab]
    ) -> None:
        # given a machine that is being commissioned, which takes a while
        lab = new_lab(timings=dataclasses.replace(QUICK, commissioning_s=10.0))
        async with Region(lab) as region:
            system_id = (await region.enlist("52:54:00:00:02:09", commission="true"))["system_id"]
            # which cannot begin once more
            status, said = await region.call("POST", f"machines/{system_id}/?op=commission")
            assert (status, "Commission is not available" in str(said)) == (400, True)
            # when the rack controller is gone meanwhile, then it got no image, and has failed after the time-out
            lab.kill("rack-1")
            failed = await region.until(system_id, "Failed commissioning")
        assert "timed out after" in failed["status_message"]

    async def test_a_rack_controller_that_is_stopped_is_dead_until_it_continues(
        self, new_lab: Callable[..., MaasLab]
    ) -> None:
        # given a region with one rack controller, which is stopped
        lab = new_lab(timings=QUICK)
        lab.stop("rack-1")
        async with Region(lab) as region:
            # when it is listed, then its services are as the region has them without it
            (rack,) = await region.ok("GET", "rackcontrollers/")
            found = services(rack)
            assert {found[name] for name in ("rackd", "dhcpd", "tftp", "ntp_rack")} == {"dead"}
            assert found["http"] == "unknown"
            # and neither can a VM host be added
            host = {"type": "virsh", "power_address": "qemu:///system"}
            refused = await region.call("POST", "vm-hosts/", data=host)
            assert refused == (400, {"type": ["No rack controllers are connected, unable to validate."]})
            # when it continues, then they run
            lab.resume("rack-1")
            assert services(await region.ok("GET", "rackcontrollers/rack-1/"))["rackd"] == "running"

    async def test_machines_are_composed_again_when_a_host_has_room(
        self, lab: MaasLab, region: Region
    ) -> None:
        # given a VM host that is full; when it is normal again, then a machine is composed on it
        host = await region.ok("POST", "vm-hosts/", type="virsh", power_address="again", name="host-3")
        compose = f"vm-hosts/{host['id']}/?op=compose"
        for state, status in (("full", 503), ("normal", 200)):
            lab.ask({"do": "vm-host", "name": "host-3", "state": state})
            assert (await region.call("POST", compose))[0] == status
        await region.ok("DELETE", f"vm-hosts/{host['id']}/?decompose=true")

    async def test_a_region_that_was_killed_comes_back_with_its_data(
        self, new_lab: Callable[..., MaasLab]
    ) -> None:
        # given a region with a machine that is being commissioned
        lab = new_lab(timings=QUICK)
        async with Region(lab) as region:
            system_id = (await region.enlist("52:54:00:00:02:06", commission="true"))["system_id"]
            # when it is killed, then nobody is served
            lab.kill("region")
            with pytest.raises(aiohttp.ClientError):
                await region.call("GET", "machines/")
            assert not lab.members()[0]["running"]
            # when it is started again, then the machine is there, and goes on
            lab.start("region")
            await region.until(system_id, "Ready")

    async def test_a_stopped_region_answers_when_it_continues(self, new_lab: Callable[..., MaasLab]) -> None:
        # given a region that is stopped
        lab = new_lab(timings=QUICK)
        async with Region(lab) as region:
            lab.stop("region")
            # when it is asked
            asked = asyncio.create_task(region.call("GET", "machines/"))
            done, _ = await asyncio.wait([asked], timeout=0.3)
            assert not done
            # then it answers once it continues
            lab.resume("region")
            assert await asked == (200, [])

    async def test_a_slow_database_makes_every_answer_late(self, lab: MaasLab, region: Region) -> None:
        # given a database that takes half a second
        lab.slow("region", 0.5)
        try:
            # when machines are listed, then the answer takes as long
            begun = asyncio.get_running_loop().time()
            await region.ok("GET", "machines/")
            assert asyncio.get_running_loop().time() - begun >= 0.5
        finally:
            lab.slow("region", 0)

    @pytest.mark.parametrize(
        "request_",
        [
            {"do": "boots", "lost": 2},
            {"do": "power", "state": "odd"},
            {"do": "vm-host", "name": "none", "state": "full"},
            {"do": "machines", "count": 0},
            {"do": "slow", "member": "rack-1", "seconds": 1},
            {"do": "partition", "member": "region"},
        ],
    )
    def test_a_fault_that_there_is_not_is_refused(self, lab: MaasLab, request_: dict[str, Any]) -> None:
        with pytest.raises(LabError, match=": expected "):
            lab.ask(request_)


class TestManyMachines:
    async def test_thousands_of_machines_are_there_at_once(self, new_lab: Callable[..., MaasLab]) -> None:
        # given a region that began with 1000 machines
        lab = new_lab(machines=1000)
        async with Region(lab) as region:
            # when 4000 more are added
            lab.ask({"do": "machines", "count": 4000})
            # then all are listed, and each has its own id and MAC address
            machines = await region.ok("GET", "machines/")
            assert len(machines) == len({machine["system_id"] for machine in machines}) == 5000
            macs = {machine["interface_set"][0]["mac_address"] for machine in machines}
            assert len(macs) == 5000
            assert {machine["status_name"] for machine in machines} == {"Ready"}
        assert lab.counts()["machines"] == 5000

    @pytest.mark.parametrize("wrong", [{"machines": -1}, {"racks": 0}, {"timings": Timings(deploying_s=0)}])
    def test_options_that_are_wrong_are_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(LabError, match=r": expected "):
            MaasLab(**wrong)

    def test_secrets_are_in_private_files_only(self, lab: MaasLab) -> None:
        # given the lab's files and what it tells programs
        told = json.dumps(lab.describe())
        # then the key and the password are in none that others can read
        assert lab.key not in told
        assert lab.password not in told
        assert lab.credentials.stat().st_mode & 0o777 == 0o600
        for file in lab.directory.iterdir():
            if file.is_file() and file.stat().st_mode & 0o077:
                text = file.read_text(errors="replace")
                assert lab.key.rpartition(":")[2] not in text
                assert lab.password not in text


def test_the_program_says_that_it_is_simulated_and_ends_with_its_input() -> None:
    # given a lab as a program, with three machines
    command = [sys.executable, "-m", "lab.maas.simulator", "--machines=3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        told = json.loads(program.stdout.readline())
        # when a fault is asked for, as `scripts/lab fault maas` does
        asked = [sys.executable, "-m", "lab.ask", told["lab"], '{"do": "count"}']
        answer = subprocess.run(asked, capture_output=True, text=True, check=True)
        # then the program says what it is, and answers
        assert told["simulated"] is True
        assert json.loads(answer.stdout)["counts"]["machines"] == 3
        # when its input ends, then so does it, and its directory is gone
        program.communicate()
    assert program.returncode == 0
    assert not Path(told["lab"]).parent.exists()
