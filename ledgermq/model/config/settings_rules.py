"""Validation rules of settings: one a key, and conflicts between keys.

A key is ``table.name``, as in the settings file. The texts are those of the errors, and those of
``docs/operating/settings.md``.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ledgermq.model.config.amounts import parse_amount
from ledgermq.model.config.host_texts import HOST, PORT, V6_SAID, has_port, is_address
from ledgermq.model.config.settings import (
    VIP_DISTANCE,
    ClusterState,
    LogKind,
    NodeSection,
    Settings,
    TlsMode,
)
from ledgermq.model.delay_levels import delay_levels_ms
from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import (
    ENTRY_SIZE_MAX,
    FRAME_SIZE_MAX,
    TOPIC_NAME,
    TOPIC_SIZE_MAX,
)
from ledgermq.model.names.strange_uses import STRANGE_USES
from ledgermq.model.units import KIB, MIB

JAVA_INT_MAX = 2**31 - 1
"""Sizes of files are Java ints in RocketMQ, so no file of a store may be larger."""

COMMIT_LOG_FILE_SIZE_MIN = 64 * KIB
QUEUE_UNIT_SIZE = 20
INDEX_HEADER_SIZE, INDEX_SLOT_SIZE, INDEX_ITEM_SIZE = 40, 4, 20
MAX_HASH_SLOT_NUM, MAX_INDEX_NUM = 5_000_000, 20_000_000
"""RocketMQ's defaults, which hold where neither the settings nor a file say otherwise."""

UNIX_SOCKET_PATH_MAX = 107
"""``sun_path`` holds 108 bytes, the last of them zero."""

LONGEST_SOCKET_NAME = "/dispatcher.inbox"
RIGHTS_AGE_MIN_S, RIGHTS_AGE_MAX_S = 60, 365 * 86_400
"""Less than a minute would be over between two answers of the home, and an election."""

RUNTIME_DIR_SIZE_MAX = UNIX_SOCKET_PATH_MAX - len(LONGEST_SOCKET_NAME)

HEARTBEATS_PER_ELECTION_MIN = 3
"""Two heartbeats may be lost before anybody campaigns."""

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

_PIECES = re.compile(r"/[^\0\n]*|[a-z0-9]+://[^\s\0]+")
_MEMBER = r"[a-zA-Z][0-9]{1,8}"


class Rule(NamedTuple):
    """Which values are taken; ``allowed`` completes the sentence «must be …»."""

    allowed: str
    takes: Callable[[object], bool]


HTTP_UNIX = "unix"
"""``listen.http`` that is a socket in the runtime directory."""


class Conflict(NamedTuple):
    """Two settings that cannot stand together; ``key`` is the one to look at first."""

    key: str
    text: str


def conflicts(settings: Settings) -> Iterator[Conflict]:
    """What the rules of single keys cannot see; empty when the settings can be used together."""
    yield from _member_conflicts(settings)
    yield from _raft_conflicts(settings)
    yield from _size_conflicts(settings)
    yield from _access_conflicts(settings)
    yield from _clear_conflicts(settings)
    yield from _remoting_conflicts(settings)
    yield from _grpc_conflicts(settings)
    yield from _slaves_conflicts(settings)
    yield from _http_conflicts(settings)
    yield from _mirror_conflicts(settings)
    listen = settings.listen
    if listen.produce is not None and listen.produce == listen.consume:
        yield Conflict(
            "listen.consume", f"is {listen.consume!r}, and so is listen.produce: take another port"
        )


