"""Many offset ids at once, against the codec of one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.records.host_address import encode_host
from ledgermq.formats.records.message_id import OffsetId, encode_offset_id
from ledgermq.gateway.producing.produce_codes import encode_offset_ids


@pytest.mark.parametrize("host", [("10.0.0.1", 10_911), ("2001:db8::1", 10_911)])
@given(positions=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=40))
def test_they_are_those_that_the_codec_makes(host: tuple[str, int], positions: list[int]) -> None:
    told = encode_offset_ids(encode_host(host), positions)

    assert told.split(",") == [encode_offset_id(OffsetId(host, one)) for one in positions]
