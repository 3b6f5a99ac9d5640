"""Signatures are RocketMQ's."""

from __future__ import annotations

import pytest

from ledgermq.remoting.signature import is_signed, signature

FIELDS = {"topic": "TopicA", "AccessKey": "RocketMQ"}
SIGNED = "PEVjGgjJPDRbDo25BNbaxlEojKM="
"""What RocketMQ 4.9.4 signs for this key, these fields and this body."""


def test_a_signature_is_javas() -> None:
    assert signature(FIELDS, b"hello", "12345678") == SIGNED


def test_a_field_that_says_what_a_key_is_may_be_signed_or_not() -> None:
    fields = {"_UNIQUE_KEY_QUERY": "true", **FIELDS}
    both = signature(fields, b"hello", "12345678")

    assert both != SIGNED
    assert is_signed({"Signature": SIGNED, **fields}, b"hello", "12345678")
    assert is_signed({"Signature": both, **fields}, b"hello", "12345678")
    assert not is_signed({"Signature": both, **fields}, b"hullo", "12345678")
    assert not is_signed({"Signature": both, **FIELDS}, b"hello", "12345678")


@pytest.mark.parametrize(
    ("fields", "body", "secret"),
    [
        (FIELDS, b"hello", "12345678"),
        ({**FIELDS, "Signature": SIGNED, "n": "1"}, b"hello", "12345678"),
        ({**FIELDS, "Signature": SIGNED}, b"hullo", "12345678"),
        ({**FIELDS, "Signature": SIGNED}, b"hello", "12345679"),
        ({**FIELDS, "Signature": "ä"}, b"hello", "12345678"),
    ],
    ids=["none", "one more field", "another body", "another secret", "no text of base64"],
)
def test_what_was_not_signed_is_told(fields: dict[str, str], body: bytes, secret: str) -> None:
    assert not is_signed(fields, body, secret)
