"""Lines that units write to their models' logs, until they are seen in the controller's log."""

from __future__ import annotations

from asyncio import Future

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.log_stream import LogStream


class Lines:
    """The lines of one worker. One reader follows the log of all models, as `juju debug-log --firehose` does.

    One reader per model would load the controller much more, because each reads the whole log.
    """

    def __init__(self, client: ApiClient, access: ControllerAccess, whose: str) -> None:
        """`whose` is the prefix of this worker's lines, and of no other's."""
        self._client = client
        self._access = access
        self._beginning = f"{whose} line "
        self._reader: LogStream | None = None
        self._unseen: dict[int, Future[None]] = {}

    @property
    def closed(self) -> bool:
        """Whether the log is no longer followed, or not yet."""
        return self._reader is None or self._reader.closed

    async def open(self) -> None:
        """Follow the log; raises OperationFailed if the controller refuses that."""
        if self.closed:
            self._reader = reader = self._client.log_reader(self._access.user, self._seen)
            await reader.accepted

    def write(self, sink: LogStream | None, unit: str, number: int, done: Future[None]) -> None:
        """Write a unit's line, and end a future once the line is in the log."""
        if sink is None or sink.closed:
            done.set_exception(OperationFailed(f"{unit}: the log sink is closed"))
            return
        sink.write(unit, f"{self._beginning}{number}")
        self._unseen[number] = done
        done.add_done_callback(lambda _: self._unseen.pop(number, None))

    def close(self) -> None:
        """Stop following the log."""
        if self._reader is not None:
            self._reader.close()

    def _seen(self, message: str) -> None:
        text = message.removeprefix(self._beginning)
        done = self._unseen.get(int(text)) if text != message and text.isdecimal() else None
        if done is not None and not done.done():
            done.set_result(None)
