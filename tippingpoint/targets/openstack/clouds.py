"""One cloud of a clouds.yaml, as OpenStack's own clients read it. Files are only read.

This follows openstacksdk's loader (openstack.config): the files that it merges, the places and spellings that it
accepts. The loader itself is not called, because it does not come alone: it imports 890 modules, among them
keystoneauth1 and requests. Every charm would carry twenty more packages, of some 40 MB, and every worker and hook would
wait a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tippingpoint.errors import UserError
from tippingpoint.util.secret_files import read_yaml

PLACE = "target.credentials"
_ACCEPTED = "a clouds.yaml"
_SUFFIXES = (".yaml", ".yml", ".json")
_SECRET = re.compile("password|secret|token|passcode")

# The clients' older spellings, in order: the last one wins (OpenStackConfig._fix_backwards_auth).
_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "project_id": ("tenant_id", "project_id"),
    "project_name": ("tenant_name", "project_name"),
    "token": ("auth_token", "token"),
    "username": ("user_name", "username"),
}
_ABOVE_COUNTS = (
    "domain_id",
    "domain_name",
    "user_domain_id",
    "user_domain_name",
    "project_domain_id",
    "project_domain_name",
    "project_id",
    "project_name",
    "token",
)
"""If these are given both in a cloud and in its `auth`, the former wins."""
_LOGIN = (
    *_ABOVE_COUNTS,
    "auth_url",
    "username",
    "user_id",
    "password",
    "system_scope",
    "trust_id",
    "default_domain_id",
    "default_domain_name",
    "application_credential_id",
    "application_credential_name",
    "application_credential_secret",
)
"""What belongs to a login. It may be given in a cloud or in its `auth`."""


_Region = tuple[str, dict[str, Any]]
"""A region's name and its own values."""


@dataclass(frozen=True)
class Cloud:
    """A cloud after everything was merged. No value of it is checked yet."""

    name: str
    path: Path
    """The clouds.yaml."""
    login: Mapping[str, Any]
    """The values of `auth`, by their present names; numbers are texts."""
    settings: Mapping[str, Any]
    """All other values."""
    region: str | None

    def refused(self, what: str, value: object, accepted: str) -> UserError:
        """Return the error for a value of this cloud."""
        return UserError(f"clouds.{self.name}.{what}", value, f"{accepted}, in {self.path}")

    def expanded(self, text: str, what: str) -> str:
        """Return a text with the cloud's own values for their names in braces: "https://{region_name}.example"."""
        known = {**self.settings, "region_name": self.region}

        def value(found: re.Match[str]) -> str:
            if not isinstance(told := known.get(found[1]), str):
                raise self.refused(what, f"with {found[0]}", "names of the cloud's own values in braces")
            return told

        return re.sub(r"\{(\w*)\}", value, text)


def clouds_file() -> Path:
    """Return the clouds.yaml that OpenStack's own clients would read, else the one in the current directory."""
    if named := os.environ.get("OS_CLIENT_CONFIG_FILE"):
        return Path(named)
    return next(_found("clouds", _directories()), Path("clouds.yaml"))


def read_cloud(path: Path, name: str | None, region: str | None) -> Cloud:
    """Read a cloud; None is the one of OS_CLOUD, or the only one. `region` is the one to choose instead of the first.

    UserError if a file is unusable, or has no such cloud. Errors show nothing of the files' content but the names of
    clouds. Only its owner may be able to read a file with a secret in it.
    """
    document = _document(path, _ACCEPTED)
    secure = _beside(path, "secure", os.environ.get("OS_CLIENT_SECURE_FILE"))
    if secure is not None:
        document = _merged(document, _document(secure, "a secure.yaml", empty=True))
    clouds = document.get("clouds")
    if not isinstance(clouds, dict) or not clouds:
        raise UserError(PLACE, str(path), f"{_ACCEPTED} with `clouds`")
    known = {str(key): value for key, value in cast("dict[Any, Any]", clouds).items()}
    wanted = name or os.environ.get("OS_CLOUD") or (next(iter(known)) if len(known) == 1 else None)
    if wanted is None or wanted not in known:
        names = ", ".join(sorted(known)[:10])
        raise UserError("target.cloud", wanted or "missing", f"one of {names}, which {path} has")
    return _cloud(path, wanted, known[wanted], region)


def _cloud(path: Path, name: str, found: object, region: str | None) -> Cloud:
    bare = Cloud(name, path, {}, {}, None)
    if not isinstance(found, dict):
        raise bare.refused("auth", "missing", "auth_url, and a password or an application credential")
    cloud = _normal(cast("dict[Any, Any]", found))
    base = _profile(bare, cloud)
    regions = _regions(bare, cloud, base)
    merged: dict[str, Any] = {"auth_type": "password", "interface": "public", "auth": {}}
    known = dict(reversed(regions))
    chosen = region or (regions[0][0] if regions else "")
    for part in (base, cloud, known.get(chosen, {})):
        if "auth" in part and not isinstance(part["auth"], dict):
            raise bare.refused("auth", "missing", "auth_url, and a password or an application credential")
        merged = {**merged, **part, "auth": {**merged["auth"], **part.get("auth", {})}}
    login = _login(bare, merged)
    settings = {key: value for key, value in merged.items() if key not in ("auth", "regions", *_LOGIN)}
    if "endpoint_type" in settings:
        settings["interface"] = settings["endpoint_type"]
    return Cloud(name, path, login, settings, chosen or None)


