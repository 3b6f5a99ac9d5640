"""Settings from TOML: what is taken, and what the operator is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.config.settings import AckMode, LogKind, Settings
from ledgermq.model.config.settings_file import (
    Problem,
    SettingsError,
    keys_of,
    read_settings,
    tables,
    write_settings,
)
from ledgermq.model.config.settings_rules import RULES, member_names
from ledgermq.model.errors import ConfigError
from ledgermq.raft.timing import Timing

FULL = """\
# A member of a group of three.
[node]
broker_name = "orders-a"
group = "orders-a"
self_id = "n1"
peers = [
    "n0-10.0.0.1:40911",
    "n1-10.0.0.2:40911",
    "n2-[2001:db8::3]:40911",
]

[store]
path_root_dir = "/srv/orders"
log = "dledger"
mapped_file_size_commit_log = 1_048_576

[ack]
mode = "majority-memory"

[listen]
produce = "tcp://*:9876"
trusted_network = true
socket_mode = 0o600
"""


def problems_of(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read_settings(text, name="node.toml")
    return str(caught.value).splitlines()[1:]


def test_every_type_of_value_is_read() -> None:
    settings = read_settings(FULL, name="node.toml")

    assert settings.node.peers == (
        "n0-10.0.0.1:40911",
        "n1-10.0.0.2:40911",
        "n2-[2001:db8::3]:40911",
    )
    assert settings.store.path_root_dir == Path("/srv/orders")
    assert settings.store.log is LogKind.DLEDGER
    assert settings.store.mapped_file_size_commit_log == 1_048_576
    assert settings.ack.mode is AckMode.MAJORITY_MEMORY
    assert settings.listen.produce == "tcp://*:9876"
    assert settings.listen.socket_mode == 0o600


def test_a_byte_order_mark_before_the_first_line_is_nothing() -> None:
    text = '[node]\nbroker_name = "a"\n'

    assert read_settings("\ufeff" + text, name="f") == read_settings(text, name="f")
    with pytest.raises(SettingsError, match="f:2: "):
        read_settings('\ufeff[node]\nbroker_nam = "a"\n', name="f")


def test_what_a_file_leaves_out_has_its_default() -> None:
    assert read_settings("", name="node.toml") == Settings()


def test_a_former_word_of_a_value_counts_and_is_remarked_with_its_line() -> None:
    remarks: list[Problem] = []
    text = '[node]\nself_id = "n1"\n[ack]\nmode = "leader"\n'

    settings = read_settings(text, name="node.toml", remark=remarks.append)

    assert settings.ack.mode is AckMode.LOSSY_LEADER
    assert remarks == [Problem(4, "ack.mode", '"leader" is "lossy-leader" by now: write that')]
    assert 'mode = "lossy-leader"' in write_settings(settings)


def test_written_settings_are_read_back_unchanged() -> None:
    settings = read_settings(FULL, name="node.toml")

    assert read_settings(write_settings(settings), name="written") == settings


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40))
def test_any_path_survives_writing_and_reading(name: str) -> None:
    defaults = Settings()
    settings = replace(defaults, store=replace(defaults.store, path_root_dir=Path("/", name)))

    assert read_settings(write_settings(settings), name="written") == settings


def test_all_problems_are_reported_at_once_in_the_order_of_the_file() -> None:
    found = problems_of(
        "[node]\n"
        'self_id = "7n"\n'
        "listen_port = 0\n"
        "\n"
        "[store]\n"
        "mapped_file_size_consume_queue = 4001\n"
        "max_message_size = true\n"
        'log = "kafka"\n'
    )

    assert found == [
        'node.toml:2: node.self_id: must be one letter and a whole number, as n0, got "7n"',
        "node.toml:3: node.listen_port: must be 1 to 65535, got 0",
        "node.toml:6: store.mapped_file_size_consume_queue:"
        " must be 20 to 2147483640, a multiple of 20, got 4001",
        "node.toml:7: store.max_message_size: must be a whole number, got true",
        'node.toml:8: store.log: must be "dledger" or "commitlog", got "kafka"',
    ]


def test_problems_are_details_for_machines() -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings("\n[log]\nlevel = 3\n", name="node.toml")

    assert caught.value.details == {
        "problems": [{"line": 3, "key": "log.level", "text": "must be a text in quotes, got 3"}]
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[stroe]\n", "1: stroe: unknown; did you mean store?"),
        (
            "[store]\nmappedFileSizeCommitLog = 5\n",
            "2: store.mappedFileSizeCommitLog: unknown; did you mean mapped_file_size_commit_log?",
        ),
        ("[store]\npeers = []\n", "2: store.peers: unknown here: it belongs into [node]"),
        ("[ack]\nzzz = 1\n", "2: ack.zzz: unknown; keys of [ack] are mode"),
        ("log = 3\n", "1: log: must be a table: write [log]"),
        ("[[log]]\n", "1: log: must be a table: write [log]"),
    ],
)
def test_an_unknown_name_is_refused_with_the_likeliest_one(text: str, problem: str) -> None:
    assert problems_of(text) == [f"node.toml:{problem}"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("log.level = 'LOUD'\n", 1),
        ("\nlog = { level = 'LOUD' }\n", 2),
        ("[log]\n'level' = 'LOUD'\n", 2),
        ('[node]\ngroup = """\nlevel = 1\\\n"""\n[log]\nlevel = "LOUD"\n', 6),
    ],
)
def test_the_line_of_a_key_is_found_in_every_notation(text: str, line: int) -> None:
    assert any(
        problem == f'node.toml:{line}: log.level: must be DEBUG, INFO, WARNING, ERROR, got "LOUD"'
        for problem in problems_of(text)
    )


def test_broken_toml_is_reported_with_its_line() -> None:
    (problem,) = problems_of("[node]\nself_id = \n")

    assert problem.startswith("node.toml:2: TOML: ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "[node]\nwitness = true\n",
            '2: node.witness: is true, but node.initial_cluster_state is not "existing": a'
            " witness without bodies is taken into a group that is there",
        ),
        (
            '[node]\nself_id = "n9"\npeers = ["n0-a:1", "n1-b:1"]\n',
            "2: node.self_id: 'n9' is none of node.peers (n0, n1)",
        ),
        (
            '[node]\npeers = ["n0-a:1", "n0-b:1"]\n',
            "2: node.peers: has n0 more than once",
        ),
        (
            '[node]\npeers = ["n0-a:1", "n1-b:1", "n2-A:1"]\n',
            "2: node.peers: has a:1 more than once: members need one each",
        ),
        (
            "[raft]\nheartbeat_ms = 134\n",
            "1: raft.election_timeout_min_ms: is 400; with raft.heartbeat_ms = 134 it must be"
            " at least 402, or two lost heartbeats would end in an election",
        ),
        (
            "[raft]\nelection_timeout_max_ms = 400\n",
            "2: raft.election_timeout_max_ms: is 400, and must be more than"
            " raft.election_timeout_min_ms = 400",
        ),
        (
            "[raft]\nin_flight_bytes = 1_048_576\nframe_bytes = 1_048_577\n",
            "3: raft.frame_bytes: is 1048577, more than raft.in_flight_bytes = 1048576",
        ),
        (
            '[raft]\npreferred_leaders = ["n0", "n0"]\n',
            "2: raft.preferred_leaders: has n0 more than once",
        ),
        (
            '[node]\npeers = ["n0-a:1", "n1-b:1"]\n[raft]\npreferred_leaders = ["n2"]\n',
            "4: raft.preferred_leaders: 'n2' is no member (n0, n1)",
        ),
        (
            '[node]\npeers = ["n0-a:1"]\n[store]\nlog = "commitlog"\n',
            '2: node.peers: a plain CommitLog is not replicated: set store.log = "dledger"',
        ),
        (
            '[listen]\nproduce = "tcp://*:1"\nconsume = "tcp://*:1"\ntrusted_network = true\n',
            "3: listen.consume: is 'tcp://*:1', and so is listen.produce: take another port",
        ),
        (
            "[limits]\nclient_window_bytes = 300_000_000\n",
            "2: limits.client_window_bytes: is 300000000, more than"
            " limits.total_window_bytes = 268435456",
        ),
        (
            "[store]\nmax_index_num = 107_374_178\n",
            "2: store.max_index_num: 5000000 slots and 107374178 items make index files of"
            " 2167483600 bytes; the most is 2147483647",
        ),
    ],
)
def test_settings_that_cannot_stand_together_are_refused(text: str, problem: str) -> None:
    assert problems_of(text) == [f"node.toml:{problem}"]


def test_all_conflicts_of_a_group_are_reported_at_once() -> None:
    found = problems_of(
        '[node]\nself_id = "n9"\npeers = ["n0-a:1", "n1-a:1"]\n'
        '[raft]\nheartbeat_ms = 500\nelection_timeout_min_ms = 900\npreferred_leaders = ["n7"]\n'
    )

    assert [problem.split(": ")[:2] for problem in found] == [
        ["node.toml:2", "node.self_id"],
        ["node.toml:3", "node.peers"],
        ["node.toml:4", "raft.election_timeout_max_ms"],
        ["node.toml:6", "raft.election_timeout_min_ms"],
        ["node.toml:7", "raft.preferred_leaders"],
    ]


def test_a_single_peer_is_a_group_of_one() -> None:
    settings = read_settings('[node]\npeers = ["n0-10.0.0.1:40911"]\n', name="node.toml")

    assert member_names(settings.node) == member_names(Settings().node) == ("n0",)


@given(st.integers(10, 10_000), st.integers(30, 60_000), st.integers(31, 120_000))
def test_the_core_takes_all_times_that_the_settings_allow(
    heartbeat: int, election_min: int, election_max: int
) -> None:
    text = (
        f"[raft]\nheartbeat_ms = {heartbeat}\n"
        f"election_timeout_min_ms = {election_min}\nelection_timeout_max_ms = {election_max}\n"
    )
    fits = 3 * heartbeat <= election_min < election_max
    try:
        raft = read_settings(text, name="node.toml").raft
    except SettingsError:
        assert not fits
        return

    assert fits
    # Its constructor asserts what it needs.
    Timing(
        heartbeat=raft.heartbeat_ms,
        election_min=raft.election_timeout_min_ms,
        election_max=raft.election_timeout_max_ms,
        transfer_max=raft.transfer_timeout_ms,
    )


@pytest.mark.parametrize(
    ("key", "bad"),
    [
        ("node.broker_name", '"a b"'),
        ("node.broker_name", f'"{"a" * 128}"'),
        ("node.broker_ip", '"10.0.0.256"'),
        ("node.peers", '["n0-10.0.0.1"]'),
        ("node.peers", '["n0-10.0.0.1:65536"]'),
        ("node.peers", '"n0-10.0.0.1:1"'),
        ("node.peers", "[1]"),
        ("store.path_root_dir", '"var/lib"'),
        ("store.mapped_file_size_commit_log", "65535"),
        ("store.mapped_file_size_commit_log", "2147483648"),
        ("store.max_message_size", "4194305"),
        ("store.message_delay_level", '" "'),
        ("store.message_delay_level", '"1w"'),
        ("store.message_index_enable", "1"),
        ("raft.heartbeat_ms", "9"),
        ("raft.in_flight_bytes", "16777217"),
        ("raft.frame_bytes", "8388609"),
        ("raft.preferred_leaders", '["first"]'),
        ("raft.curve", '"yes"'),
        ("raft.keys_dir", '"keys"'),
        ("listen.produce", '"tcp://*"'),
        ("listen.produce", '"ipc:///run/x"'),
        ("listen.consume", '"tcp://host:0"'),
        ("listen.runtime_dir", f'"/{"d" * 90}"'),
        ("listen.socket_mode", "0o1000"),
        ("limits.client_window_bytes", "1024"),
    ],
)
def test_a_value_out_of_its_rule_is_refused_and_named(key: str, bad: str) -> None:
    table, name = key.split(".")
    (problem,) = problems_of(f"[{table}]\n{name} = {bad}\n")

    assert problem.startswith(f"node.toml:2: {key}: must be ")
    assert problem.endswith(f", got {int(bad, 8) if bad.startswith('0o') else bad}")


def test_every_setting_has_a_rule_that_takes_its_default() -> None:
    defaults = Settings()
    keys = {
        f"{table}.{name}": getattr(getattr(defaults, table), name)
        for table in tables()
        for name in keys_of(getattr(defaults, table))
    }

    assert set(RULES) == set(keys)
    refused = [
        key for key, value in keys.items() if value is not None and not RULES[key].takes(value)
    ]
    assert refused == []


CURVE = '[listen]\ncurve_secret_file = "/keys/clients"\n'
TLS = (
    '[remoting]\ntls_mode = "enforcing"\n'
    'tls_certificate_file = "/tls/node.pem"\ntls_key_file = "/tls/node.key"\n'
)
USERS = "[access]\nenabled = true\n"


@pytest.mark.parametrize(
    ("key", "sealed"),
    [
        *(("produce", CURVE), ("consume", CURVE), ("remoting", TLS), ("name_server", TLS)),
        ("grpc", TLS.replace("remoting", "grpc")),
    ],
)
def test_an_address_that_everybody_may_use_has_to_be_meant(key: str, sealed: str) -> None:
    where = "tcp://127.0.0.1:9876" if key in ("produce", "consume") else "127.0.0.1:9876"
    opened = f'[listen]\n{key} = "{where}"\n'
    for lacking in ("", USERS, sealed):
        text = f"{opened}{lacking}".replace(f"{opened}[listen]\n", opened)
        (problem,) = problems_of(text)
        assert problem.startswith(f"node.toml:2: listen.{key}: is '{where}'")
        assert "listen.trusted_network" in problem
        assert "access.enabled" in problem

    meant = read_settings(f"{opened}trusted_network = true\n", name="node.toml")
    shut = f"{opened}{sealed}{USERS}".replace(f"{opened}[listen]\n", opened)
    safe = read_settings(shut, name="node.toml")

    assert getattr(meant.listen, key) == getattr(safe.listen, key) == where
    assert not safe.listen.trusted_network


MIRROR = '[mirror]\nsources = ["https://10.0.0.1:9464"]\ntoken_file = "/etc/token"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (MIRROR.replace("https", "http"), "without TLS"),
        (MIRROR.replace('token_file = "/etc/token"\n', ""), "mirror.token_file"),
        (MIRROR + '[node]\nself_id = "n0"\npeers = ["n0-10.0.0.2:4"]\n', "node.peers"),
        (MIRROR + '[store]\nlog = "commitlog"\n', "which has no copies"),
        (MIRROR.replace("10.0.0.1:9464", "10.0.0.1"), "must be"),
        (MIRROR.replace("9464", "70000"), "must be"),
        (MIRROR.replace('9464"', '9464", "https://10.0.0.1:9464/"'), "more than once"),
    ],
)
def test_a_mirror_says_who_it_is_and_is_sure_of_whom_it_asks(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_settings(text, name="node.toml")


def test_a_mirror_may_ask_in_the_clear_where_nobody_else_listens() -> None:
    local = MIRROR.replace("https://10.0.0.1", "http://127.0.0.1")
    trusted = MIRROR.replace("https", "http") + "[listen]\ntrusted_network = true\n"

    for text in (MIRROR, local, trusted):
        assert read_settings(text, name="node.toml").mirror.sources


SLAVES = """[store]
log = "commitlog"
[listen]
remoting = "127.0.0.1:10911"
ha = "127.0.0.1:10912"
trusted_network = true
"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SLAVES.replace('"commitlog"', '"dledger"'), "other positions than in a DLedger log"),
        (SLAVES.replace('remoting = "127.0.0.1:10911"\n', ""), "ask for topics and groups"),
        (
            SLAVES.replace("127.0.0.1:10912", "10.0.0.1:10912").replace("true", "false"),
            "gets all messages",
        ),
        (SLAVES.replace("127.0.0.1:10912", "*:10912").replace("true", "false"), "all messages"),
        (SLAVES.replace(":10912", ":70000"), "must be"),
        (SLAVES + "[slaves]\nconnections_max = 17\n", "slaves.connections_max"),
        (SLAVES + "[slaves]\nbytes_per_s = 1\n", "slaves.bytes_per_s"),
    ],
)
def test_slaves_get_the_log_where_it_is_theirs_and_nobody_elses(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_settings(text, name="node.toml")


def test_slaves_are_let_in_where_who_comes_is_trusted() -> None:
    for address in ("127.0.0.1:10912", "*:10912", "10.0.0.1:10912"):
        text = SLAVES.replace("127.0.0.1:10912", address)
        assert read_settings(text, name="node.toml").listen.ha == address
