#!/usr/bin/env python3
"""The metrics-collector charm: keeps the runs that generators report, and reports, compares and exports them.

It has two services: the page (page.py), and a Prometheus (monitoring.py) that scrapes the target.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from tippingpoint_charm import tracing  # isort: skip  (before ops, because it decides whether ops traces)
import ops
import watching
from actions import LISTED, ActingCharm, Actions, came_to
from certificates import NAME as CERTIFICATES
from certificates import Certificates
from monitoring import PORT as PROMETHEUS_PORT
from monitoring import Monitoring, Wanted
from page import OPTION as PAGE_TOKEN
from page import PORT as PAGE_PORT
from page import Page
from settings import CollectorSettings
from tippingpoint_charm.figures import read_login
from tippingpoint_charm.machine import Machine, MachineProblem
from tippingpoint_charm.relations import grafana, metrics, prometheus, prometheus_api, remote_write, scale_run
from tippingpoint_charm.relations.databag import NotThere, own_address, spoken
from tippingpoint_charm.relations.scale_run import Reported
from tippingpoint_charm.results import verbatim
from tippingpoint_charm.secrets import how_to_add, read_secret
from tippingpoint_charm.settings import read_settings
from tippingpoint_charm.systemd import Copies, own_pack
from trend import Trends

from tippingpoint import __version__
from tippingpoint.collect import sandbox
from tippingpoint.collect.runs import RESULTS_WITHIN, Runs, StoredRun
from tippingpoint.errors import UserError
from tippingpoint.monitoring.scrape.jobs import ScrapeAccess
from tippingpoint.monitoring.scrape.relation import application_of
from tippingpoint.monitoring.selecting import applications
from tippingpoint.util.process import leave_no_core
from tippingpoint.util.secret_keys import Keys

logger = logging.getLogger(__name__)

_JUDGED_WITHIN = 400.0
"""Seconds that a run's figures may take to be collected (collect.gathering) and judged; then this is started again."""
_TARGETS_CREDENTIALS = "static-targets-credentials"
_RELATION = "scale-run"


