"""What every page of runs has: access, the list of runs, comparisons and trends. Nothing can be changed here."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from weakref import WeakSet

from aiohttp import web
from jinja2 import Environment
from yarl import URL

from tippingpoint.collect.page.access import SESSION, PageAccess
from tippingpoint.compare.baseline_texts import PREFIX
from tippingpoint.compare.baselines import list_baselines
from tippingpoint.errors import UserError
from tippingpoint.util import timing
from tippingpoint.util.templates import template_environment

LARGEST_FORM = 4096
"""The most bytes of a login form."""
MOST_COMPARED = 24
"""The most runs in a comparison: a dozen weeks of two plans."""
_FORM_WITHIN = 10.0
"""Seconds for a form to arrive."""
_FORMATS = {
    "html": "text/html",
    "md": "text/plain",
    "json": "application/json",
    "junit": "application/xml",
    "tar.gz": "application/gzip",
}
_PUBLIC = {"/login", "/style.css", "/script.js"}
_HEADERS = {
    "Server": "tippingpoint",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# A report names the only script and style that it may use. It contains what units sent: if that could deceive the
# engine, the page that results still has no origin here, and can send no requests.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

# The page itself allows only its own script, by its hash.
_LIVE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class RunView:
    """One run, in its present state."""

    id: str
    plan: str
    target: str
    made: float
    units: int
    reported: int
    state: str
    outcome: str
    sentence: str
    live: bool
    """Whether its report may still grow."""
    reportable: bool = False
    before: str = ""
    """The id of the previous run of the same plan, if the two can be compared; empty otherwise."""


class Site(ABC):
    """Pages of runs, for readers with access. Subclasses provide the runs."""

    cookie = "__Host-tippingpoint"
    """The cookie of a login. With this prefix, browsers accept it only from this very host, by TLS."""
    secure = True
    """Whether the cookie is for TLS only."""
    exports = False
    """Whether runs can be exported."""
    no_run = "No run has arrived yet. Start one on a generator: juju run load-claimer/leader start plan=NAME"
    """What the list shows when there is no run."""

    def __init__(self, access: PageAccess) -> None:
        self._access = access
        self.asked: WeakSet[asyncio.BaseTransport] = WeakSet()
        """The connections over which a whole request has arrived."""

    def application(self) -> web.Application:
        """Return the application with all pages."""
        application = web.Application(middlewares=[self._guarded], client_max_size=LARGEST_FORM)
        application.on_response_prepare.append(_with_headers)
        application.add_routes(
            [
                web.get("/", self._list),
                web.get("/style.css", _style),
                web.get("/script.js", _script),
                web.get("/login", self._login_form),
                web.post("/login", self._login),
                web.post("/logout", self._logout),
                web.get("/compare", self._compare),
                web.get("/trend", self._trend),
                *self._of_runs(),
            ]
        )
        return application

    @abstractmethod
    def _of_runs(self) -> list[web.RouteDef]:
        """Return the routes of single runs."""

    @abstractmethod
    def _views(self) -> list[RunView]:
        """Return all runs in their present state, the newest first. It may read files."""

    @abstractmethod
    async def _compared(
        self, names: list[str], others: list[str], control: list[str], form: str, tolerance: float
    ) -> Path:
        """Return the file with a comparison; raises UserError where it is refused."""

    @abstractmethod
    async def _followed(self, form: str, by: str) -> Path:
        """Return the file with the trend of the newest runs; raises UserError where it is refused."""

    def _admit(self, request: web.Request) -> web.Response | None:
        """Return the response that admits a reader without a login; None asks for the token."""
        return None

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse readers without access, and answer every error with one line."""
        if request.transport is not None:
            self.asked.add(request.transport)
        if request.path not in _PUBLIC and not self._may_read(request):
            return self._admit(request) or page(
                "login.html.j2", status=401, next=_local(request.path_qs), problem=""
            )
        try:
            return await handler(request)
        except web.HTTPException as problem:
            if problem.status < 400:
                raise
            return _problem(problem.status, problem.reason)
        except UserError as refused:
            return _problem(409, str(refused))
        except TimeoutError:
            return _problem(408, "the form did not arrive")
        except Exception as problem:
            line = " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
            print(f"page: unexpected {line}", file=sys.stderr, flush=True)
            return _problem(500, "this page failed; see the log of the page's service")

    def _may_read(self, request: web.Request) -> bool:
        if self._access.is_bearer(request.headers.get("Authorization", "")):
            return True
        return self._access.is_login(request.cookies.get(self.cookie, ""), timing.wall())

    # -- the login ---------------------------------------------------------------------------------

    async def _login_form(self, request: web.Request) -> web.Response:
        return page("login.html.j2", next="/", problem="")

    async def _login(self, request: web.Request) -> web.Response:
        if request.content_type != "application/x-www-form-urlencoded":
            raise web.HTTPUnsupportedMediaType
        async with asyncio.timeout(_FORM_WITHIN):
            form = await request.post()
        there = _local(str(form.get("next", "/")))
        if not self._access.is_token(str(form.get("token", "")).strip()):
            return page("login.html.j2", status=401, next=there, problem="Wrong token.")
        response = web.Response(status=303, headers={"Location": there})
        login = self._access.login(timing.wall())
        response.set_cookie(
            self.cookie, login, max_age=SESSION, secure=self.secure, httponly=True, samesite="Strict"
        )
        return response

    async def _logout(self, request: web.Request) -> web.Response:
        response = web.Response(status=303, headers={"Location": "/login"})
        response.del_cookie(self.cookie, secure=self.secure, httponly=True, samesite="Strict")
        return response

    # -- runs --------------------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        runs = with_runs_before(await asyncio.to_thread(self._views))
        baselines = await asyncio.to_thread(list_baselines)
        return page(
            "runs.html.j2",
            runs=runs,
            baselines=baselines,
            prefix=PREFIX,
            no_run=self.no_run,
            exports=self.exports,
        )

    async def _compare(self, request: web.Request) -> web.StreamResponse:
        """Compare `against` with each `run`: ids, or seed:NAME; `format` and `tolerance` are as in the action.

        Given `with`, `against` and `run` are repeats of one release, `with` are repeats of another, and `control`
        further ones of the first.
        """
        asked = request.query
        against: list[str] = asked.getall("against", [])
        others: list[str] = asked.getall("run", [])
        names = list(dict.fromkeys([*against, *others]))
        form = asked.get("format", "html")
        repeats: list[str] = asked.getall("with", [])
        control: list[str] = asked.getall("control", [])
        if control and not repeats:
            raise UserError(
                "control", ", ".join(control), "none without the runs of another release in `with`"
            )
        all_named = [*names, *repeats, *control]
        if len(against) > 1 or not names or not 2 <= len(all_named) <= MOST_COMPARED:
            raise UserError(
                "runs",
                ", ".join(all_named) or "none",
                f"2 to {MOST_COMPARED}, at most one of them in `against`",
            )
        if form not in ("html", "md", "json"):
            raise UserError("format", form, "html, md or json")
        tolerance = _tolerance(asked.get("tolerance", "0.1"))

        path = await self._compared(names, repeats, control, form, tolerance)
        return file_answer(path, form, f"comparison.{form}")

    async def _trend(self, request: web.Request) -> web.StreamResponse:
        """Show the trend of the newest runs; `format` and `by` are as in the action."""
        form, by = request.query.get("format", "html"), request.query.get("by", "date")
        if form not in ("html", "md", "json"):
            raise UserError("format", form, "html, md or json")
        if by not in ("date", "release"):
            raise UserError("by", by, "date or release")

        return file_answer(await self._followed(form, by), form, f"trend.{form}")


