"""Finds the parts of a configuration that Prometheus would refuse, leaves them out, and reports them.

Prometheus' own promtool decides. So a broken part never takes the rest down.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from tippingpoint.errors import OperationFailed, one_line
from tippingpoint.monitoring.scrape.jobs import (
    INTERVAL,
    Configuration,
    Found,
    Job,
    Rules,
    configuration,
    told,
)
from tippingpoint.monitoring.scrape.server import CONFIGURATION

_CHECKED_WITHIN = 60.0
_LONGEST_LINE = 300  # characters of a message from promtool
"""Seconds; promtool takes 0.2 s for 100 jobs."""
_Part = TypeVar("_Part")


def checked(found: Iterable[Found], promtool: Path, interval: int = INTERVAL) -> Configuration:
    """Return the configuration without the parts that Prometheus would refuse; its problems name those.

    Raises OperationFailed if promtool cannot be run.
    """
    found = list(found)
    problems = [problem for one in found for problem in one.problems]
    jobs: list[Job] = []
    for job in (job for one in found for job in one.jobs):
        wrong = _certificates_problem(job)
        if wrong:
            problems.append(told(job.owner, f"job {job.name}", "", wrong))
        else:
            jobs.append(job)

    def refused_jobs(some: Sequence[Job]) -> str:
        return _refused(configuration([Found(list(some))], interval), promtool)

    def refused_rules(some: Sequence[Rules]) -> str:
        return _refused(configuration([Found(rules=list(some))], interval), promtool)

    jobs, bad_jobs = _sorted_out(jobs, refused_jobs)
    problems += [f"{job.owner}: job {job.name}: left out: {why}" for job, why in bad_jobs]
    # Usually all rules of a relation are valid. Each is checked by itself only if they are not.
    rules, suspects = _sorted_out([rules for one in found for rules in one.rules], refused_rules)
    for suspect, _ in suspects:
        kept, bad_rules = _sorted_out(_single_rules(suspect), refused_rules)
        problems += [f"{suspect.owner}: {_named(rule)}: left out: {why}" for rule, why in bad_rules]
        rules += _together(suspect, kept)
    made = configuration([Found(jobs, rules)], interval)
    why = _refused(made, promtool)
    if why:
        raise OperationFailed(f"promtool: {why}")
    return replace(made, problems=problems)


def install(directory: Path, made: Configuration, owner: tuple[int, int] | None = None) -> bool:
    """Make a directory contain exactly these files, of mode 0600. Return whether anything changed.

    `owner` is the user and group of Prometheus, if it is not this one. Each file is replaced in one step:
    prometheus.yml after the files that it names. Files that are no longer named are removed last. Raises OSError.
    """
    changed = False
    for path, text in sorted(made.files.items(), key=lambda file: file[0] == CONFIGURATION):
        place = directory / path
        # Prometheus may enter these directories to read its own files; it cannot write to them.
        for parent in (directory, place.parent):
            parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        changed |= _write(place, text.encode(), owner)
    for kept in ("files", "rules"):
        with contextlib.suppress(FileNotFoundError):
            for place in (directory / kept).iterdir():
                if f"{kept}/{place.name}" not in made.files:
                    place.unlink()
                    changed = True
    return changed


def _write(place: Path, content: bytes, owner: tuple[int, int] | None) -> bool:
    with contextlib.suppress(FileNotFoundError):
        status = place.stat(follow_symlinks=False)
        same = status.st_mode & 0o7777 == 0o600 and owner in (None, (status.st_uid, status.st_gid))
        if same and place.read_bytes() == content:
            return False
    fresh = place.with_name(f".{place.name}.new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        if owner is not None:
            os.fchown(file.fileno(), *owner)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(place)
    return True


def _sorted_out(
    parts: Sequence[_Part], refused: Callable[[Sequence[_Part]], str]
) -> tuple[list[_Part], list[tuple[_Part, str]]]:
    """Return the accepted parts, and the refused ones with reasons, by bisection: usually all are accepted."""
    why = refused(parts) if parts else ""
    if not why:
        return list(parts), []
    if len(parts) == 1:
        return [], [(parts[0], why)]
    middle = len(parts) // 2
    good, bad = _sorted_out(parts[:middle], refused)
    more_good, more_bad = _sorted_out(parts[middle:], refused)
    return good + more_good, bad + more_bad


def _refused(made: Configuration, promtool: Path) -> str:
    """Return why Prometheus would refuse this; empty if it would not."""
    with tempfile.TemporaryDirectory(prefix="tippingpoint-") as place:
        install(Path(place), made)
        try:
            done = subprocess.run(
                [promtool, "check", "config", Path(place) / CONFIGURATION],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CHECKED_WITHIN,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise OperationFailed(f"promtool: not done after {_CHECKED_WITHIN:g} s") from None
        except OSError as problem:
            raise OperationFailed(f"promtool: {promtool}: {problem.strerror}") from None
        if done.returncode == 0:
            return ""
        return _told_by_promtool((done.stderr + done.stdout).decode(errors="replace"), place)


def _told_by_promtool(said: str, place: str) -> str:
    """Return promtool's message in one line."""
    said = said.replace(f"{place}/", "")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    failed = [at for at, line in enumerate(lines) if "FAILED" in line]
    words = " ".join(lines[failed[0] : failed[0] + 3]) if failed else "promtool refuses it"
    words = words.removeprefix("FAILED:").replace("Checking", "").strip()
    words = re.sub(r"^(parsing YAML file )?(prometheus\.yml|rules/\S+?): ", "", words)
    return one_line(words, _LONGEST_LINE)


def _certificates_problem(job: Job) -> str:
    """Return the problem with a job's certificates, which promtool does not check; empty if there is none."""
    try:
        if job.ca:
            x509.load_pem_x509_certificates(job.ca.encode())
    except ValueError:
        return "a certificate (PEM) in tls_config.ca_file"
    if not job.certificate:
        return ""
    try:
        certificate = x509.load_pem_x509_certificates(job.certificate.encode())[0]
    except ValueError:
        return "a certificate (PEM) in tls_config.cert_file"
    try:
        key = load_pem_private_key(job.key.encode(), None).public_key()
        fits = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) == (
            certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        fits = False
    return "" if fits else "the key of its certificate (PEM, not encrypted) in tls_config.key_file"


def _single_rules(rules: Rules) -> list[Rules]:
    return [
        Rules(rules.owner, [{**group, "rules": [rule]}]) for group in rules.groups for rule in group["rules"]
    ]


def _together(whole: Rules, kept: Sequence[Rules]) -> list[Rules]:
    """Put the kept rules of a file back into their groups."""
    groups: dict[str, list[object]] = {}
    for one in kept:
        for group in one.groups:
            groups.setdefault(group["name"], []).extend(group["rules"])
    listed = [{"name": name, "rules": rules} for name, rules in groups.items()]
    return [Rules(whole.owner, listed)] if listed else []


def _named(rules: Rules) -> str:
    (group,) = rules.groups
    (rule,) = group["rules"]
    return f"rule {str(rule.get('alert') or rule.get('record') or group['name'])[:80]!r}"
