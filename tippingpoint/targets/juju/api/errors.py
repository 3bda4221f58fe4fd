"""How a call to a Juju controller fails: the controller answers with an error, or the connection is lost."""

from __future__ import annotations

from typing import Any, cast

from tippingpoint.errors import Limited, OperationFailed, one_line

TRY_AGAIN = "try again"
"""Code of a login refused by the rate limit (CodeTryAgain in Juju's rpc/params/apierror.go)."""
NOT_IMPLEMENTED = "not implemented"
"""Code of a facade, version or method the server does not know (CodeNotImplemented, same file)."""
UNAUTHORIZED = "unauthorized access"
"""Code of a login whose password is wrong, or of a call that the user may not make (CodeUnauthorized, same file)."""
REDIRECT = "redirection required"
"""Code of a login that has to go to another controller (CodeRedirect, same file)."""


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
        """What the controller added for programs (`error-info`), or None."""
        super().__init__(f"{self.message} ({self.code})" if self.code else self.message)


class RateLimited(ApiError, Limited):
    """The controller asks to try again later: its limit of agent logins is reached."""


class ConnectionLost(OperationFailed):
    """The way to the controller failed: TCP, TLS or WebSocket; one line that begins with the server's address."""

    def __init__(self, server: str, reason: str) -> None:
        self.server = server
        self.reason = one_line(reason)
        super().__init__(f"{server}: {self.reason}")


def api_error(message: str, code: str, facade: str, request: str, info: Any = None) -> ApiError:
    """The error for an answer's message and code: RateLimited where the code says so."""
    kind = RateLimited if code == TRY_AGAIN else ApiError
    return kind(message, code, facade, request, info)


def result_errors(response: Any, facade: str = "", request: str = "") -> list[ApiError | None]:
    """The errors inside a bulk call's response, `{"results": [{"error": {"message", "code"}} | {}]}`, in order."""
    results: Any = cast("dict[str, Any]", response).get("results") if isinstance(response, dict) else None
    if not isinstance(results, list):
        return []
    return [result_error(result, facade, request) for result in cast("list[Any]", results)]


def result_error(result: Any, facade: str = "", request: str = "") -> ApiError | None:
    """The error inside one result or a whole single response, `{"error": {"message", "code"}}`; None without."""
    error: Any = cast("dict[str, Any]", result).get("error") if isinstance(result, dict) else None
    if not error:
        return None
    if not isinstance(error, dict):
        return api_error(str(error), "", facade, request)
    fields = cast("dict[str, Any]", error)
    message, code = str(fields.get("message") or "no message"), str(fields.get("code") or "")
    return api_error(message, code, facade, request, fields.get("info"))