def with_runs_before(newest_first: Sequence[RunView]) -> list[RunView]:
    """Return runs, each with the previous one of the same plan and target, to which one click compares it."""
    last: dict[tuple[str, str], str] = {}
    found: list[RunView] = []
    for run in reversed(newest_first):
        found.append(replace(run, before=last.get((run.plan, run.target), "") if run.reportable else ""))
        if run.reportable:
            last[run.plan, run.target] = run.id
    return found[::-1]


def _tolerance(text: str) -> float:
    try:
        tolerance = float(text)
    except ValueError:
        tolerance = -1.0
    if not 0 <= tolerance <= 100:
        raise UserError("tolerance", text, "a number, 0 to 100")
    return tolerance


def _local(path: str) -> str:
    """Return the local path to go to after a login, whatever the form contains."""
    try:
        url = URL(path)
    except ValueError:
        return "/"
    here = not url.absolute and url.path.startswith("/") and url.path.isprintable()
    inside = here and not url.path.startswith("//") and "\\" not in url.path and url.path not in _PUBLIC
    return str(url.relative() if url.absolute else url.with_fragment(None)) if inside else "/"


def file_answer(path: Path, form: str, name: str) -> web.StreamResponse:
    kind = _FORMATS[form]
    headers = {
        "Content-Type": kind if form == "tar.gz" else f"{kind}; charset=utf-8",
        "Content-Security-Policy": REPORT_POLICY,
    }
    if form not in ("html", "md"):
        headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return web.FileResponse(path, headers=headers)


def live_answer(text: str) -> web.Response:
    """Return a report that may request itself again. Our template makes it here, and not the engine."""
    return web.Response(
        text=text,
        content_type="text/html",
        charset="utf-8",
        headers={"Content-Security-Policy": _LIVE_POLICY},
    )


async def _with_headers(request: web.Request, response: web.StreamResponse) -> None:
    set_headers(response)


def set_headers(response: web.StreamResponse) -> None:
    """Set the headers that tell a browser what it may do with an answer."""
    for name, value in _HEADERS.items():
        if name == "Server" or name not in response.headers:
            response.headers[name] = value


async def _style(request: web.Request) -> web.Response:
    styles = (
        ("report", "assets/uPlot.min.css"),
        ("report", "assets/report.css"),
        ("collect.page", "templates/page.css"),
    )
    return _asset("text/css", "\n".join(_text(package, name) for package, name in styles))


async def _script(request: web.Request) -> web.Response:
    return _asset("text/javascript", _text("collect.page", "templates/page.js"))


def _asset(kind: str, text: str) -> web.Response:
    return web.Response(
        text=text, content_type=kind, charset="utf-8", headers={"Cache-Control": "private, max-age=300"}
    )


@cache
def _text(package: str, name: str) -> str:
    return (resources.files(f"tippingpoint.{package}") / name).read_text(encoding="utf-8")


def _problem(status: int, line: str) -> web.Response:
    return page("problem.html.j2", status=status, line=line)


def page(template: str, *, status: int = 200, **shown: Any) -> web.Response:
    text = _environment().get_template(template).render(**shown)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8", headers=headers)


@cache
def _environment() -> Environment:
    return template_environment("tippingpoint.collect.page")