class MetricsCollectorCharm(ActingCharm):
    """Stores in hooks what arrives, and manages its services. Everything else is done by the engine."""

    machine: ClassVar[Machine] = Machine()

    _stored = ops.StoredState()

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        self._tracing = tracing.follow(self)
        os.umask(0o022)  # `juju scp` reads the files here as another user
        # problems: what is wrong with received data, by sender. services: what is wrong with services, a line each.
        # copy: the copy of the pack that the page runs from. exporters: those that Prometheus scrapes.
        self._stored.set_default(problems={}, services=[], copy="", exporters={})
        name = f"tippingpoint-{self.unit.name.replace('/', '-')}"
        self.state = self.machine.path(f"/var/lib/{name}")
        self.runs = Runs(self.state / "runs")
        self.trends = Trends(self.state, self.runs)
        self._page = Page(self.machine, self.unit.name, name)
        self._certificates = Certificates(self, lambda: own_address(self, _RELATION))
        self._monitoring = Monitoring(self.machine, self.unit.name, name)
        self._observe()
        self._actions = Actions(self)

    def _observe(self) -> None:
        on, relation, observe = self.on, self.on[_RELATION], self.framework.observe
        observe(on.install, self._on_install)
        observe(on.upgrade_charm, self._on_upgrade)
        for event in (on.config_changed, on.secret_changed, on.secret_expired, on.start):
            observe(event, self._on_services)
        for endpoint in (prometheus.NAME, prometheus_api.NAME, remote_write.NAME, CERTIFICATES):
            for event in ("relation_created", "relation_changed", "relation_departed", "relation_broken"):
                observe(getattr(on[endpoint], event), self._on_services)
        for endpoint in (grafana.NAME, metrics.NAME):
            observe(on[endpoint].relation_created, self._on_speaking)
        observe(relation.relation_created, self._on_speaking)
        observe(on.leader_elected, self._on_speaking)
        observe(relation.relation_changed, self._on_changed)
        observe(relation.relation_departed, self._on_departed)
        observe(relation.relation_broken, self._on_broken)
        observe(on.update_status, self._on_update_status)
        observe(on.remove, self._on_remove)
        observe(on.collect_unit_status, self._on_collect_status)

    # -- what arrives ------------------------------------------------------------------------------

    def _on_speaking(self, _: ops.EventBase) -> None:
        scale_run.publish_collector(self)
        watching.publish(self)

    def _on_changed(self, event: ops.RelationChangedEvent) -> None:
        """Keep only the bag that changed: reading those of a hundred units takes long."""
        self._keep(scale_run.read_changed(event.relation, None), event.app.name)
        if event.unit is not None:
            self._keep(scale_run.read_changed(event.relation, event.unit), event.unit.name)
        self._follow_exporters()

    def _on_install(self, _: ops.InstallEvent) -> None:
        self.unit.set_workload_version(__version__)
        self._stored.copy = ""
        self._keep_services()

    def _on_upgrade(self, event: ops.UpgradeCharmEvent) -> None:
        self.unit.set_workload_version(__version__)
        self._on_speaking(event)
        self._keep_all()
        self._stored.copy = ""
        self._keep_services()

    def _on_update_status(self, _: ops.UpdateStatusEvent) -> None:
        if self._stored.problems:
            self._keep_all()  # reports that did not fit on the disk before are still in the databags
        for run in self.runs.newest_first()[:LISTED]:
            if run.shared.over and time.time() - run.heard > RESULTS_WITHIN:
                self._judge(run)
        self._keep_services()
        found: list[str] = []
        self._try(found, self._follow_trend)
        self._try(found, lambda: found.extend(self._monitoring.troubles()))
        self._try(found, self._page.start)
        self._stored.services = [*self._stored.services, *found]

    def _follow_trend(self) -> None:
        try:
            self.trends.follow()
        except UserError as damaged:
            logger.warning(str(damaged))

    def _on_departed(self, event: ops.RelationDepartedEvent) -> None:
        if event.departing_unit is not None:
            self._note(event.departing_unit.name, [])
        self._follow_exporters()

    def _on_broken(self, event: ops.RelationBrokenEvent) -> None:
        sender = getattr(event.app, "name", "")  # Juju 4.0 does not name an application that is gone
        if sender:
            self._note(sender, [])
        else:
            self._keep_all()
        self._follow_exporters()

    def _on_remove(self, _: ops.RemoveEvent) -> None:
        self._page.remove()
        self._monitoring.remove()
        shutil.rmtree(self.state, ignore_errors=True)
        Copies(self.machine).remove_with_the_last()

    def _keep_all(self) -> None:
        self._stored.problems = {}
        for reported in scale_run.read(self):
            self._keep(reported, reported.application)

    def _keep(self, reported: Reported, sender: str) -> None:
        """Keep a report, and any problems with it."""
        problems = list(reported.problems)
        try:
            if reported.run is not None:
                self.runs.keep(reported.run)
            for unit, word in reported.words.items():
                self.runs.keep_word(unit, word)
            for unit, result in reported.results.items():
                self.runs.keep_digest(unit, result.run, result.digest)
        except UserError as refused:
            problems.append(f"{_RELATION}: {sender}: {refused}")
        except OSError as problem:
            problems.append(
                f"{self.state}: {problem.strerror}: free some space; it is retried every few minutes"
            )
        self._note(sender, problems)
        told = {reported.run.id} if reported.run is not None else set[str]()
        told |= {result.run for result in reported.results.values()}
        told |= {word.run for word in reported.words.values() if word.phase == "failed"}
        for run in told:
            self._judge_when_complete(run)

    def _note(self, sender: str, problems: list[str]) -> None:
        """Remember the problems with a sender's data for the status; without any, forget earlier ones."""
        if problems:
            logger.warning(problems[0])
            self._stored.problems[sender] = problems[0]
        else:
            self._stored.problems.pop(sender, None)

    def _judge_when_complete(self, run: str) -> None:
        try:
            stored = self.runs.find(run)
        except UserError:  # its units were faster than its leader
            return
        if stored.complete:
            self._judge(stored)

    def _judge(self, run: StoredRun) -> None:
        """Start to judge a run, after its target's figures are collected, unless that is done or in progress."""
        if not run.reportable or run.verdict is not None or run.judged_since(time.time() - _JUDGED_WITHIN):
            return
        measured = run.reported and not run.resources_file.exists()
        asked = self._prometheus() if measured else None
        if asked is None:
            sandbox.judge(run)
        else:
            sandbox.conclude(run, asked)

    def _prometheus(self) -> dict[str, str] | None:
        """Return the Prometheus that scrapes the target, and the login for it; None without one."""
        try:
            settings = read_settings(self, CollectorSettings)
            url = self._elsewhere(settings)
            if url:
                return {"url": url, "selector": self._selector(settings), **read_login(self)}
        except (UserError, NotThere):
            return None
        return {"url": self._monitoring.url, "selector": settings.only} if self._monitoring.is_on else None

    def _selector(self, settings: CollectorSettings) -> str:
        """Return the selector of the target's series in a shared Prometheus: configured, or from relations."""
        if settings.only:
            return settings.only
        return applications(application_of(scraped.application) for scraped in prometheus.read(self))

    def _elsewhere(self, settings: CollectorSettings) -> str:
        """Return the URL of an external Prometheus; empty without one. Raises NotThere while it is unknown."""
        return settings.prometheus_url or prometheus_api.read(self)

    # -- services ----------------------------------------------------------------------------------

    def _on_services(self, _: ops.EventBase) -> None:
        self._keep_services()

    def _follow_exporters(self) -> None:
        """Make Prometheus scrape the present generators. Most of their hooks change nothing."""
        if self._monitoring.is_on and scale_run.read_exporters(self) != dict(self._stored.exporters):
            self._keep_services()

    def _keep_services(self) -> None:
        """Update the services. Problems with them become the status."""
        found: list[str] = []
        self._try(found, lambda: self._keep_page(found))
        self._try(found, lambda: self._keep_monitoring(found))
        for line in found:
            logger.warning(line)
        self._stored.services = found
        ports = [PAGE_PORT] if self._page.is_on else []
        self.unit.set_ports(*ports, *([PROMETHEUS_PORT] if self._receives else []))

    def _keep_page(self, found: list[str]) -> None:
        try:
            secret = read_secret(
                self, PAGE_TOKEN, Keys(("token",)), Keys(("token", "certificate", "private-key"))
            )
            if secret is not None:
                if not self._stored.copy:
                    self._stored.copy = Copies(self.machine).keep(self.pack)
                address = own_address(self, _RELATION)
                issued = self._certificates.issued()
                given = self._page.given if issued is None else issued
                self._page.keep({**given, **secret}, [address] if address else [], str(self._stored.copy))
                return
        except (NotThere, UserError) as problem:
            found.append(str(problem))
        self._page.remove()

    def _keep_monitoring(self, found: list[str]) -> None:
        try:
            settings = read_settings(self, CollectorSettings)
        except UserError as wrong:
            found.append(str(wrong))
            return
        self._stored.exporters = scale_run.read_exporters(self)
        try:
            elsewhere = self._elsewhere(settings)
            if elsewhere:
                read_login(self)
        except NotThere as missing:
            elsewhere = settings.prometheus_url or prometheus_api.NAME
            found.append(str(missing))
        wanted = Wanted(
            # With an external Prometheus, the relations only say which of its series are the target's.
            scraped=() if elsewhere else prometheus.read(self),
            targets=settings.static_targets,
            access=self._access(settings, found),
            generators=dict(self._stored.exporters),
            receives=remote_write.is_related(self),
            alerts=self.trends.alerts(),
            retention=settings.retention,
            interval=settings.scrape_interval,
        )
        if wanted.anything and elsewhere:
            named = (
                f"prometheus-url: {settings.prometheus_url}"
                if settings.prometheus_url
                else prometheus_api.NAME
            )
            found.append(
                f"{named}: expected none while receive-remote-write or static-targets ask for a Prometheus of our own"
            )
        elif wanted.anything:
            found.extend(self._monitoring.keep(wanted))
        else:
            self._monitoring.stop()
        remote_write.publish(self, PROMETHEUS_PORT if self._receives else None)

    def _access(self, settings: CollectorSettings, found: list[str]) -> ScrapeAccess:
        """Return the login for static-targets. A problem with the secret is noted, and they are scraped without it."""
        secret: dict[str, str] = {}
        pair = ("certificate", "private-key")
        ways = [
            Keys((*login, *more)) for login in (("username", "password"), ("token",)) for more in ((), pair)
        ]
        try:
            secret = read_secret(self, _TARGETS_CREDENTIALS, *ways, Keys(pair)) or {}
        except NotThere as missing:
            found.append(str(missing))
        return ScrapeAccess(
            settings.static_targets_ca,
            certificate=secret.get("certificate", ""),
            key=secret.get("private-key", ""),
            username=secret.get("username", ""),
            password=secret.get("password", ""),
            token=secret.get("token", ""),
        )

    @property
    def _receives(self) -> bool:
        """Tell whether others can send samples."""
        return self._monitoring.is_on and remote_write.is_related(self)

    @property
    def pack(self) -> Path:
        """The directory of the charm's Python packages."""
        return own_pack()

    def _try(self, found: list[str], do: Callable[[], object]) -> None:
        """Change something on the machine. A failure is added to `found`, and later hooks try again."""
        try:
            do()
        except MachineProblem as problem:
            found.append(str(problem))
        except OSError as problem:
            found.append(f"{problem.filename or 'disk'}: {problem.strerror}")

    # -- status and results ------------------------------------------------------------------------

    @property
    def generators(self) -> list[str]:
        """The related generator applications."""
        return [relation.app.name for relation in spoken(self, _RELATION) if relation.active]

    @property
    def problems(self) -> list[str]:
        """All present problems, one line each."""
        return [*map(str, self._stored.problems.values()), *map(str, self._stored.services)]

    @property
    def page_url(self) -> str:
        """The page's URL; empty while it is off."""
        address = own_address(self, _RELATION) if self._page.is_on else ""
        host = f"[{address}]" if ":" in address else address
        return f"https://{host}:{PAGE_PORT}" if address else ""

    @property
    def page_told(self) -> dict[str, str]:
        """Return the page's URL and fingerprint, or the commands that enable it."""
        if not self._page.is_on:
            how = how_to_add(self, PAGE_TOKEN, "token#file=token", "tippingpoint-page").split(", ")
            return {"page": "off", "then": verbatim("(umask 077; openssl rand -hex 24 > token)", *how)}
        return {"page": self.page_url, "fingerprint": self._page.fingerprint()}

    @property
    def prometheus_told(self) -> str:
        """Say which Prometheus gives the target's figures."""
        try:
            settings = read_settings(self, CollectorSettings)
            url = self._elsewhere(settings)
        except (UserError, NotThere) as wrong:
            return str(wrong)
        if url:
            selector = self._selector(settings)
            return f"{url}, for what has {selector}" if selector else url
        if self._monitoring.is_on:
            return f"{self._monitoring.url} on this machine, as {self._monitoring.name}.service"
        return (
            "none: relate metrics, receive-remote-write or prometheus-api, or configure static-targets or "
            "prometheus-url"
        )

    def _on_collect_status(self, event: ops.CollectStatusEvent) -> None:
        problems = self.problems
        if problems:
            more = f" (and {len(problems) - 1} more: juju run {self.unit.name} status)"
            event.add_status(ops.BlockedStatus(problems[0] + (more if len(problems) > 1 else "")))
        runs = self.runs.newest_first()
        if runs:
            count = f"{len(runs)} run{'s' * (len(runs) != 1)}"
            event.add_status(ops.ActiveStatus(f"{count}, last: {runs[0].id} {came_to(runs[0])}"))
        elif self.generators:
            event.add_status(
                ops.ActiveStatus(f"no run yet: juju run {self.generators[0]}/leader start plan=NAME")
            )
        else:
            event.add_status(
                ops.WaitingStatus("relate load-claimer:scale-run or container-spawner:scale-run")
            )


if __name__ == "__main__":
    leave_no_core()  # hooks hold secrets
    ops.main(MetricsCollectorCharm)