def _remoting_conflicts(settings: Settings) -> Iterator[Conflict]:
    listen = settings.listen
    if listen.remoting is not None and listen.remoting == listen.name_server:
        yield Conflict(
            "listen.name_server",
            f"is {listen.name_server!r}, and so is listen.remoting, which answers the same: leave"
            " one out",
        )
    if listen.vip_channel and listen.remoting is not None:
        vip = int(listen.remoting.rpartition(":")[2]) - VIP_DISTANCE
        own = f"{settings.node.self_id}-"
        if any(peer.startswith(own) and peer.endswith(f":{vip}") for peer in settings.node.peers):
            yield Conflict(
                "listen.vip_channel",
                f"has the node listen at port {vip}, two below listen.remoting, where members talk"
                " by node.peers: set it to false, or take another port",
            )
    remoting = settings.remoting
    if (remoting.tls_certificate_file is None) != (remoting.tls_key_file is None):
        yield Conflict(
            "remoting.tls_key_file", "and remoting.tls_certificate_file are needed together"
        )
    if remoting.tls_mode is TlsMode.ENFORCING and remoting.tls_certificate_file is None:
        yield Conflict("remoting.tls_mode", "is enforcing, and needs remoting.tls_certificate_file")
    names = [entry.partition("-")[0] for entry in settings.remoting.addresses]
    for name in _repeated(names):
        yield Conflict("remoting.addresses", f"has {name} more than once")


def _clear_conflicts(settings: Settings) -> Iterator[Conflict]:
    """Whoever reaches a tcp address in clear is trusted with all that clients may do; a node must
    have been told that this is meant.
    """
    listen = settings.listen
    if listen.trusted_network:
        return
    is_shut = settings.access.enabled
    for key, value in (("produce", listen.produce), ("consume", listen.consume)):
        if value is not None and not (is_shut and listen.curve_secret_file is not None):
            yield Conflict(
                f"listen.{key}",
                f"is {value!r}, and everybody who reaches it could use the node: set"
                " listen.curve_secret_file and access.enabled, or listen.trusted_network if only"
                " who is trusted reaches it",
            )
    is_sealed = settings.remoting.tls_mode is TlsMode.ENFORCING
    for key, value in (("remoting", listen.remoting), ("name_server", listen.name_server)):
        if value is not None and not (is_shut and is_sealed):
            yield Conflict(
                f"listen.{key}",
                f"is {value!r}, and everybody who reaches it could use the node: set"
                ' remoting.tls_mode = "enforcing" and access.enabled, or listen.trusted_network if'
                " only who is trusted reaches it",
            )


def _grpc_conflicts(settings: Settings) -> Iterator[Conflict]:
    listen, grpc = settings.listen, settings.grpc
    for name in _repeated(entry.partition("=")[0] for entry in grpc.members):
        yield Conflict("grpc.members", f"has {name} more than once")
    if (grpc.tls_certificate_file is None) != (grpc.tls_key_file is None):
        yield Conflict("grpc.tls_key_file", "and grpc.tls_certificate_file are needed together")
    is_sealed = grpc.tls_mode is TlsMode.ENFORCING
    if is_sealed and grpc.tls_certificate_file is None:
        yield Conflict("grpc.tls_mode", "is enforcing, and needs grpc.tls_certificate_file")
    if listen.grpc is None or listen.trusted_network or (settings.access.enabled and is_sealed):
        return
    yield Conflict(
        "listen.grpc",
        f"is {listen.grpc!r}, and everybody who reaches it could use the node: set"
        ' grpc.tls_mode = "enforcing" and access.enabled, or listen.trusted_network if only'
        " who is trusted reaches it",
    )


def _slaves_conflicts(settings: Settings) -> Iterator[Conflict]:
    """RocketMQ's protocol for slaves has no accounts and no TLS: who reaches it gets the log."""
    listen = settings.listen
    if listen.ha is None:
        return
    if settings.store.log.has_terms:
        yield Conflict(
            "listen.ha",
            'is set, and store.log is not "commitlog": slaves of RocketMQ\'s keep a plain log, in'
            " which messages have other positions than in a DLedger log",
        )
    if listen.remoting is None:
        yield Conflict(
            "listen.ha",
            "is set, and listen.remoting is not, where slaves ask for topics and groups",
        )
    if not (listen.trusted_network or is_local(listen.ha)):
        yield Conflict(
            "listen.ha",
            f"is {listen.ha!r}, and everybody who reaches it gets all messages: take an address of"
            " 127.0.0.0/8 behind a tunnel, or listen.trusted_network if only who is trusted"
            " reaches it",
        )


