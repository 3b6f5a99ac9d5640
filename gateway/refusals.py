"""Response codes of errors, by which RocketMQ's clients decide to go elsewhere."""

from __future__ import annotations

from ledgermq.model.errors import (
    BusyError,
    DiskFullError,
    FilterIllegalError,
    GroupUnknownError,
    LedgerError,
    MessageIllegalError,
    NoPermissionError,
    NotLeaderError,
    OutcomeUnknownError,
    ProtocolError,
    StaleGenerationError,
    TopicUnknownError,
)
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command


class CodedError(ProtocolError):
    """Refused with a response code that tells RocketMQ's clients more than the kind of error."""

    def __init__(self, code: ResponseCode, message: str, **details: object) -> None:
        super().__init__(message, **details)
        self.code = code


_CODES: dict[type[LedgerError], ResponseCode] = {
    BusyError: ResponseCode.SYSTEM_BUSY,
    DiskFullError: ResponseCode.SERVICE_NOT_AVAILABLE,
    FilterIllegalError: ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    GroupUnknownError: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    MessageIllegalError: ResponseCode.MESSAGE_ILLEGAL,
    NoPermissionError: ResponseCode.NO_PERMISSION,
    # Those on which a producer takes another broker at once.
    NotLeaderError: ResponseCode.SERVICE_NOT_AVAILABLE,
    OutcomeUnknownError: ResponseCode.SERVICE_NOT_AVAILABLE,
    StaleGenerationError: ResponseCode.SERVICE_NOT_AVAILABLE,
    TopicUnknownError: ResponseCode.TOPIC_NOT_EXIST,
}


def code_of(error: LedgerError) -> ResponseCode:
    """The response code for ``error``; that of its nearest class, ``SYSTEM_ERROR`` without one."""
    if isinstance(error, CodedError):
        return error.code
    for kind in type(error).__mro__:
        code = _CODES.get(kind)
        if code is not None:
            return code
    return ResponseCode.SYSTEM_ERROR


def refusal(command: Command, error: LedgerError) -> Command:
    """The reply that tells ``error``."""
    return command.reply(code_of(error), remark=str(error))
