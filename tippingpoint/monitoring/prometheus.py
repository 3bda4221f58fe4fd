"""Queries a Prometheus. Its answers are not trusted: garbage, huge and endless ones are refused with one line, within
limits of time and bytes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
import ssl
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, cast

import aiohttp
import numpy as np
import orjson
from numpy.typing import NDArray
from yarl import URL

from tippingpoint.errors import OperationFailed, TargetError, UserError, one_line
from tippingpoint.util.in_clear import LOGIN_ACCEPTED, is_in_clear
from tippingpoint.util.network_errors import in_words
from tippingpoint.util.rest import cause_of
from tippingpoint.util.secret_files import read_text

MOST_POINTS = 11_000
"""The most points of one series in one answer. Prometheus refuses more ("exceeded maximum resolution",
web/api/v1/api.go)."""
LARGEST_ANSWER = 16 << 20
"""The most bytes of one answer. A sample has about 36 bytes as text and takes 250 while it is read: 110 MB in all."""
MOST_SAMPLES = 10_000_000
"""The most samples of one query, over all its answers: 160 MB as arrays. The text of labels counts like them."""
CONNECT_WITHIN = 5.0
"""Seconds for a connection, TLS included."""
ANSWER_WITHIN = 30.0
"""Seconds for one answer, from the first byte sent to the last received."""
QUERY_WITHIN = 120.0
"""Seconds for all the answers of one query."""
_AT_ONCE = 4
"""The most concurrent queries; Prometheus runs 20 (--query.max-concurrency)."""
_LONGEST_LINE = 300  # characters of a message from Prometheus
_LONGEST_NUMBER = 40  # characters; Prometheus writes a double with 24 at most
_SAMPLE = 16  # bytes of a sample, as two doubles
_SPARSEST = 6  # bytes of an answer for each list or mapping in it; a sample has 17 at least, and a series 26
_LAST_TIME = 1e12  # seconds, of the year 33658
_ACCEPTED = "a Prometheus that answers within reach"


class Sampled(NamedTuple):
    """One series: its labels, and its samples in the order of time (Unix seconds)."""

    labels: dict[str, str]
    times: NDArray[np.float64]
    values: NDArray[np.float64]


class ScrapedTarget(NamedTuple):
    """One target's present state in Prometheus: health is up, down or unknown; `error` says why it is down."""

    job: str
    url: str
    labels: dict[str, str]
    health: str
    error: str


class _TooLarge(Exception):
    """An answer exceeds LARGEST_ANSWER."""