def _http_conflicts(settings: Settings) -> Iterator[Conflict]:
    """This machine's own may look at the node; who comes from elsewhere shows who it is."""
    listen, http = settings.listen, settings.http
    for name in _repeated(entry.partition("=")[0] for entry in http.members):
        yield Conflict("http.members", f"has {name} more than once")
    if (http.tls_certificate_file is None) != (http.tls_key_file is None):
        yield Conflict("http.tls_key_file", "and http.tls_certificate_file are needed together")
    if listen.http is None or listen.trusted_network or is_local(listen.http):
        return
    if http.tls_certificate_file is None or http.tokens_file is None:
        yield Conflict(
            "listen.http",
            f"is {listen.http!r}, and everybody who reaches it could look at the node: set"
            " http.tls_certificate_file, http.tls_key_file and http.tokens_file, or"
            " listen.trusted_network if only who is trusted reaches it",
        )


def _mirror_conflicts(settings: Settings) -> Iterator[Conflict]:
    """All that a group has comes over the line: nobody else is to see it, or to give it."""
    mirror = settings.mirror
    if not mirror.sources:
        return
    if mirror.token_file is None:
        yield Conflict("mirror.token_file", "is missing: mirror.sources gives nothing without")
    if not settings.store.log.has_terms:
        yield Conflict(
            "mirror.sources", 'is set, and store.log is "commitlog", which has no copies'
        )
    if settings.node.peers:
        yield Conflict("node.peers", "is set, and mirror.sources: a mirror has no members")
    for name in _repeated(url.rstrip("/") for url in mirror.sources):
        yield Conflict("mirror.sources", f"has {name} more than once")
    clear = [url for url in mirror.sources if url.startswith("http://")]
    if not settings.listen.trusted_network:
        for url in clear:
            if not is_local(url.removeprefix("http://").rstrip("/")):
                yield Conflict(
                    "mirror.sources",
                    f"has {url}, without TLS: take https, or listen.trusted_network if only who"
                    " is trusted reaches it",
                )


def is_local(http: str) -> bool:
    """Whether ``listen.http``, or an address, is reached by programs of this machine alone."""
    host = http.rpartition(":")[0].strip("[]")
    return http == HTTP_UNIX or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def _access_conflicts(settings: Settings) -> Iterator[Conflict]:
    for name in _repeated(entry.partition("=")[0] for entry in settings.access.unix_users):
        yield Conflict("access.unix_users", f"has {name} more than once")


def member_names(node: NodeSection) -> tuple[str, ...]:
    """Ids of all members in the order of ``node.peers``; this node alone without any."""
    return tuple(peer.partition("-")[0] for peer in node.peers) or (node.self_id,)


def _member_conflicts(settings: Settings) -> Iterator[Conflict]:
    node = settings.node
    if node.initial_cluster_state is ClusterState.EXISTING and len(node.peers) < 2:
        yield Conflict(
            "node.initial_cluster_state",
            'is "existing", but node.peers names nobody else: name the members of the group',
        )
    if node.witness and node.initial_cluster_state is not ClusterState.EXISTING:
        yield Conflict(
            "node.witness",
            'is true, but node.initial_cluster_state is not "existing": a witness without bodies'
            " is taken into a group that is there",
        )
    if not node.peers:
        return
    if settings.store.log is LogKind.COMMITLOG:
        yield Conflict(
            "node.peers", 'a plain CommitLog is not replicated: set store.log = "dledger"'
        )
    names = member_names(node)
    for name in _repeated(names):
        yield Conflict("node.peers", f"has {name} more than once")
    for address in _repeated(peer.partition("-")[2].lower() for peer in node.peers):
        yield Conflict("node.peers", f"has {address} more than once: members need one each")
    if node.self_id not in names:
        yield Conflict(
            "node.self_id", f"{node.self_id!r} is none of node.peers ({', '.join(names)})"
        )


