"""What RocketMQ's clients are told of an error: the code by which they decide to go elsewhere."""

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
    StaleGenerationError,
    TopicUnknownError,
)
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command

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
    for kind in type(error).__mro__:
        code = _CODES.get(kind)
        if code is not None:
            return code
    return ResponseCode.SYSTEM_ERROR


def refusal(command: Command, error: LedgerError) -> Command:
    """The reply that tells ``error``."""
    return command.reply(code_of(error), remark=str(error))
