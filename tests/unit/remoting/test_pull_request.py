"""What consumers ask for, and which of it counts."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.pull_request import (
    COMMIT_OFFSET,
    SUBSCRIPTION,
    SUSPEND,
    decode_pull,
    pull_reply_fields,
)

FIELDS = {
    "consumerGroup": "g", "topic": "t", "queueId": "1", "queueOffset": "100", "maxMsgNums": "32",
    "sysFlag": "0", "commitOffset": "90", "suspendTimeoutMillis": "15000", "subscription": "a || b",
    "subVersion": "1700000000000", "expressionType": "TAG",
}  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "offset", "suspend_ms", "subscription"),
    [
        (0, None, 0, None),
        (COMMIT_OFFSET, 90, 0, None),
        (SUSPEND, None, 15_000, None),
        (SUBSCRIPTION | SUSPEND | COMMIT_OFFSET, 90, 15_000, "a || b"),
    ],
)
def test_only_what_its_flags_name_counts(
    flags: int, offset: int | None, suspend_ms: int, subscription: str | None
) -> None:
    fields = {**FIELDS, "sysFlag": str(flags)}

    pull = decode_pull(Command(RequestCode.PULL_MESSAGE, fields=fields))

    assert (pull.commit_offset, pull.suspend_ms, pull.subscription) == (
        offset,
        suspend_ms,
        subscription,
    )
    assert (pull.queue_offset, pull.max_messages) == (100, 32)


def test_a_client_that_names_no_type_filters_by_tags() -> None:
    fields = {name: value for name, value in FIELDS.items() if name != "expressionType"}

    assert decode_pull(Command(11, fields=fields)).expression_type == "TAG"


def test_a_pull_without_a_place_is_refused() -> None:
    with pytest.raises(ProtocolError, match="missing") as refused:
        decode_pull(Command(11, fields={}))

    assert refused.value.details["field"] == "sysFlag"


def test_a_reply_names_all_four_numbers() -> None:
    fields = pull_reply_fields(next_offset=9, min_offset=0, max_offset=12, broker_id=1)

    assert fields == {
        "suggestWhichBrokerId": "1",
        "nextBeginOffset": "9",
        "minOffset": "0",
        "maxOffset": "12",
    }