def _raft_conflicts(settings: Settings) -> Iterator[Conflict]:
    raft = settings.raft
    heard_ms = HEARTBEATS_PER_ELECTION_MIN * raft.heartbeat_ms
    if raft.election_timeout_min_ms < heard_ms:
        yield Conflict(
            "raft.election_timeout_min_ms",
            f"is {raft.election_timeout_min_ms}; with raft.heartbeat_ms = {raft.heartbeat_ms}"
            f" it must be at least {heard_ms}, or two lost heartbeats would end in an election",
        )
    if raft.election_timeout_min_ms >= raft.election_timeout_max_ms:
        yield Conflict(
            "raft.election_timeout_max_ms",
            f"is {raft.election_timeout_max_ms}, and must be more than"
            f" raft.election_timeout_min_ms = {raft.election_timeout_min_ms}",
        )
    if raft.frame_bytes > raft.in_flight_bytes:
        yield Conflict(
            "raft.frame_bytes",
            f"is {raft.frame_bytes}, more than raft.in_flight_bytes = {raft.in_flight_bytes}",
        )
    for name in _repeated(raft.preferred_leaders):
        yield Conflict("raft.preferred_leaders", f"has {name} more than once")
    members = member_names(settings.node)
    for name in dict.fromkeys(raft.preferred_leaders):
        if name not in members:
            yield Conflict(
                "raft.preferred_leaders", f"{name!r} is no member ({', '.join(members)})"
            )


def _repeated(values: Iterable[str]) -> list[str]:
    return sorted(value for value, count in Counter(values).items() if count > 1)


def _size_conflicts(settings: Settings) -> Iterator[Conflict]:
    limits, store = settings.limits, settings.store
    if limits.client_window_bytes > limits.total_window_bytes:
        yield Conflict(
            "limits.client_window_bytes",
            f"is {limits.client_window_bytes}, more than"
            f" limits.total_window_bytes = {limits.total_window_bytes}",
        )
    yield from _group_conflicts(settings)
    slots = store.max_hash_slot_num or MAX_HASH_SLOT_NUM
    items = store.max_index_num or MAX_INDEX_NUM
    size = INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + items * INDEX_ITEM_SIZE
    if size > JAVA_INT_MAX:
        yield Conflict(
            "store.max_index_num",
            f"{slots} slots and {items} items make index files of {size} bytes;"
            f" the most is {JAVA_INT_MAX}",
        )


def _group_conflicts(settings: Settings) -> Iterator[Conflict]:
    groups = settings.groups
    if groups.member_expiry_ms < 3 * groups.heartbeat_ms:
        yield Conflict(
            "groups.member_expiry_ms",
            f"is {groups.member_expiry_ms}, less than three times"
            f" groups.heartbeat_ms = {groups.heartbeat_ms}",
        )
    if groups.lock_expiry_ms < groups.member_expiry_ms:
        yield Conflict(
            "groups.lock_expiry_ms",
            f"is {groups.lock_expiry_ms}, less than"
            f" groups.member_expiry_ms = {groups.member_expiry_ms}",
        )


def _between(low: int, high: int, *, multiple_of: int = 1) -> Rule:
    def takes(value: object) -> bool:
        return isinstance(value, int) and low <= value <= high and value % multiple_of == 0

    multiple = f", a multiple of {multiple_of}" if multiple_of > 1 else ""
    return Rule(f"{low} to {high}{multiple}", takes)


def _or_zero(rule: Rule) -> Rule:
    return Rule(f"0, or {rule.allowed}", lambda value: value == 0 or rule.takes(value))


def _text(allowed: str, accepts: Callable[[str], bool]) -> Rule:
    def takes(value: object) -> bool:
        return isinstance(value, str) and accepts(value)

    return Rule(allowed, takes)


def _path(allowed: str, *, size_max: int) -> Rule:
    def takes(value: object) -> bool:
        if not isinstance(value, Path) or not value.is_absolute() or "\0" in str(value):
            return False
        return len(str(value).encode()) <= size_max

    return Rule(allowed, takes)


def _each(rule: Rule) -> Rule:
    def takes(value: object) -> bool:
        return isinstance(value, tuple) and all(rule.takes(item) for item in value)

    return Rule(f"a list, each {rule.allowed}", takes)


def _is_name(text: str) -> bool:
    return len(text) <= TOPIC_SIZE_MAX and TOPIC_NAME.fullmatch(text) is not None


