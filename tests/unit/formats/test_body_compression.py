"""Compressed bodies: RocketMQ's flags, bounds, and one typed error for whatever is broken."""

from __future__ import annotations

import sys
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.records.body_compression import (
    PLAIN_SIZE_MAX,
    Compression,
    body_start,
    check_compression,
    compress_body,
    plain_body,
)
from ledgermq.model.errors import BodyUnreadableError, ConfigError

KINDS = list(Compression)
TEXT = b"the same words, again and again; " * 300


@pytest.mark.parametrize("kind", KINDS)
@given(body=st.binary(max_size=2_000))
def test_what_is_compressed_comes_back(kind: Compression, body: bytes) -> None:
    packed = compress_body(body, kind, 3)

    assert plain_body(packed, kind.sys_flag) == body


def test_the_flags_are_those_of_rocketmq() -> None:
    assert [kind.sys_flag for kind in KINDS] == [0x1, 0x101, 0x201]


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
def test_both_flags_of_zlib_are_read(sys_flag: int) -> None:
    assert plain_body(zlib.compress(TEXT), sys_flag) == TEXT


def test_a_body_without_the_flag_is_given_as_it_is() -> None:
    body = zlib.compress(TEXT)

    assert plain_body(body, 0x300) is body


def test_streams_of_unknown_size_are_read() -> None:
    framed = lz4.frame.LZ4FrameCompressor()
    by_lz4 = framed.begin() + framed.compress(TEXT) + framed.flush()
    by_zstd = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)

    assert plain_body(by_lz4, 0x101) == TEXT
    assert plain_body(by_zstd, 0x201) == TEXT


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", [0, 1, 5, 20, -1])
def test_a_cut_body_is_unreadable(kind: Compression, kept: int) -> None:
    packed = compress_body(TEXT, kind, 3)

    with pytest.raises(BodyUnreadableError, match=kind.value):
        plain_body(packed[:kept], kind.sys_flag)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_no_stream_are_unreadable(kind: Compression) -> None:
    with pytest.raises(BodyUnreadableError, match="broken"):
        plain_body(b"hello, this is no stream", kind.sys_flag)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_body_does_not_become_an_endless_one(kind: Compression) -> None:
    packed = compress_body(bytes(1_000_001), kind, 3)

    assert len(plain_body(packed, kind.sys_flag, size_max=1_000_001)) == 1_000_001
    with pytest.raises(BodyUnreadableError, match="limit=1000000"):
        plain_body(packed, kind.sys_flag, size_max=1_000_000)


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(BodyUnreadableError, match="sys_flag=1025"):
        plain_body(b"x", 0x401)


@pytest.mark.parametrize(("kind", "package"), [("lz4", "lz4"), ("zstd", "zstandard")])
def test_a_package_that_is_missing_is_named(
    kind: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = compress_body(TEXT, Compression(kind), 3)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)

    with pytest.raises(ConfigError, match=package):
        check_compression(Compression(kind))
    with pytest.raises(BodyUnreadableError, match=package):
        plain_body(packed, Compression(kind).sys_flag)


@pytest.mark.parametrize("kind", Compression)
@pytest.mark.parametrize("size", [0, 1, 99, 100, 101])
def test_the_beginning_of_a_body_is_made_and_no_more_of_it(kind: Compression, size: int) -> None:
    packed = compress_body(b"x" * 100, kind, 1)
    start = body_start(packed, kind.sys_flag, size)

    assert (bytes(start.content), start.is_whole) == (b"x" * min(size, 100), size >= 100)
    assert body_start(b"x" * 100, 0, size) == (b"x" * min(size, 100), size >= 100)


@pytest.mark.slow
@pytest.mark.parametrize("kind", Compression)
def test_a_beginning_is_told_of_what_becomes_larger_than_any_body_may(kind: Compression) -> None:
    packed = compress_body(bytes(PLAIN_SIZE_MAX + 1), kind, 1)

    assert body_start(packed, kind.sys_flag, 5) == (bytes(5), False)
    with pytest.raises(BodyUnreadableError, match="too large"):
        plain_body(packed, kind.sys_flag)
    with pytest.raises(BodyUnreadableError, match="broken"):
        body_start(packed[:4], kind.sys_flag, 5)