class Prometheus:
    """One Prometheus by its URL, used as a context: `async with Prometheus(url) as prometheus`.

    Queries raise OperationFailed if only this query failed: it was refused, too slow, or its answer was garbage or too
    large. They raise TargetError if the next one will fail, too: nothing answers, or the login is refused.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: Path | None = None,
        username: str = "",
        password_file: Path | None = None,
        token_file: Path | None = None,
    ) -> None:
        """`ca` is the file with the authority that signed its certificate; None for the machine's own authorities.

        The login is a `username` with its password, or a bearer token, from files of mode 0600. Raises UserError for a
        wrong URL, for a login in it, and for unusable files.
        """
        self._url = _read_url(url)
        self.where = str(self._url)
        """The URL, which never has a login in it."""
        self._headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        login = _login(username, password_file, token_file)
        if login:
            if is_in_clear(self.where):
                raise UserError("prometheus", self.where, LOGIN_ACCEPTED)
            self._headers["Authorization"] = login
        self._tls = _tls(ca) if self._url.scheme == "https" else True
        self._session: aiohttp.ClientSession | None = None
        self._asking = asyncio.Semaphore(_AT_ONCE)

    async def __aenter__(self) -> Prometheus:
        # Each query has its own connection, because Prometheus may just have closed an idle one.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, force_close=True),
            timeout=aiohttp.ClientTimeout(total=ANSWER_WITHIN, connect=CONNECT_WITHIN),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def version(self) -> str:
        """Return its version, such as 2.42.0."""
        data = await self._asked("GET", "status/buildinfo", {})
        version = data.get("version")
        if not isinstance(version, str) or not version or len(version) > 100:
            raise OperationFailed(f"{self.where}: reports no version: expected a Prometheus")
        return version

    async def targets(self) -> list[ScrapedTarget]:
        """Return its present targets."""
        data = await self._asked("GET", "targets", {"state": "active"})
        try:
            return [_target(entry) for entry in data["activeTargets"]]
        except (KeyError, TypeError, AttributeError, ValueError):
            raise self._garbage() from None

    async def query(self, expr: str, at: float | None = None) -> list[Sampled]:
        """Evaluate an expression at a moment (Unix seconds; None for now): one sample for each series.

        A selector with a range, such as up[1m], has all samples of each series in that time.
        """
        form = {"query": expr} if at is None else {"query": expr, "time": _moment(at)}
        data = await self._asked("POST", "query", form)
        return self._sampled(data, {"vector": "value", "scalar": "", "matrix": "values"})

    async def query_range(self, expr: str, start: float, end: float, step: float) -> list[Sampled]:
        """Evaluate an expression at start, start + step and so on up to end, all in (Unix) seconds.

        A series has no sample where Prometheus has none. The query is split as the limits require.
        """
        step = round(step, 3)
        if not (step > 0 and math.isfinite(step) and math.isfinite(start) and math.isfinite(end)):
            raise ValueError(f"step {step} from {start} to {end}")
        points = int((end - start) / step + 1e-9) + 1
        found: dict[tuple[tuple[str, str], ...], list[Sampled]] = {}
        begin, window, samples = 0, MOST_POINTS, 0
        async with self._asking, self._patience():
            while begin < points:
                last = min(begin + window, points) - 1
                try:
                    part = await self._range(expr, start + begin * step, start + last * step, step)
                except _TooLarge:
                    window = (last - begin + 1) // 2
                    if window == 0:
                        raise self._too_large(LARGEST_ANSWER >> 20, "MiB") from None
                    continue
                samples += sum(_size(series) for series in part)
                if samples > MOST_SAMPLES:
                    raise self._too_large(MOST_SAMPLES, "samples")
                for series in part:
                    found.setdefault(tuple(sorted(series.labels.items())), []).append(series)
                begin = last + 1
        return [_joined(parts) for parts in found.values()]

    @contextlib.asynccontextmanager
    async def _patience(self) -> AsyncGenerator[None, None]:
        try:
            async with asyncio.timeout(QUERY_WITHIN):
                yield
        except TimeoutError:
            raise OperationFailed(
                f"{self.where}: has not answered a query within {QUERY_WITHIN:g} s: expected fewer series"
            ) from None

    async def _range(self, expr: str, start: float, end: float, step: float) -> list[Sampled]:
        form = {"query": expr, "start": _moment(start), "end": _moment(end), "step": f"{step:.3f}"}
        return self._sampled(await self._data("POST", "query_range", form), {"matrix": "values"})

    async def _asked(self, method: str, path: str, form: Mapping[str, str]) -> dict[str, Any]:
        try:
            async with self._asking:
                return await self._data(method, path, form)
        except _TooLarge:
            raise self._too_large(LARGEST_ANSWER >> 20, "MiB") from None

    async def _data(self, method: str, path: str, form: Mapping[str, str]) -> dict[str, Any]:
        """Return the `data` of an answer."""
        status, body = await self._answer(method, path, form)
        told = _read(body)
        match told:
            case {"status": "success", "data": dict()} if status == 200:
                return cast("dict[str, Any]", told["data"])
            case {"status": "error", "error": str(error)} if status not in (401, 403):
                raise OperationFailed(f"{self.where}: {one_line(error, _LONGEST_LINE)}")
            case _ if status in (401, 403):
                raise TargetError(self.where, f"it refuses the login ({status})", "a login that may query it")
            case _ if status == 200:
                raise self._garbage()
            case _:
                raise TargetError(self.where, f"it answers {status}", _ACCEPTED)

    async def _answer(self, method: str, path: str, form: Mapping[str, str]) -> tuple[int, bytes]:
        if self._session is None:
            raise RuntimeError("asked outside of its context")
        url = self._url / "api" / "v1" / path
        sent: dict[str, Any] = {"params": form} if method == "GET" else {"data": form}
        try:
            async with self._session.request(method, url, allow_redirects=False, **sent) as response:
                body = bytearray()
                async for chunk in response.content.iter_chunked(1 << 16):
                    body += chunk
                    if len(body) > LARGEST_ANSWER:
                        raise _TooLarge
                return response.status, bytes(body)
        except aiohttp.ConnectionTimeoutError:
            raise TargetError(self.where, f"no connection within {CONNECT_WITHIN:g} s", _ACCEPTED) from None
        except TimeoutError:  # includes aiohttp's own
            raise OperationFailed(f"{self.where}: has not answered within {ANSWER_WITHIN:g} s") from None
        except aiohttp.ClientConnectorError as problem:
            raise TargetError(self.where, in_words(cause_of(problem)), _ACCEPTED) from None
        except (aiohttp.ClientError, OSError, ValueError) as problem:
            raise OperationFailed(
                f"{self.where}: the answer broke off: {in_words(cause_of(problem))}"
            ) from None

    def _sampled(self, data: dict[str, Any], keys: Mapping[str, str]) -> list[Sampled]:
        """Return the series of an answer. Its type decides the key of the samples."""
        try:
            key = keys[data["resultType"]]
            result: Any = data["result"]
            entries: list[dict[str, Any]] = result if key else [{"metric": {}, "value": result}]
            key = key or "value"
            # A series of native histograms has no plain values; no figure uses one.
            return [_series(entry, key) for entry in entries if key in entry]
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
            raise self._garbage() from None

    def _garbage(self) -> OperationFailed:
        return OperationFailed(f"{self.where}: the answer is garbage: expected what Prometheus answers")

    def _too_large(self, most: int, of: str) -> OperationFailed:
        return OperationFailed(
            f"{self.where}: the answer is larger than {most:,} {of}: expected fewer series"
        )


def _read_url(url: str) -> URL:
    accepted = "the URL of a Prometheus, such as https://prometheus.example:9090"
    try:
        read = URL(url.strip())
        if read.user is not None or read.password is not None:
            shown = f"{read.scheme}://(login not shown)@{read.host}"
            raise UserError("prometheus", shown, "a URL without a login in it, which comes from a file")
        usable = read.scheme in ("http", "https") and read.host and read.port and not read.query_string
    except ValueError:
        raise UserError("prometheus", "(not shown)" if "@" in url else url, accepted) from None
    if not usable or read.fragment:
        raise UserError("prometheus", "(not shown)" if "@" in url else url, accepted)
    return read.with_path(read.path.rstrip("/"))


def _login(username: str, password_file: Path | None, token_file: Path | None) -> str:
    """Return the header's value; empty without a login."""
    if token_file is not None:
        return f"Bearer {_secret('token-file', token_file, 'a file with a bearer token')}"
    if password_file is None:
        return ""
    password = _secret("password-file", password_file, "a file with a password")
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _secret(place: str, path: Path, accepted: str) -> str:
    text = read_text(place, path, accepted, private=True).strip()
    if not text or not text.isprintable():
        raise UserError(place, str(path), f"{accepted}, in one line")
    return text


