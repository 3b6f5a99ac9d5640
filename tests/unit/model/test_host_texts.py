"""Hosts as settings name them."""

import pytest

from ledgermq.model.config.settings_rules import RULES


@pytest.mark.parametrize(
    ("host", "is_taken"),
    [
        ("10.0.0.1", True),
        ("n0.example", True),
        ("[::1]", True),
        ("[::]", True),
        ("[fd00::1:2]", True),
        ("[::ffff:10.0.0.1]", True),
        ("[fe80::1]", False),
        ("[fe80::1%eth0]", False),
        ("[fd00::1%eth0]", False),
        ("[::::]", False),
        ("fd00::1", False),
        ("[10.0.0.1", False),
    ],
)
def test_an_ipv6_address_is_in_brackets_and_more_than_a_links(host: str, is_taken: bool) -> None:
    taken = {
        RULES["listen.produce"].takes(f"tcp://{host}:1"),
        RULES["listen.remoting"].takes(f"{host}:1"),
        RULES["listen.http"].takes(f"{host}:1"),
        RULES["node.peers"].takes((f"n0-{host}:1",)),
    }

    assert taken == {is_taken}


def test_the_own_address_is_one_that_others_know_it_by() -> None:
    takes = RULES["node.broker_ip"].takes

    assert takes("fd00::1") and takes("169.254.0.1")
    assert not takes("fe80::1") and not takes("fe80::1%eth0") and not takes("n0.example")