def _profile(cloud: Cloud, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a cloud takes from the profile that it names, in a clouds-public.yaml."""
    name = found.get("profile", found.get("cloud"))
    if not name:
        return {}
    public = _beside(cloud.path, "clouds-public", None)
    document = _document(public, "a clouds-public.yaml", empty=True) if public is not None else {}
    profiles = document.get("public-clouds")
    known = cast("dict[Any, Any]", profiles) if isinstance(profiles, dict) else {}
    profile = next((value for key, value in known.items() if str(key) == str(name)), None)
    if isinstance(profile, dict):
        return _normal(cast("dict[Any, Any]", profile))
    auth = found.get("auth")
    login = cast("dict[str, Any]", auth) if isinstance(auth, dict) else {}
    if "auth_url" in login or "auth_url" in found:
        return {}  # the clients continue after a warning
    # The profiles that openstacksdk itself brings are of public clouds, and some are fetched from these.
    raise cloud.refused("profile", str(name), "a profile of a clouds-public.yaml, or an auth_url")


def _regions(cloud: Cloud, own: Mapping[str, Any], base: Mapping[str, Any]) -> list[_Region]:
    """Return the regions that a cloud may be used in, each with its own values; the first one counts."""
    if "regions" in own:
        listed: object = own["regions"]
    elif isinstance(name := own.get("region_name"), str):
        listed = name.split(",")
    else:
        listed = name or base.get("regions") or base.get("region_name")
    if listed is None:
        return []
    listed = [listed] if isinstance(listed, str) else listed
    if not isinstance(listed, list):
        raise cloud.refused("region_name", "unusable", "a name, or a list of them as `regions`")
    regions: list[_Region] = []
    for each in cast("list[Any]", listed):
        if isinstance(each, str | int | float):
            regions.append((str(each).strip(), {}))
            continue
        entry = cast("dict[Any, Any]", each) if isinstance(each, dict) else {}
        values: object = entry.get("values") or {}
        if "name" not in entry or not entry.keys() <= {"name", "values"} or not isinstance(values, dict):
            raise cloud.refused("regions", "unusable", "names, or mappings of `name` and `values`")
        regions.append((str(entry["name"]), _normal(cast("dict[Any, Any]", values))))
    return regions


def _login(cloud: Cloud, merged: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a login, from `auth` and from beside it."""
    auth: Mapping[str, Any] = merged["auth"]
    login: dict[str, Any] = {}
    for name in _LOGIN:
        spellings = _SPELLINGS.get(name, (name,))
        inside, above = (
            [part[key] for key in spellings if part.get(key) not in (None, "")] for part in (auth, merged)
        )
        if name in _ABOVE_COUNTS:
            told = [
                part[key] for key in spellings for part in (auth, merged) if part.get(key) not in (None, "")
            ]
        elif inside and above and inside[-1] != above[-1]:
            # The command `openstack` uses one of them, openstacksdk the other.
            raise cloud.refused(name, "given twice", f"either {name} or auth.{name}")
        else:
            told = above + inside
        if told:
            login[name] = told[-1]
    _spread_domains(login)
    return login


def _spread_domains(login: dict[str, Any]) -> None:
    """Let a `domain_id` or `domain_name` beside a project be the domain of user and project."""
    if not login.keys() & {"project_id", "project_name"}:
        return
    for kind in ("id", "name"):
        domain = login.pop(f"domain_{kind}", None)
        if domain is not None:
            login.setdefault(f"user_domain_{kind}", domain)
            login.setdefault(f"project_domain_{kind}", domain)


def _normal(config: Mapping[Any, Any], *, nested: bool = True) -> dict[str, Any]:
    """Return a mapping, and those in it, with underscores in the keys and texts for numbers, as the clients use it."""
    normal: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and nested:
            value = _normal(cast("dict[Any, Any]", value), nested=False)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            value = _text(value)
        normal[str(key).replace("-", "_")] = value
    return normal


def _text(number: float) -> str:
    try:
        return str(number)
    except ValueError:  # Python prints no number of more than a few thousand digits
        return ""


def _merged(document: Mapping[Any, Any], more: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a document with the values of another one, which take precedence."""
    merged = dict(document)
    for key, value in more.items():
        here = merged.get(key)
        if isinstance(here, dict) and isinstance(value, dict):
            value = _merged(cast("dict[Any, Any]", here), cast("dict[Any, Any]", value))
        merged[key] = value
    return merged


def _document(path: Path, accepted: str, *, empty: bool = False) -> dict[Any, Any]:
    return read_yaml(PLACE, path, accepted, private=_has_secret, empty=empty)


def _has_secret(value: object, levels: int = 7) -> bool:
    """Whether a document has a value under a name such as `password`, on up to this many levels, such as in the `auth`
    of a region."""
    if isinstance(value, list):
        return levels > 0 and any(_has_secret(each, levels - 1) for each in cast("list[Any]", value))
    return isinstance(value, dict) and any(
        (_SECRET.search(str(key)) and not isinstance(each, dict | list))
        or (levels > 0 and _has_secret(cast("object", each), levels - 1))
        for key, each in cast("dict[Any, Any]", value).items()
    )


def _directories() -> Iterable[Path]:
    """Where the clients look for their files."""
    home = Path(os.environ.get("SNAP_REAL_HOME") or Path("~").expanduser())
    config = os.environ.get("XDG_CONFIG_HOME")
    return (
        Path(),
        Path(config) / "openstack" if config else home / ".config/openstack",
        home / ".config/openstack",
        Path("/etc/xdg/openstack"),
        Path("/etc/openstack"),
    )


def _beside(path: Path, name: str, named: str | None) -> Path | None:
    """Return the file with this name that belongs to a clouds.yaml; None if there is none."""
    if named and Path(named).is_file():
        return Path(named)
    return next(_found(name, (path.parent, *_directories())), None)


def _found(name: str, directories: Iterable[Path]) -> Iterator[Path]:
    paths = (directory / f"{name}{suffix}" for directory in directories for suffix in _SUFFIXES)
    return (path for path in paths if path.is_file())
