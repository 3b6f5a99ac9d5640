"""Status table: the name and RocketMQ response code by which a client is told each error."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.model.errors import (
    AttemptUnknownError,
    BodyUnreadableError,
    BusyError,
    ColdAwayError,
    ConfigError,
    CorruptLogError,
    DamagedLogError,
    DiskFullError,
    FilterIllegalError,
    GroupActiveError,
    GroupUnknownError,
    KeyMissingError,
    LedgerError,
    MessageIllegalError,
    MessageUnknownError,
    NoPermissionError,
    NotLeaderError,
    OutcomeUnknownError,
    ProtocolError,
    QuotaError,
    StagedUnknownError,
    StaleGenerationError,
    StorageError,
    StoreLockedError,
    TimedOutError,
    TopicUnknownError,
    TransactionEndedError,
    TransactionUnknownError,
    UnexpectedError,
)


class Status(NamedTuple):
    """Name of a refusal, and RocketMQ's ``ResponseCode`` for it."""

    name: str
    code: int


_SYSTEM_ERROR = Status("SYSTEM_ERROR", 1)

STATUSES: dict[type[LedgerError], Status] = {
    LedgerError: _SYSTEM_ERROR,
    ConfigError: _SYSTEM_ERROR,
    ProtocolError: Status("PROTOCOL_ERROR", 1),
    MessageIllegalError: Status("MESSAGE_ILLEGAL", 13),
    TopicUnknownError: Status("TOPIC_NOT_EXIST", 17),
    FilterIllegalError: Status("SUBSCRIPTION_PARSE_FAILED", 23),
    NoPermissionError: Status("NO_PERMISSION", 16),
    GroupUnknownError: Status("SUBSCRIPTION_GROUP_NOT_EXIST", 26),
    MessageUnknownError: Status("QUERY_NOT_FOUND", 22),
    GroupActiveError: Status("GROUP_ACTIVE", 1),
    TransactionUnknownError: Status("TRANSACTION_UNKNOWN", 1),
    TransactionEndedError: Status("TRANSACTION_ENDED", 1),
    StagedUnknownError: Status("STAGED_UNKNOWN", 1),
    NotLeaderError: Status("SERVICE_NOT_AVAILABLE", 14),
    BusyError: Status("OS_PAGECACHE_BUSY", 2),
    QuotaError: Status("QUOTA_EXCEEDED", 2),
    ColdAwayError: Status("COLD_STORAGE_AWAY", 1),
    KeyMissingError: Status("KEY_MISSING", 1),
    OutcomeUnknownError: _SYSTEM_ERROR,
    TimedOutError: _SYSTEM_ERROR,
    AttemptUnknownError: Status("ATTEMPT_UNKNOWN", 1),
    CorruptLogError: _SYSTEM_ERROR,
    BodyUnreadableError: _SYSTEM_ERROR,
    DamagedLogError: Status("LOG_DAMAGED", 2),
    StorageError: Status("SERVICE_NOT_AVAILABLE", 14),
    DiskFullError: Status("SERVICE_NOT_AVAILABLE", 14),
    StaleGenerationError: Status("SESSION_UNKNOWN", 2),
    StoreLockedError: _SYSTEM_ERROR,
    UnexpectedError: _SYSTEM_ERROR,
}
"""Every error that can cross a package has exactly one status."""

ERRORS_BY_NUMBER: dict[int, type[LedgerError]] = {error.number: error for error in STATUSES}

assert len(ERRORS_BY_NUMBER) == len(STATUSES)


def status_of(error: LedgerError) -> Status:
    """The status of ``error``, or of the nearest class that has one."""
    for kind in type(error).__mro__:
        status = STATUSES.get(kind)
        if status is not None:
            return status
    return _SYSTEM_ERROR
