"""Sealed pieces: what is sealed is opened, whatever is changed is found, and old ones are read."""

from __future__ import annotations

import hashlib
import json
import os
from io import BytesIO
from struct import pack

import pytest

from ledgermq.conversion.stream import sealed_piece
from ledgermq.conversion.stream.sealed_piece import PIECE_KEY_SIZE, open_piece, seal
from ledgermq.model.errors import ConfigError, CorruptLogError

KEY = bytes(range(PIECE_KEY_SIZE))
NAME = "data/00000000000000000000-00000000000000000100"
BLOCK = 64


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_piece, "SEALED_BLOCK_SIZE", BLOCK)


def sealed(content: bytes, *, key: bytes | None = None, name: str = NAME) -> bytes:
    return b"".join(seal(name, {"records": 3}, content, key=key))


def opened(piece: bytes, *, key: bytes | None = None, name: str = NAME) -> bytes:
    found = open_piece(BytesIO(piece), name, key=key, where="there")
    content = b"".join(found.content)
    assert found.header == {"records": 3, "name": name, "size": len(content)}
    return content


def as_before(content: bytes) -> bytes:
    """A piece as versions up to 0.3.0 wrote one without a key: a digest behind each part."""
    line = json.dumps({"records": 3, "name": NAME, "size": len(content)}).encode()
    head = pack(">8sBBHI8s32s", b"LMQPIECE", 1, 0, 0, len(line), bytes(8), os.urandom(32))
    parts = [line, *(content[at : at + BLOCK] for at in range(0, len(content), BLOCK))]
    piece = head
    for number, part in enumerate(parts):
        told = hashlib.blake2b(head + number.to_bytes(8, "big") + part, digest_size=32)
        piece += part + told.digest()
    return piece


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("size", [0, 1, BLOCK, BLOCK + 1, 5 * BLOCK])
def test_what_is_sealed_is_opened(size: int, key: bytes | None) -> None:
    content = os.urandom(size)
    piece = sealed(content, key=key)

    assert opened(piece, key=key) == content
    if size >= BLOCK:
        assert (content[:BLOCK] in piece) == (key is None)


def test_a_piece_of_before_is_opened() -> None:
    content = os.urandom(2 * BLOCK + 5)

    assert opened(as_before(content)) == content


@pytest.mark.parametrize("kind", ["open", "encrypted", "of before"])
def test_every_bit_counts(kind: str) -> None:
    content = os.urandom(BLOCK + 5)
    key = KEY if kind == "encrypted" else None
    piece = as_before(content) if kind == "of before" else sealed(content, key=key)
    for bit in range(len(piece) * 8):
        spoilt = bytearray(piece)
        spoilt[bit // 8] ^= 1 << bit % 8
        with pytest.raises((CorruptLogError, ConfigError)):
            opened(bytes(spoilt), key=key)
    for content in (piece[:-1], piece + b"\0", piece[:-BLOCK], piece[:40], b""):
        with pytest.raises(CorruptLogError):
            opened(content, key=key)


@pytest.mark.parametrize("key", [None, KEY])
def test_a_block_in_the_place_of_another_one_is_found(key: bytes | None) -> None:
    piece = sealed(os.urandom(2 * BLOCK), key=key)
    step = BLOCK + 16
    swapped = piece[: -2 * step] + piece[-step:] + piece[-2 * step : -step]
    with pytest.raises(CorruptLogError):
        opened(swapped, key=key)


@pytest.mark.parametrize("key", [None, KEY])
def test_a_block_of_another_piece_is_found(key: bytes | None) -> None:
    content = os.urandom(2 * BLOCK)
    one, other = sealed(content, key=key), sealed(content, key=key)
    step = BLOCK + 16
    with pytest.raises(CorruptLogError):
        opened(one[:-step] + other[-step:], key=key)


def test_an_open_piece_is_none_for_who_has_a_key() -> None:
    for piece in (sealed(b"content"), as_before(b"content")):
        with pytest.raises(ConfigError, match="is not encrypted"):
            opened(piece, key=KEY)
    with pytest.raises(ConfigError, match="say --key-file"):
        opened(sealed(b"content", key=KEY))
