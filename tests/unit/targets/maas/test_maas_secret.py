"""How a charm reaches a MAAS: by a secret, which becomes the file that a run reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.certificates import make_certificates
from tippingpoint.errors import UserError
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.targets.maas.secret import SECRET
from tippingpoint.targets.secret import PLACE

CONTENT = {"url": "https://maas.example:5443/MAAS", "api-key": "consumer:token:hush"}


def test_a_secret_becomes_the_file_of_credentials(tmp_path: Path) -> None:
    ca = make_certificates(tmp_path, "maas").ca.read_text()
    reached = SECRET.reached({**CONTENT, "cacert": ca}, 1)
    assert reached.fields == {"credentials": f"{PLACE}/maas.yaml"}
    assert (reached.address, reached.danger) == ("https://maas.example:5443/MAAS", "")
    assert "hush" not in repr(reached)
    path = tmp_path / "maas.yaml"
    path.touch(0o600)
    path.write_text(reached.files["maas.yaml"])
    section = MaasTarget(kind="maas", credentials=path)
    SECRET.read(section, {"maas.yaml": path})
    assert access(section).api == "https://maas.example:5443/MAAS/api/2.0/"


def test_secrets_of_power_parameters_are_yaml_in_the_secret(tmp_path: Path) -> None:
    reached = SECRET.reached({**CONTENT, "power": "power_pass: hush\npower_token: 12\n"}, 1)
    path = tmp_path / "maas.yaml"
    path.touch(0o600)
    path.write_text(reached.files["maas.yaml"])
    found = access(MaasTarget(kind="maas", credentials=path))
    assert found.power == {"power_pass": "hush", "power_token": "12"}
    assert "hush" not in repr(found)


def test_a_key_that_goes_without_tls_is_a_danger() -> None:
    reached = SECRET.reached({**CONTENT, "url": "http://10.0.0.1:5240/MAAS"}, 1)
    assert "without TLS" in reached.danger


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"url": "maas"}, "url: : expected http(s)://HOST:PORT/MAAS"),
        (
            {"api-key": "hush"},
            "api-key: : expected three parts with colons in between, as `maas apikey --username=USER` shows them",
        ),
        ({"power": "hush"}, "power: : expected a mapping of power parameters to texts"),
        ({"power": "[hush"}, "power: : expected a mapping of power parameters to texts"),
        ({"cacert": "hush"}, "cacert: : expected certificates of an authority (PEM)"),
    ],
)
def test_an_unusable_secret_is_refused_by_its_key_without_its_content(
    changed: dict[str, str], said: str
) -> None:
    with pytest.raises(UserError) as problem:
        SECRET.reached({**CONTENT, **changed}, 1)
    assert str(problem.value) == said
