"""Problems: refusals as RFC 9457 has them, with the error's name, number and details."""

from __future__ import annotations

import json
from http import HTTPStatus

from starlette.responses import Response

from ledgermq.model.errors import (
    BodyUnreadableError,
    BusyError,
    ConfigError,
    CorruptLogError,
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
    QuotaError,
    StorageError,
    TopicUnknownError,
    TransactionEndedError,
    TransactionUnknownError,
)
from ledgermq.wire.statuses import status_of

CONTENT_TYPE = "application/problem+json"

STATUSES: dict[type[LedgerError], HTTPStatus] = {
    ConfigError: HTTPStatus.BAD_REQUEST,
    ProtocolError: HTTPStatus.BAD_REQUEST,
    MessageIllegalError: HTTPStatus.BAD_REQUEST,
    FilterIllegalError: HTTPStatus.BAD_REQUEST,
    NoPermissionError: HTTPStatus.FORBIDDEN,
    TopicUnknownError: HTTPStatus.NOT_FOUND,
    GroupUnknownError: HTTPStatus.NOT_FOUND,
    MessageUnknownError: HTTPStatus.NOT_FOUND,
    TransactionUnknownError: HTTPStatus.NOT_FOUND,
    TransactionEndedError: HTTPStatus.CONFLICT,
    GroupActiveError: HTTPStatus.CONFLICT,
    QuotaError: HTTPStatus.TOO_MANY_REQUESTS,
    BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
    OutcomeUnknownError: HTTPStatus.SERVICE_UNAVAILABLE,
    StorageError: HTTPStatus.SERVICE_UNAVAILABLE,
    CorruptLogError: HTTPStatus.INTERNAL_SERVER_ERROR,
    BodyUnreadableError: HTTPStatus.INTERNAL_SERVER_ERROR,
}

TRY_AGAIN = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


def http_status(error: LedgerError) -> HTTPStatus:
    """The status of an error, or of the nearest class that has one."""
    if isinstance(error, NotLeaderError):
        is_elsewhere = "leader" in error.details
        return HTTPStatus.MISDIRECTED_REQUEST if is_elsewhere else HTTPStatus.SERVICE_UNAVAILABLE
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
    return HTTPStatus.INTERNAL_SERVER_ERROR


def problem(error: LedgerError) -> Response:
    """The answer that tells of ``error``."""
    status = http_status(error)
    # What the broker told says more than the class.
    name = error.details.get("status") or status_of(error).name
    details = {key: value for key, value in error.details.items() if key != "status"}
    return problem_of(
        status,
        str(name),
        error.message,
        number=error.number,
        retriable=error.retriable,
        details=details,
    )


def problem_of(status: HTTPStatus, name: str, reason: str, **more: object) -> Response:
    """The answer that says ``reason`` in words."""
    document = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "error": name,
        "detail": reason,
        **more,
    }
    headers = {"retry-after": "1"} if status in TRY_AGAIN else {}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    content = json.dumps(document, default=str)
    return Response(content, status, headers, media_type=CONTENT_TYPE)
