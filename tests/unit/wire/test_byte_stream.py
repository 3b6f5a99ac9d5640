"""Messages out of a byte stream: the same however it is cut, and none larger than is allowed."""

from __future__ import annotations

import random

import pytest

from ledgermq.model.errors import ProtocolError
from ledgermq.wire.byte_stream import HEAD_SIZE, MessageReader, message_head

LIMIT = 300


def stream(messages: list[list[bytes]]) -> bytes:
    return b"".join(b"".join((message_head(parts)[0], *parts)) for parts in messages)


def test_messages_come_out_as_they_went_in_wherever_the_bytes_are_cut() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"{seed=}")
    chance = random.Random(seed)
    for _ in range(200):
        messages = [
            [chance.randbytes(chance.choice((0, 1, 16, LIMIT))) for _ in range(count)]
            for count in chance.choices((1, 2), k=chance.randrange(1, 6))
        ]
        data = stream(messages)
        reader = MessageReader(LIMIT, at_once=chance.choice((None, 1, 2)))
        at, found = 0, []
        while at < len(data):
            size = chance.choice((1, 3, HEAD_SIZE, reader.missing, len(data)))
            reader.feed(data[at : at + size])
            at += size
            found += reader.messages
            reader.messages.clear()
            while reader.waits:
                reader.go_on()
                found += reader.messages
                reader.messages.clear()

        assert found == messages
        assert (len(reader.begun), reader.missing) == (0, HEAD_SIZE)


def test_what_is_missing_is_what_makes_the_next_message_whole() -> None:
    data = stream([[b"head", bytes(200)]])
    reader = MessageReader(LIMIT)
    reader.feed(data[:5])

    assert reader.missing == HEAD_SIZE - 5
    reader.feed(data[5:20])
    assert reader.missing == len(data) - 20
    assert len(reader.begun) == 20
    assert not reader.messages
    reader.feed(data[20:])
    assert list(reader.messages) == [[b"head", bytes(200)]]


@pytest.mark.parametrize("parts", [[bytes(LIMIT + 1)], [b"", bytes(LIMIT + 1)]])
def test_a_part_that_is_too_large_is_refused_when_it_is_announced(parts: list[bytes]) -> None:
    reader = MessageReader(LIMIT)
    with pytest.raises(ProtocolError) as refused:
        reader.feed(message_head(parts)[0])

    assert refused.value.details["limit"] == LIMIT
