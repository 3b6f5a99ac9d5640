from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.records.host_address import decode_host, encode_host
from ledgermq.model.errors import CorruptLogError, MessageIllegalError


@given(st.ip_addresses(), st.integers(0, 65_535))
def test_every_host_is_read_as_it_was_written(address: object, port: int) -> None:
    host = (str(ip_address(str(address))), port)
    data = encode_host(host)

    assert len(data) == (20 if ":" in host[0] else 8)
    read, read_port = decode_host(data)
    assert (ip_address(read), read_port) == (address, port)
    assert encode_host((read, read_port)) == data


@given(st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20))
def test_any_bytes_are_a_host_or_corrupt(data: bytes) -> None:
    if int.from_bytes(data[-4:], "big") > 65_535:
        with pytest.raises(CorruptLogError):
            decode_host(data)
    else:
        assert encode_host(decode_host(data)) == data


@pytest.mark.parametrize(
    "host",
    [
        ("127.0.0.1", -1),
        ("127.0.0.1", 65_536),
        ("localhost", 1),
        ("127.1", 1),
        ("fe80::1%eth0", 1),
        ("", 1),
        ("1.2.3.4\0", 1),
        ("\ud800:", 1),
    ],
)
def test_what_is_no_host_is_refused(host: tuple[str, int]) -> None:
    with pytest.raises(MessageIllegalError):
        encode_host(host)
