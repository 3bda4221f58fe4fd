"""API v2 of etcd over HTTP/1.1: connections, answers, and operations that are tasks."""

from __future__ import annotations

import asyncio
from asyncio import Future, Task
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import quote

import aiohttp
import orjson

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.targets.etcd.access import ANSWER_WITHIN, Endpoint, EtcdAccess, refusal, unreachable
from tippingpoint.util.network_errors import in_words
from tippingpoint.util.patience import answers_within
from tippingpoint.util.rest import TooLarge, cause_of, read_body
from tippingpoint.workloads.load import TargetFacts

SOCKETS = 32
"""Concurrent requests on each of the plan's connections; further requests wait."""
_EVENT_LIMIT = 1 << 20  # bytes of one event of a stream

# etcd's error/error.go
KEY_NOT_FOUND, TEST_FAILED, NODE_EXISTS, INDEX_CLEARED = 100, 101, 105, 401
DELETIONS = frozenset(("delete", "expire", "compareAndDelete"))
"""The actions of events after which a key is gone (store/event.go)."""
LARGEST = 64 << 20
"""Bytes of the largest answer, the list of all keys of a run."""
_LONGEST_INDEX = 20  # digits
FAILURES = (aiohttp.ClientError, OSError, TimeoutError, TooLarge, orjson.JSONDecodeError)

_Result = TypeVar("_Result")


@dataclass(slots=True)
class Answer:
    """An answer of etcd: HTTP status, etcd's own error code (0 for none), the store's index, and the body."""

    status: int
    code: int
    index: int
    body: dict[str, Any]

    @property
    def problem(self) -> str:
        """The error on one line."""
        said = self.body.get("message", "")
        return f"etcd: {said} ({self.code})" if said else f"HTTP status {self.status}"


class Link:
    """One of the plan's connections: an HTTP session with an endpoint, and whether its event stream is up."""

    def __init__(self, endpoint: Endpoint, read: EtcdAccess, sockets: int = SOCKETS + 1) -> None:
        """`sockets` is how many it opens at most; 0 for any number."""
        self.endpoint = endpoint
        self.problem = "not connected"
        self.live = False
        self.seen = 0
        user = read.credentials
        self._session = aiohttp.ClientSession(
            headers={"Authorization": aiohttp.encode_basic_auth(user.username, user.password)}
            if user
            else None,
            connector=aiohttp.TCPConnector(limit=sockets, ssl=read.tls or True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_WITHIN),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            read_bufsize=_EVENT_LIMIT,
            auto_decompress=False,
        )
        # aiohttp resends a request when a kept-open socket turns out dead. That would hide a failure, and a
        # claim that did arrive the first time would then be denied by itself. There is no public switch.
        self._session._retry_connection = False  # pyright: ignore[reportPrivateUsage]

    def failed(self, problem: str) -> OperationFailed:
        """Return the failure of an operation that was sent over it."""
        return OperationFailed(f"{self.endpoint.name}: {problem}")

    async def ask(self, method: str, path: str, form: dict[str, str] | None = None) -> Answer:
        """Make one request; raises one of FAILURES."""
        async with self._session.request(
            method, self.endpoint.url + path, data=form, allow_redirects=False
        ) as response:
            body = await read_body(response, LARGEST)
            return answer_of(response.status, index_of(response), body)

    def stream(self, path: str) -> Any:
        """Make a request whose answer is read as it arrives."""
        return self._session.get(self.endpoint.url + path, allow_redirects=False)

    async def operate(self, method: str, path: str, form: dict[str, str] | None = None) -> Answer:
        """Make one request of an operation; raises OperationFailed without an answer."""
        try:
            return await self.ask(method, path, form)
        except FAILURES as error:
            raise self.failed(in_words(cause_of(error))) from None
        except Exception as error:  # for instance, the session was closed in the meantime
            raise self.failed(in_words(error)) from None

    def check(self, answer: Answer) -> None:
        """Raise OperationFailed if an answer is an error."""
        if answer.code or answer.status >= 300:
            raise self.failed(answer.problem)

    async def close(self) -> None:
        """Close its sockets."""
        self.live = False
        await self._session.close()


