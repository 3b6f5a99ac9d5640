"""Data loss: the error or the warning when messages that were asked for are gone."""

from __future__ import annotations

import logging

from ledgermq.model.errors import LedgerError

logger = logging.getLogger(__name__)


class DataLossError(LedgerError):
    """Messages that were asked for have been deleted; ``failOnDataLoss=false`` goes on without."""

    number = 60


def report_loss(*, fail: bool, **details: object) -> None:
    """Say that messages are gone: the number that is ``missing``, and where.

    Raises:
        DataLossError: when ``fail``.
    """
    if fail:
        raise DataLossError(
            "messages that were asked for have been deleted",
            **details,
            option="failOnDataLoss=false goes on with the oldest that is there",
        )
    logger.warning(
        "messages have been deleted, and are left out: %s",
        ", ".join(f"{name}={value!r}" for name, value in details.items()),
    )
