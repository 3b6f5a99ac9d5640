"""Statuses and times of answers: what a refusal is called in RocketMQ's gRPC protocol.

A refused call has ended well as far as gRPC sees; its answer has a status with a code.
"""

from __future__ import annotations

from typing import Any

from ledgermq.gateway.rpc.definition import RpcCode, make
from ledgermq.model.errors import (
    BusyError,
    DamagedLogError,
    FilterIllegalError,
    GroupActiveError,
    GroupUnknownError,
    LedgerError,
    MessageIllegalError,
    MessageUnknownError,
    NoPermissionError,
    NotLeaderError,
    OutcomeUnknownError,
    ProtocolError,
    StaleGenerationError,
    TopicUnknownError,
    TransactionEndedError,
    TransactionUnknownError,
)

TEXT_SIZE_MAX = 1_024
"""Characters of a refusal: some name what a client has sent."""


class RpcRefusedError(ProtocolError):
    """Refused with a code that tells more than the kind of error."""

    def __init__(self, code: RpcCode, message: str, **details: object) -> None:
        super().__init__(message, **details)
        self.code = code


_CODES: dict[type[LedgerError], RpcCode] = {
    ProtocolError: RpcCode.BAD_REQUEST,
    MessageIllegalError: RpcCode.BAD_REQUEST,
    TopicUnknownError: RpcCode.TOPIC_NOT_FOUND,
    GroupUnknownError: RpcCode.CONSUMER_GROUP_NOT_FOUND,
    GroupActiveError: RpcCode.PRECONDITION_FAILED,
    MessageUnknownError: RpcCode.NOT_FOUND,
    FilterIllegalError: RpcCode.ILLEGAL_FILTER_EXPRESSION,
    NoPermissionError: RpcCode.FORBIDDEN,
    TransactionUnknownError: RpcCode.INVALID_TRANSACTION_ID,
    TransactionEndedError: RpcCode.INVALID_TRANSACTION_ID,
    # Clients wait, and longer each time, before they try again.
    BusyError: RpcCode.TOO_MANY_REQUESTS,
    # And without waiting on these.
    NotLeaderError: RpcCode.HA_NOT_AVAILABLE,
    StaleGenerationError: RpcCode.HA_NOT_AVAILABLE,
    DamagedLogError: RpcCode.INTERNAL_ERROR,
    OutcomeUnknownError: RpcCode.PROXY_TIMEOUT,
}


def code_of(error: LedgerError) -> RpcCode:
    """The code for ``error``: that of its nearest class that has one."""
    if isinstance(error, RpcRefusedError):
        return error.code
    kinds = (kind for kind in type(error).__mro__ if kind in _CODES)
    found = next(kinds, None)
    return RpcCode.INTERNAL_SERVER_ERROR if found is None else _CODES[found]


def status(code: RpcCode, text: str) -> Any:
    """A status of its own words."""
    return make("Status", code=code, message=text[:TEXT_SIZE_MAX])


def status_of(error: LedgerError) -> Any:
    """The status that tells ``error``."""
    return status(code_of(error), str(error))


def fine() -> Any:
    """The status of what went well."""
    return status(RpcCode.OK, "OK")


def epoch_ms(timestamp: Any) -> int:
    """Epoch milliseconds of a ``Timestamp``."""
    return int(timestamp.seconds) * 1_000 + int(timestamp.nanos) // 1_000_000


def duration_ms(duration: Any) -> int:
    """Milliseconds of a ``Duration``."""
    return int(duration.seconds) * 1_000 + int(duration.nanos) // 1_000_000


def timestamp_of(ms: int) -> dict[str, int]:
    """Fields of the ``Timestamp`` of epoch milliseconds."""
    return {"seconds": ms // 1_000, "nanos": ms % 1_000 * 1_000_000}


def duration_of(ms: int) -> dict[str, int]:
    """Fields of the ``Duration`` of so many milliseconds."""
    return {"seconds": ms // 1_000, "nanos": ms % 1_000 * 1_000_000}