def _tls(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ValueError):  # includes ssl.SSLError
        raise UserError("ca", str(ca), "a file of certificates (PEM)") from None


def _read(body: bytes) -> Any:
    """Return an answer's JSON; None for anything else. Empty lists are refused before they take 25 times their text."""
    if _SPARSEST * (body.count(b"[") + body.count(b"{")) > len(body) + 1000:
        return None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _moment(seconds: float) -> str:
    return f"{seconds:.3f}"


def _series(entry: dict[str, Any], key: str) -> Sampled:
    """Read one series of an answer. Raises the errors that `_sampled` treats as garbage."""
    pairs = entry[key] if key == "values" else [entry[key]]
    labels = entry["metric"]
    if not all(isinstance(value, str) for value in labels.values()):
        raise TypeError
    times = np.array([_time(time) for time, _ in pairs], dtype=np.float64)
    values = np.array([_number(value) for _, value in pairs], dtype=np.float64)
    return Sampled(cast("dict[str, str]", labels), times, values)


def _time(told: Any) -> float:
    if not isinstance(told, int | float) or not abs(told) < _LAST_TIME:
        raise ValueError
    return float(told)


def _number(told: Any) -> float:
    # One by one: an array of texts would reserve the length of the longest one for each of them.
    if not isinstance(told, str) or len(told) > _LONGEST_NUMBER:
        raise ValueError
    return float(told)


def _size(series: Sampled) -> int:
    """Return the size of a series in samples."""
    labels = sum(len(name) + len(value) for name, value in series.labels.items())
    return len(series.times) + labels // _SAMPLE


def _joined(parts: list[Sampled]) -> Sampled:
    if len(parts) == 1:
        return parts[0]
    return Sampled(
        parts[0].labels,
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


def _target(entry: dict[str, Any]) -> ScrapedTarget:
    texts = [entry[name] for name in ("scrapePool", "scrapeUrl", "health", "lastError")]
    labels = entry["labels"]
    if not all(isinstance(text, str) for text in [*texts, *labels.values()]):
        raise TypeError
    job, url, health, error = texts
    return ScrapedTarget(job, url, labels, health, one_line(error, _LONGEST_LINE))
