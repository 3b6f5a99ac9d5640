"""Java's clients over TLS with signatures, where nodes take nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.remoting.codes import RequestCode
from tests.certificates import make_certificate
from tests.compat.remoting_group import java_program, make_remoting_group
from tests.compat.rocketmq import oracle_program
from tests.process.conftest import Node
from tests.process.first_group import FirstGroup
from tests.process.group_nodes import TOPIC
from tests.process.remoting_client import RemotingClient
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

SIGNED = Path(__file__).with_name("Signed.java")
KEY, SECRET, GROUP = "orders-app", "secret-of-orders", "billing"
COUNT = 50


def signed_lines(
    name_servers: str, user: str, secret: str, trusted: Path, *, folder: Path
) -> list[str]:
    """What Java's clients say that sign as a user, and trust certificates alone."""
    options = {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(trusted),
    }
    words = (user, secret, TOPIC, GROUP, str(COUNT), "TBW102")
    with java_program(name_servers, SIGNED, *words, folder=folder, properties=options) as java:
        return java.wait()


def test_java_signs_over_tls_with_a_certificate_that_it_verifies(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    certificate, key = make_certificate(tmp_path)
    files = {"tls_certificate_file": str(certificate), "tls_key_file": str(key)}
    group, name_servers = make_remoting_group(
        make_node,
        tables={"remoting": {**files, "tls_mode": "enforcing"}, "access": {"enabled": True}},
    )
    leader = group.leader()
    with connect_broker(leader.address, name="operator", timeout_s=PATIENCE_S) as broker:
        rights = {"topicPerms": [f"{TOPIC}=PUB|SUB"], "groupPerms": [f"{GROUP}=SUB"]}
        AccessAdmin(broker).set_user(KEY, {"secretKey": SECRET, **rights}, mode="add")
    lines = signed_lines(name_servers, KEY, SECRET, certificate, folder=tmp_path)
    clear = RemotingClient(name_servers.partition(";")[0])
    with pytest.raises(ConnectionError):
        clear.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    clear.close()

    assert f"consumed {COUNT}" in lines
    assert "found by key 1" in lines
    assert "other topic 16" in lines
    assert "other secret 16" in lines
    assert group.stop() == [0, 0, 0]


def test_java_comes_in_where_config_init_has_made_keys_certificates_and_users(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    made = FirstGroup(make_node)
    made.let_users_in()
    lines = signed_lines(
        made.name_servers, "shop", made.secret("shop"), made.certificates, folder=tmp_path
    )

    assert f"consumed {COUNT}" in lines
    assert "found by key 1" in lines
    assert "other topic 16" in lines
    assert "other secret 16" in lines
    assert made.group.stop() == [0, 0, 0]
