"""A half message is the message itself, with the properties of its transaction."""

from __future__ import annotations

from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.client.sending.transaction_requests import half_message


def test_a_half_message_keeps_all_of_its_message() -> None:
    message = OutgoingMessage(b"packed", "A", ("k",), {"a": "b"}, flag=7, sys_flag=0x101)
    half = half_message(message, group="g", transaction="t", topic="orders", queue_id=3)

    assert (half.body, half.tag, half.keys, half.flag) == (b"packed", "A", ("k",), 7)
    assert half.sys_flag == 0x101
    assert half.properties is not None
    assert {"a": "b", "PGROUP": "g", "REAL_TOPIC": "orders"}.items() <= half.properties.items()