class Operations:
    """Operations under way, each in a task; its future ends with OperationFailed also when the target is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Future[Any], Task[Any]] = {}

    def start(self, link: Link, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Run an operation, which is `link`'s if all of them end first."""
        future: Future[_Result] = self._loop.create_future()
        task = self._loop.create_task(work)
        self._tasks[future] = task

        def cancelled(_: Future[_Result]) -> None:
            if self._tasks.pop(future, None) is not None:
                task.cancel()

        def finished(_: Task[_Result]) -> None:
            self._tasks.pop(future, None)
            error = None if task.cancelled() else task.exception()
            if future.done():
                return
            if task.cancelled():
                future.set_exception(link.failed("closed"))
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        future.add_done_callback(cancelled)
        task.add_done_callback(finished)
        return future

    async def end(self) -> None:
        """End all of them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # lets the tasks' callbacks end the futures


async def greet(read: EtcdAccess, links: list[Link], prefix: str) -> tuple[TargetFacts, int]:
    """Return facts of the first server that answers, and its index. TargetError when all fail or one refuses us."""
    problems: dict[str, str] = {}
    refusals: list[TargetError] = []
    for link in links[: len(read.endpoints)]:
        name = link.endpoint.name
        try:
            async with answers_within(ANSWER_WITHIN):
                version = await link.ask("GET", "/version")
                members = await link.ask("GET", "/v2/members")
                keys = await link.ask("GET", path_of(prefix.rstrip("/")))
        except FAILURES as error:
            problems[name] = in_words(cause_of(error))
            refused = refusal(read, link.endpoint, cause_of(error))
            if refused is not None:
                refusals.append(refused)
            continue
        if keys.status in (401, 403):
            accepted = f"a user and password that may read and write below {prefix}"
            raise TargetError("target.credentials", f"{name}: {keys.problem}", accepted, refused=True)
        if keys.status == 404 and not keys.code:
            if "etcdserver" not in version.body:
                raise TargetError("target.endpoints", f"{name}: HTTP status 404", "etcd's client URL")
            release = version.body["etcdserver"]
            accepted = "etcd 3.5 or earlier that was started with --enable-v2, or v3"
            raise TargetError("target.api", f"v2: {name}: etcd {release} has no v2 API", accepted)
        if keys.code not in (0, KEY_NOT_FOUND) or (keys.status >= 300 and not keys.code):
            problems[name] = keys.problem
            continue
        listed = cast(list[dict[str, Any]], members.body.get("members", []))
        names = sorted(str(member.get("name") or member.get("id")) for member in listed)
        return TargetFacts("etcd", f"{version.body.get('etcdserver')} (v2 API)", names), keys.index
    if refusals:
        raise refusals[0]
    raise unreachable(read, problems)


def index_of(response: aiohttp.ClientResponse) -> int:
    """Return the store's index at the time of the answer."""
    index = response.headers.get("X-Etcd-Index", "")
    return int(index) if index.isdecimal() and len(index) <= _LONGEST_INDEX else 0


def answer_of(status: int, index: int, body: bytes) -> Answer:
    """Return what an answer means, whatever its body is."""
    try:
        content: Any = orjson.loads(body)
    except orjson.JSONDecodeError:  # such as "404 page not found"
        content = None
    known = cast(dict[str, Any], content) if isinstance(content, dict) else {}
    code, told = known.get("errorCode", 0), known.get("index", index)
    return Answer(
        status, code if isinstance(code, int) else 0, told if isinstance(told, int) else index, known
    )


def path_of(key: str) -> str:
    """Return the path of a key or directory."""
    return "/v2/keys" + quote(key)