def _read_by(read: Callable[[str], object]) -> Callable[[str], bool]:
    def is_read(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return is_read


_is_network = _read_by(ipaddress.ip_network)


def _are_delay_levels(text: str) -> bool:
    try:
        return len(delay_levels_ms(text)) > 1
    except ConfigError:
        return False


def _are_hours(text: str) -> bool:
    return re.fullmatch(r"(?:[01]?\d|2[0-3])(?:;(?:[01]?\d|2[0-3]))*", text) is not None


_AMOUNT = _text(
    "bytes with B, KiB, MiB, GiB or TiB, or per cent of the disk, as 500GiB or 60%",
    lambda text: parse_amount(text) is not None,
)
_WATERMARK = _text(
    "per cent of the disk used, or bytes left free, as 75% or 200GiB",
    lambda text: parse_amount(text) is not None,
)
_BOOLEAN = Rule("true or false", lambda value: isinstance(value, bool))
_TOPIC_NAME = _text(f"1 to {TOPIC_SIZE_MAX} characters of a-z A-Z 0-9 _ - | %", _is_name)
_ENDPOINT = _text(
    f"tcp://HOST:PORT, HOST an address, an interface or *; {V6_SAID}",
    has_port(rf"tcp://(?:\*|{HOST}):{PORT}"),
)
_REMOTING = _text(
    f"HOST:PORT, HOST an address of this machine or *; {V6_SAID}",
    has_port(rf"(?:\*|{HOST}):{PORT}"),
)
_HTTP = _text(
    f'"unix", or HOST:PORT, HOST an address of this machine; {V6_SAID}',
    lambda text: text == HTTP_UNIX or has_port(rf"{HOST}:{PORT}")(text),
)
_PEER = _text(
    f"ID-HOST:PORT, as n0-10.0.0.1:40911; {V6_SAID}", has_port(rf"{_MEMBER}-{HOST}:{PORT}")
)

_NAME_SERVER = _text(
    f"HOST:PORT, as 10.0.0.9:9876 or names.example.org:9876; {V6_SAID}",
    has_port(rf"{HOST}:{PORT}"),
)
_NETWORK = _text("an address or a NETWORK/BITS, as 10.0.0.0/24", _is_network)
_MEMBER_RULE = _text(
    "one letter and a whole number, as n0", lambda text: re.fullmatch(_MEMBER, text) is not None
)
_MEMBER_URL = _text(
    "ID=URL, as n1=https://10.0.0.2:9464",
    lambda text: (
        re.fullmatch(rf"{_MEMBER}=https?://[A-Za-z0-9.:\[\]-]{{1,255}}/?", text) is not None
    ),
)
_MEMBER_PORT = _text(
    f"ID=HOST:PORT, as n1=10.0.0.2:8081; {V6_SAID}", has_port(rf"{_MEMBER}={HOST}:{PORT}")
)
_SOURCE_URL = _text(
    "a URL, as https://10.0.0.2:9464",
    has_port(rf"https?://{HOST}:{PORT}/?"),
)
_UNIX_USER_PATTERN = r"@?[A-Za-z0-9_.-]+\$?=[A-Za-z0-9][A-Za-z0-9_.@-]*"
_UNIX_USER = _text(
    "ACCOUNT=USER or @GROUP=USER, names or numbers of the machine's, as app=orders",
    lambda text: re.fullmatch(_UNIX_USER_PATTERN, text) is not None,
)
_RATE = _between(0, 2**53)
_RIGHTS_AGE = _or_zero(_between(RIGHTS_AGE_MIN_S, RIGHTS_AGE_MAX_S))

RULES = {
    "node.broker_cluster_name": _TOPIC_NAME,
    "node.broker_name": _TOPIC_NAME,
    "node.group": _TOPIC_NAME,
    "node.self_id": _MEMBER_RULE,
    "node.peers": _each(_PEER),
    "node.initial_cluster_state": _text('"new" or "existing"', lambda text: True),
    "node.witness": _BOOLEAN,
    "node.broker_ip": _text("an IPv4 or IPv6 address, no fe80::", is_address),
    "node.listen_port": _between(1, 65_535),
    "store.path_root_dir": _path("an absolute path", size_max=4_000),
    "store.log": _text('"dledger" or "commitlog"', lambda text: True),
    "store.mapped_file_size_commit_log": _between(COMMIT_LOG_FILE_SIZE_MIN, JAVA_INT_MAX),
    "store.mapped_file_size_consume_queue": _between(
        QUEUE_UNIT_SIZE, JAVA_INT_MAX - JAVA_INT_MAX % QUEUE_UNIT_SIZE, multiple_of=QUEUE_UNIT_SIZE
    ),
    "store.max_hash_slot_num": _between(1, 500_000_000),
    "store.max_index_num": _between(2, 107_374_178),
    "store.max_message_size": _between(1, ENTRY_SIZE_MAX),
    "store.message_index_enable": _BOOLEAN,
    "store.message_delay_level": _text(
        "times with s, m, h or d behind each, as 1s 5s 1m", _are_delay_levels
    ),
    "store.flush_interval_ms": _between(1, 60_000),
    "store.checkpoint_interval_ms": _between(100, 600_000),
    "store.leave_behind": _each(
        _text(f"one of {', '.join(STRANGE_USES)}", lambda text: text in STRANGE_USES)
    ),
    "raft.heartbeat_ms": _between(10, 10_000),
    "raft.election_timeout_min_ms": _between(30, 60_000),
    "raft.election_timeout_max_ms": _between(31, 120_000),
    "raft.in_flight_bytes": _between(MIB, 16 * MIB),
    "raft.in_flight_frames": _between(1, 1_024),
    "raft.frame_bytes": _between(65_536, 8 * MIB),
    "raft.catch_up_bytes_per_s": _between(65_536, 16 * 1024 * MIB),
    "raft.shipping_bytes_per_s": _between(65_536, 16 * 1024 * MIB),
    "raft.transfer_timeout_ms": _between(100, 60_000),
    "raft.disk_sick_after_ms": _between(100, 600_000),
    "raft.preferred_leaders": _each(_MEMBER_RULE),
    "raft.curve": _BOOLEAN,
    "raft.direct": _BOOLEAN,
    "raft.direct_port": _between(0, 65_534),
    "raft.direct_writers": _BOOLEAN,
    "raft.keys_dir": _path("an absolute path", size_max=4_000),
    "scrub.rate_bytes_per_s": _between(0, 1024 * MIB),
    "scrub.every_s": _between(1, 31_536_000),
    "ack.mode": _text('"majority-fsync", "majority-memory" or "lossy-leader"', lambda text: True),
    "listen.runtime_dir": _path(
        f"an absolute path of at most {RUNTIME_DIR_SIZE_MAX} bytes (unix sockets are in it)",
        size_max=RUNTIME_DIR_SIZE_MAX,
    ),
    "listen.produce": _ENDPOINT,
    "listen.consume": _ENDPOINT,
    "listen.remoting": _REMOTING,
    "listen.name_server": _REMOTING,
    "listen.http": _HTTP,
    "listen.grpc": _REMOTING,
    "listen.ha": _REMOTING,
    "listen.socket_mode": _between(0, 0o777),
    "listen.curve_secret_file": _path("an absolute path", size_max=4_000),
    "listen.vip_channel": _BOOLEAN,
    "listen.trusted_network": _BOOLEAN,
    "remoting.processes": _between(1, 16),
    "remoting.addresses": _each(_PEER),
    "remoting.name_servers": _each(_NAME_SERVER),
    "remoting.name_servers_ca_file": _path("an absolute path", size_max=4_000),
    "remoting.registrations_from": _each(_NETWORK),
    "remoting.connections_max": _between(1, 1_000_000),
    "remoting.idle_ms": _between(1_000, 86_400_000),
    "remoting.tls_mode": _text('"disabled", "permissive" or "enforcing"', lambda text: True),
    "remoting.tls_certificate_file": _path("an absolute path", size_max=4_000),
    "remoting.tls_key_file": _path("an absolute path", size_max=4_000),
    "remoting.members_ca_file": _path("an absolute path", size_max=4_000),
    "slaves.connections_max": _between(1, 16),
    "slaves.bytes_per_s": _between(MIB, 16 * 1024 * MIB),
    "grpc.members": _each(_MEMBER_PORT),
    "grpc.members_ca_file": _path("an absolute path", size_max=4_000),
    "grpc.connections_max": _between(8, 1_000_000),
    "grpc.users_max": _between(1, 100_000),
    "grpc.idle_ms": _between(1_000, 86_400_000),
    "grpc.memory_bytes_max": _between(256 * MIB, 16_384 * MIB),
    "grpc.tls_mode": _text('"disabled", "permissive" or "enforcing"', lambda text: True),
    "grpc.tls_certificate_file": _path("an absolute path", size_max=4_000),
    "grpc.tls_key_file": _path("an absolute path", size_max=4_000),
    "http.tls_certificate_file": _path("an absolute path", size_max=4_000),
    "http.tls_key_file": _path("an absolute path", size_max=4_000),
    "http.tokens_file": _path("an absolute path", size_max=4_000),
    "http.connections_max": _between(8, 10_000),
    "http.memory_bytes_max": _between(128 * MIB, 16_384 * MIB),
    "http.series_max": _between(10, 100_000),
    "http.console": _BOOLEAN,
    "http.members": _each(_MEMBER_URL),
    "http.mirror_bytes_per_s": _between(MIB, 16 * 1024 * MIB),
    "mirror.sources": _each(_SOURCE_URL),
    "mirror.token_file": _path("an absolute path", size_max=4_000),
    "mirror.ca_file": _path("an absolute path", size_max=4_000),
    "mirror.bytes_per_s": _between(MIB, 16 * 1024 * MIB),
    "topics.auto_create_topic_enable": _BOOLEAN,
    "topics.default_topic_queue_nums": _between(1, 1_024),
    "topics.auto_create_subscription_group": _BOOLEAN,
    "access.enabled": _BOOLEAN,
    "access.admin_over_clients": _BOOLEAN,
    "access.unix_users": _each(_UNIX_USER),
    "access.cluster_rights_max_age_s": _RIGHTS_AGE,
    "quotas.client_produce_bytes": _RATE,
    "quotas.client_produce_messages": _RATE,
    "quotas.client_consume_bytes": _RATE,
    "quotas.client_consume_messages": _RATE,
    "quotas.topic_produce_bytes": _RATE,
    "quotas.topic_produce_messages": _RATE,
    "quotas.topic_consume_bytes": _RATE,
    "quotas.topic_consume_messages": _RATE,
    "quotas.burst_ms": _between(1, 600_000),
    "transactions.transaction_timeout_ms": _between(1, 86_400_000),
    "transactions.transaction_check_interval_ms": _between(100, 86_400_000),
    "transactions.transaction_check_max": _between(1, 1_000_000),
    "sinks.staged_reserved_ms": _between(1_000, 31_622_400_000),
    "sinks.batch_reserved_ms": _between(60_000, 316_224_000_000),
    "groups.heartbeat_ms": _between(100, 600_000),
    "groups.member_expiry_ms": _between(300, 3_600_000),
    "groups.lock_expiry_ms": _between(300, 3_600_000),
    "limits.client_window_bytes": _between(FRAME_SIZE_MAX, 16 * 1024 * MIB),
    "limits.total_window_bytes": _between(FRAME_SIZE_MAX, 64 * 1024 * MIB),
    "limits.total_answers_bytes": _between(FRAME_SIZE_MAX, 64 * 1024 * MIB),
    "limits.total_unread_bytes": _between(2 * FRAME_SIZE_MAX, 64 * 1024 * MIB),
    "limits.connections_max": _between(1, 1_000_000),
    "limits.connections_per_address": _between(1, 1_000_000),
    "limits.sessions_max": _between(1, 1_000_000),
    "limits.sessions_per_address": _between(1, 1_000_000),
    "limits.creations_per_s": _between(0, 1_000_000),
    "limits.groups_per_client": _between(1, 4_096),
    "limits.producer_groups_max": _between(1, 10_000_000),
    "limits.producer_groups_per_address": _between(1, 10_000_000),
    "limits.unread_replies_bytes": _between(64 * 1024, 16 * 1024 * MIB),
    "limits.unread_replies_bytes_max": _between(MIB, 16 * 1024 * MIB),
    "limits.topics_max": _between(1, 10_000_000),
    "limits.groups_max": _between(1, 10_000_000),
    "limits.members_max": _between(1, 1_000_000),
    "limits.members_bytes": _between(MIB, 16 * 1024 * MIB),
    "limits.held_pulls_max": _between(1, 1_000_000),
    "limits.held_pulls_per_client": _between(1, 1_000_000),
    "limits.share_unsettled_per_group": _between(1, 1_000_000),
    "limits.share_unsettled_max": _between(1, 10_000_000),
    "limits.os_page_cache_busy_timeout_mills": _between(10, 600_000),
    "limits.put_lock_warn_ms": _between(1, 600_000),
    "limits.deduplication_memory_bytes": _between(4 * MIB, 16 * 1024 * MIB),
    "reads.max_transfer_bytes_on_message_in_memory": _between(1, 64 * MIB),
    "reads.max_transfer_count_on_message_in_memory": _between(1, 65_536),
    "reads.max_transfer_bytes_on_message_in_disk": _between(1, 64 * MIB),
    "reads.max_transfer_count_on_message_in_disk": _between(1, 65_536),
    "reads.access_message_in_memory_max_ratio": _between(0, 100),
    "reads.old_read_cache_bytes": _between(16 * MIB, 1024 * 1024 * MIB),
    "reads.old_read_bytes_per_s": _between(MIB, 16 * 1024 * MIB),
    "reads.enable_property_filter": _BOOLEAN,
    "retention.file_reserved_time": _between(1, 876_000),
    "retention.delete_when": _text("hours from 00 to 23 with ; between them", _are_hours),
    "retention.bytes_max": _AMOUNT,
    "retention.clean_above": _WATERMARK,
    "retention.force_above": _WATERMARK,
    "retention.refuse_above": _WATERMARK,
    "retention.force_clean": _text('"never", "archived" or "oldest"', lambda text: True),
    "retention.keep_groups": _each(_TOPIC_NAME),
    "retention.keep_for_members": _AMOUNT,
    "retention.archive_wait_hours": _between(0, 876_000),
    "retention.archive_wait_below": _WATERMARK,
    "retention.reserve_bytes": _between(MIB, 1024 * MIB),
    "cold.place": _text(
        "an absolute path, or an address as s3://BUCKET/PREFIX",
        lambda text: len(text) <= 4_000 and _PIECES.fullmatch(text) is not None,
    ),
    "cold.cache_dir": _path("an absolute path", size_max=4_000),
    "cold.cache_bytes": _between(16 * MIB, 64 * 1024 * 1024 * MIB),
    "cold.readers": _between(1, 64),
    "cold.pulls_max": _between(1, 1_024),
    "cold.pulls_per_client": _between(1, 1_024),
    "cold.wait_ms": _between(100, 300_000),
    "cold.refresh_s": _between(1, 86_400),
    "cold.memory_bytes_max": _between(512 * MIB, 65_536 * MIB),
    "receipts.key_file": _path("an absolute path", size_max=4_000),
    "receipts.behind_max_s": _between(1, 86_400),
    "supervision.restarts_max": _between(0, 1_000),
    "supervision.restart_window_s": _between(1, 86_400),
    "supervision.restart_pause_max_ms": _between(0, 600_000),
    "supervision.beat_timeout_ms": _between(1_000, 600_000),
    "supervision.stop_timeout_ms": _between(100, 600_000),
    "supervision.flush_age_max_ms": _between(100, 600_000),
    "supervision.ready_within_ms": _between(1_000, 600_000),
    "log.level": _text(", ".join(LOG_LEVELS), lambda text: text in LOG_LEVELS),
    "log.format": _text('"text" or "json"', lambda text: True),
}
"""One rule for every setting; the closed lists of ``StrEnum`` types are checked by the type."""
