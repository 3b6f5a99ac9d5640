"""Shares of addresses: which ones are one client's."""

from __future__ import annotations

import pytest

from ledgermq.hosts.address_share import share_of


@pytest.mark.parametrize(
    ("address", "share"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("::ffff:a00:7", "10.0.0.7"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("uid 1000", "uid 1000"),
        ("", ""),
    ],
)
def test_a_line_has_one_share_whatever_its_addresses(address: str, share: str) -> None:
    assert share_of(address) == share
