"""What a producer compresses, and what it leaves as it is."""

from __future__ import annotations

import random

import pytest

from ledgermq.client.sending.outgoing import Compressor, OutgoingMessage
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.formats.records.body_compression import plain_body
from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import ENTRY_SIZE_MAX

COMPRESSOR = Compressor.of(100, "zlib", None)
SHARED = OutgoingMessage(b"", tag="A", flag=7)


def test_a_body_of_the_size_is_compressed() -> None:
    message = COMPRESSOR.message(OutgoingMessage(b"x" * 100, tag="A", flag=7))

    assert len(message.body) < 100
    assert plain_body(message.body, message.sys_flag) == b"x" * 100
    assert (message.tag, message.flag, message.sys_flag) == ("A", 7, 1)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"x" * 99, id="small"),
        pytest.param(random.Random(1).randbytes(1_000), id="gets no smaller"),
        pytest.param(bytes(ENTRY_SIZE_MAX + 1), id="no log takes it"),
    ],
)
def test_other_bodies_stay_as_they_are(body: bytes) -> None:
    message = OutgoingMessage(body)

    assert COMPRESSOR.message(message) is message


def test_a_body_that_is_compressed_already_stays_so() -> None:
    message = OutgoingMessage(b"x" * 500, sys_flag=0x101)

    assert COMPRESSOR.message(message) is message


def test_a_batch_of_small_bodies_is_handed_on_untouched() -> None:
    bodies = [b"a", b"b" * 99]

    assert COMPRESSOR.batch(bodies, SHARED) is bodies


def test_a_large_body_of_a_batch_is_compressed_beside_small_ones() -> None:
    batch = COMPRESSOR.batch([b"a", b"b" * 500], SHARED)
    messages = [one for one in batch if isinstance(one, OutgoingMessage)]

    assert [(one.tag, one.flag, one.sys_flag) for one in messages] == [("A", 7, 0), ("A", 7, 1)]
    assert [plain_body(one.body, one.sys_flag) for one in messages] == [b"a", b"b" * 500]


def test_without_a_size_nothing_is_compressed() -> None:
    message = OutgoingMessage(b"x" * 5_000)

    assert Compressor.of(None, "zlib", None).message(message) is message


def test_the_defaults_are_those_of_rocketmq() -> None:
    compressor = ProducerOptions().compressor()

    assert (compressor.above, compressor.kind.value, compressor.level) == (4_096, "zlib", 5)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"compression": "gzip"}, "zstd"),
        ({"compression_level": 10}, "limit=9"),
        ({"compression": "zstd", "compression_level": 0}, "minimum=1"),
        ({"compress_above": 0}, "compress_above"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ProducerOptions(**options)  # type: ignore[arg-type]
