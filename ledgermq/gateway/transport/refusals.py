"""Response codes of errors, by which RocketMQ's clients decide to go elsewhere."""

from __future__ import annotations

from ledgermq.model.errors import (
    AttemptUnknownError,
    DamagedLogError,
    LedgerError,
    OutcomeUnknownError,
    ProtocolError,
    StaleGenerationError,
    StorageError,
    TimedOutError,
)
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.wire.statuses import STATUSES


class CodedError(ProtocolError):
    """Refused with a response code that tells RocketMQ's clients more than the kind of error."""

    def __init__(self, code: ResponseCode, message: str, **details: object) -> None:
        super().__init__(message, **details)
        self.code = code


_OTHERWISE: dict[type[LedgerError], ResponseCode] = {
    # Those on which a producer takes another broker at once.
    OutcomeUnknownError: ResponseCode.SERVICE_NOT_AVAILABLE,
    TimedOutError: ResponseCode.SERVICE_NOT_AVAILABLE,
    AttemptUnknownError: ResponseCode.SERVICE_NOT_AVAILABLE,
    StaleGenerationError: ResponseCode.SERVICE_NOT_AVAILABLE,
    # And those on which it does not.
    DamagedLogError: ResponseCode.SYSTEM_ERROR,
    StorageError: ResponseCode.SYSTEM_ERROR,
}
"""What RocketMQ's clients are told with another code than our own (``wire/statuses.py``)."""


def code_of(error: LedgerError) -> ResponseCode:
    """The response code for ``error``; that of its nearest class that has one."""
    if isinstance(error, CodedError):
        return error.code
    for kind in type(error).__mro__:
        if kind in _OTHERWISE:
            return _OTHERWISE[kind]
        if kind in STATUSES:
            return ResponseCode(STATUSES[kind].code)
    return ResponseCode.SYSTEM_ERROR


def refusal(command: Command, error: LedgerError) -> Command:
    """The reply that tells ``error``."""
    return command.reply(code_of(error), remark=str(error))
