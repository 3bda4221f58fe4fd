"""Failures of calls to a Juju controller: an error as its answer, or a lost connection."""

from __future__ import annotations

from typing import Any, cast

from tippingpoint.errors import Limited, OperationFailed, one_line

TRY_AGAIN = "try again"
"""Code of a login refused by the rate limit (CodeTryAgain in Juju's rpc/params/apierror.go)."""
NOT_IMPLEMENTED = "not implemented"
"""Code of a facade, version or method the server does not know (CodeNotImplemented, same file)."""
UNAUTHORIZED = "unauthorized access"
"""Code of a login with a wrong password, or of a call that the user may not make (CodeUnauthorized, same file)."""
REDIRECT = "redirection required"
"""Code of a login that must go to another controller (CodeRedirect, same file)."""
_PASSING = (
    "database is closed",
    "database is dead",
    "worker is dying",
    "operation timed out",
    "context deadline exceeded",
    "context canceled",
)
"""A controller's messages while it has no database, because it stops, starts or is overloaded (core/database of Juju
4). None of them has a code."""


class ApiError(OperationFailed):
    """The controller answered with an error.

    `code` is the controller's ("" when it gave none), `message` its text on one line; `facade` and `request`
    name the call. The text is "message (code)".
    """

    def __init__(
        self, message: str, code: str = "", facade: str = "", request: str = "", info: Any = None
    ) -> None:
        self.message = one_line(message)
        self.code = one_line(code)
        self.facade = facade
        self.request = request
        self.info = info
        """Additional data of the controller for programs (`error-info`), or None."""
        super().__init__(f"{self.message} ({self.code})" if self.code else self.message)

    @property
    def passing(self) -> bool:
        """Whether the same call may succeed soon: it may if the controller was without its database."""
        return not self.code and any(words in self.message for words in _PASSING)


class RateLimited(ApiError, Limited):
    """The controller's limit of agent logins is reached; it asks to try again later."""

    @property
    def passing(self) -> bool:
        """Whether the same call may succeed soon: always."""
        return True


class ConnectionLost(OperationFailed):
    """TCP, TLS or WebSocket to the controller failed. The text is one line that begins with the server's address."""

    def __init__(self, server: str, reason: str) -> None:
        self.server = server
        self.reason = one_line(reason)
        super().__init__(f"{server}: {self.reason}")


def api_error(message: str, code: str, facade: str, request: str, info: Any = None) -> ApiError:
    """Return the error for an answer's message and code: RateLimited if the code says so."""
    kind = RateLimited if code == TRY_AGAIN else ApiError
    return kind(message, code, facade, request, info)


def result_errors(response: Any, facade: str = "", request: str = "") -> list[ApiError | None]:
    """Return the errors in a bulk call's response, `{"results": [{"error": {"message", "code"}} | {}]}`, in order."""
    results: Any = cast("dict[str, Any]", response).get("results") if isinstance(response, dict) else None
    if not isinstance(results, list):
        return []
    return [result_error(result, facade, request) for result in cast("list[Any]", results)]


def result_error(result: Any, facade: str = "", request: str = "") -> ApiError | None:
    """Return the error in one result or single response, `{"error": {"message", "code"}}`; None if there is none."""
    error: Any = cast("dict[str, Any]", result).get("error") if isinstance(result, dict) else None
    if not error:
        return None
    if not isinstance(error, dict):
        return api_error(str(error), "", facade, request)
    fields = cast("dict[str, Any]", error)
    message, code = str(fields.get("message") or "no message"), str(fields.get("code") or "")
    return api_error(message, code, facade, request, fields.get("info"))
