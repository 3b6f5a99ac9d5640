"""Settings of one node, typed and checked; ``settings_file`` reads them from TOML.

Names follow RocketMQ's in snake case where the meaning is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class AckMode(StrEnum):
    """What an acknowledgement means (docs/architecture.md, Acknowledgements)."""

    MAJORITY_FSYNC = "majority-fsync"
    MAJORITY_MEMORY = "majority-memory"
    LOSSY_LEADER = "lossy-leader"


class LogKind(StrEnum):
    """Which of RocketMQ's two logs the store keeps."""

    DLEDGER = "dledger"
    COMMITLOG = "commitlog"

    @property
    def has_terms(self) -> bool:
        """Whether its entries have terms, and other members copies of them."""
        return self is LogKind.DLEDGER


class ClusterState(StrEnum):
    """What a member without messages of its own takes part in, at its first start."""

    NEW = "new"
    EXISTING = "existing"


class TlsMode(StrEnum):
    """Who may connect to the port of RocketMQ's clients (RocketMQ's ``tls.server.mode``)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class LogFormat(StrEnum):
    """How lines are logged."""

    TEXT = "text"
    JSON = "json"


class ForceClean(StrEnum):
    """What may be deleted before its time when the disk gets full."""

    NEVER = "never"
    ARCHIVED = "archived"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSection:
    """Who this node is (RocketMQ: brokerName, dLegerGroup, dLegerSelfId, brokerIP1, …)."""

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = "broker-a"
    group: str = "broker-a"
    self_id: str = "n0"
    peers: tuple[str, ...] = ()
    initial_cluster_state: ClusterState = ClusterState.NEW
    witness: bool = False
    broker_ip: str = "127.0.0.1"
    listen_port: int = 10911


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSection:
    """How messages are stored; a size of ``None`` is that of the files there, else the default.

    ``leave_behind`` has names of ``model/names/strange_uses.py``.
    """

    path_root_dir: Path = Path("/var/lib/ledgermq")
    log: LogKind = LogKind.DLEDGER
    mapped_file_size_commit_log: int | None = None
    mapped_file_size_consume_queue: int | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    max_message_size: int = 4_194_304
    message_index_enable: bool = True
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    flush_interval_ms: int = 500
    checkpoint_interval_ms: int = 2_000
    leave_behind: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSection:
    """How the nodes of a group agree; a ``keys_dir`` of ``None`` is ``ROOT/ledgermq/keys``."""

    heartbeat_ms: int = 100
    election_timeout_min_ms: int = 400
    election_timeout_max_ms: int = 800
    in_flight_bytes: int = 8 * 1024 * 1024
    in_flight_frames: int = 32
    frame_bytes: int = 1024 * 1024
    catch_up_bytes_per_s: int = 64 * 1024 * 1024
    shipping_bytes_per_s: int = 100 * 1024 * 1024
    transfer_timeout_ms: int = 2_000
    disk_sick_after_ms: int = 5_000
    preferred_leaders: tuple[str, ...] = ()
    curve: bool = True
    keys_dir: Path | None = None
    direct: bool = True
    direct_port: int = 0
    direct_writers: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubSection:
    """How the log is read again in the background; a rate of 0 leaves that to the readers."""

    rate_bytes_per_s: int = 2 * 1024 * 1024
    every_s: int = 604_800


@dataclass(frozen=True, slots=True, kw_only=True)
class AckSection:
    """When a send is acknowledged."""

    mode: AckMode = AckMode.MAJORITY_FSYNC


VIP_DISTANCE = 2
"""RocketMQ's clients take this from a broker's port (``MixAll.brokerVIPChannel``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenSection:
    """Sockets for clients: always ipc; ``produce`` and ``consume`` are ``tcp://`` endpoints.

    ``remoting`` and ``name_server`` are ``HOST:PORT`` for RocketMQ's clients, ``vip_channel`` is
    whether those find the node at the port of ``remoting`` minus two as well. ``http`` is
    ``HOST:PORT``, or ``unix`` for a socket in ``runtime_dir``; ``grpc`` is ``HOST:PORT`` for the
    gRPC clients of RocketMQ 5, and ``ha`` for slaves of RocketMQ's, which get the log there.
    """

    runtime_dir: Path = Path("/run/ledgermq")
    produce: str | None = None
    consume: str | None = None
    remoting: str | None = None
    name_server: str | None = None
    vip_channel: bool = True
    http: str | None = None
    grpc: str | None = None
    ha: str | None = None
    socket_mode: int = 0o660
    curve_secret_file: Path | None = None
    trusted_network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingSection:
    """RocketMQ's clients; ``addresses`` are those of the members, as ``n0-10.0.0.1:10911``.

    ``name_servers`` are RocketMQ's own, as ``10.0.0.9:9876``, or nodes of other groups, at which
    the node registers, a name standing for all of its addresses; from the networks of
    ``registrations_from`` it takes registrations.
    ``processes`` of their own serve the port when they are more than one, else the broker does.
    By ``members_ca_file`` a follower knows the leader, to which it hands on what came over TLS.
    """

    processes: int = 1
    addresses: tuple[str, ...] = ()
    name_servers: tuple[str, ...] = ()
    name_servers_ca_file: Path | None = None
    registrations_from: tuple[str, ...] = ()
    connections_max: int = 20_000
    idle_ms: int = 120_000
    tls_mode: TlsMode = TlsMode.PERMISSIVE
    tls_certificate_file: Path | None = None
    tls_key_file: Path | None = None
    members_ca_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcSection:
    """RocketMQ 5's gRPC clients (``listen.grpc``), by a process of its own; ``members`` are where
    members of the group listen for them, as ``n1=10.0.0.2:8081``.

    By ``members_ca_file`` a follower knows the leader, to which it hands calls on; without it, it
    speaks to the leader in clear.
    """

    members: tuple[str, ...] = ()
    members_ca_file: Path | None = None
    connections_max: int = 5_000
    users_max: int = 512
    idle_ms: int = 120_000
    memory_bytes_max: int = 1024 * 1024 * 1024
    tls_mode: TlsMode = TlsMode.PERMISSIVE
    tls_certificate_file: Path | None = None
    tls_key_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSection:
    """HTTP (``listen.http``), by a process of its own; ``members`` are where other members of the
    group answer it, as ``n1=https://10.0.0.2:9464``.
    """

    tls_certificate_file: Path | None = None
    tls_key_file: Path | None = None
    tokens_file: Path | None = None
    connections_max: int = 128
    memory_bytes_max: int = 512 * 1024 * 1024
    series_max: int = 1_000
    console: bool = True
    members: tuple[str, ...] = ()
    mirror_bytes_per_s: int = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SlavesSection:
    """Slaves of RocketMQ's (``listen.ha``), by a process of its own; ``bytes_per_s`` is for all of
    them together.
    """

    connections_max: int = 4
    bytes_per_s: int = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSection:
    """What group of another site this node copies; with ``sources`` it is a mirror.

    ``sources`` are where members of that group answer HTTP, as ``https://10.0.0.1:9464``;
    ``token_file`` has the token of the kind ``mirror`` that they know, and ``ca_file`` who vouches
    for their certificates, when the system does not know it.
    """

    sources: tuple[str, ...] = ()
    token_file: Path | None = None
    ca_file: Path | None = None
    bytes_per_s: int = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsSection:
    """Creation of topics and groups on first use (the same names as RocketMQ's)."""

    auto_create_topic_enable: bool = True
    default_topic_queue_nums: int = 8
    auto_create_subscription_group: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSection:
    """Who may do what; ``unix_users`` tell users of the machine's accounts, as ``app=orders``."""

    enabled: bool = False
    admin_over_clients: bool = False
    unix_users: tuple[str, ...] = ()
    cluster_rights_max_age_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasSection:
    """What every client and topic may send and read a second that has no quota of its own."""

    client_produce_bytes: int = 0
    client_produce_messages: int = 0
    client_consume_bytes: int = 0
    client_consume_messages: int = 0
    topic_produce_bytes: int = 0
    topic_produce_messages: int = 0
    topic_consume_bytes: int = 0
    topic_consume_messages: int = 0
    burst_ms: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsSection:
    """When producers are asked about half messages (RocketMQ's transactionTimeOut and others)."""

    transaction_timeout_ms: int = 6_000
    transaction_check_interval_ms: int = 60_000
    transaction_check_max: int = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class SinksSection:
    """How long the batches of sinks are remembered, and what was staged for them."""

    staged_reserved_ms: int = 86_400_000
    batch_reserved_ms: int = 2_592_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSection:
    """When consumers that share the queues of a group count as gone."""

    heartbeat_ms: int = 3_000
    member_expiry_ms: int = 15_000
    lock_expiry_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSection:
    """Bounds that protect the node from its clients."""

    client_window_bytes: int = 64 * 1024 * 1024
    total_window_bytes: int = 256 * 1024 * 1024
    total_answers_bytes: int = 256 * 1024 * 1024
    total_unread_bytes: int = 256 * 1024 * 1024
    connections_max: int = 10_000
    connections_per_address: int = 2_000
    sessions_max: int = 10_000
    sessions_per_address: int = 2_000
    topics_max: int = 100_000
    groups_max: int = 20_000
    creations_per_s: int = 100
    groups_per_client: int = 1_024
    producer_groups_max: int = 10_000
    producer_groups_per_address: int = 4_096
    unread_replies_bytes: int = 8 * 1024 * 1024
    unread_replies_bytes_max: int = 64 * 1024 * 1024
    members_max: int = 10_000
    members_bytes: int = 64 * 1024 * 1024
    held_pulls_max: int = 10_000
    held_pulls_per_client: int = 2_048
    share_unsettled_per_group: int = 100_000
    share_unsettled_max: int = 1_000_000
    os_page_cache_busy_timeout_mills: int = 1_000
    put_lock_warn_ms: int = 500
    deduplication_memory_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadsSection:
    """How much one answer to a reader may hold, and what old reads may take (RocketMQ's names)."""

    max_transfer_bytes_on_message_in_memory: int = 4 * 1024 * 1024
    max_transfer_count_on_message_in_memory: int = 65_536
    max_transfer_bytes_on_message_in_disk: int = 1024 * 1024
    max_transfer_count_on_message_in_disk: int = 4_096
    access_message_in_memory_max_ratio: int = 40
    old_read_cache_bytes: int = 256 * 1024 * 1024
    old_read_bytes_per_s: int = 100 * 1024 * 1024
    enable_property_filter: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSection:
    """What is deleted when, and when the disk counts as full; amounts as in ``amounts``."""

    file_reserved_time: int = 72
    delete_when: str = "04"
    bytes_max: str | None = None
    clean_above: str = "75%"
    force_above: str = "85%"
    refuse_above: str = "90%"
    force_clean: ForceClean = ForceClean.NEVER
    keep_groups: tuple[str, ...] = ()
    keep_for_members: str = "1GiB"
    archive_wait_hours: int = 72
    archive_wait_below: str = "80%"
    reserve_bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdSection:
    """Messages that the log has no more, from sealed pieces, by a process of its own; ``place`` is
    the folder or the prefix of a bucket that they are in, a ``cache_dir`` of ``None`` is
    ``ROOT/ledgermq/cold``.
    """

    place: str | None = None
    cache_dir: Path | None = None
    cache_bytes: int = 1024 * 1024 * 1024
    readers: int = 4
    pulls_max: int = 64
    pulls_per_client: int = 32
    wait_ms: int = 10_000
    refresh_s: int = 300
    memory_bytes_max: int = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptsSection:
    """Receipts of messages: ``key_file`` has the secret key that checkpoints are signed with, the
    same on all members; without it there are none, and no process for them. That process has what
    processors leave over, until a message has waited for ``behind_max_s``.
    """

    key_file: Path | None = None
    behind_max_s: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionSection:
    """How the supervisor treats its children."""

    restarts_max: int = 5
    restart_window_s: int = 60
    restart_pause_max_ms: int = 30_000
    beat_timeout_ms: int = 5_000
    stop_timeout_ms: int = 10_000
    flush_age_max_ms: int = 10_000
    ready_within_ms: int = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """What is logged."""

    level: str = "INFO"
    format: LogFormat = LogFormat.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of one node; one TOML table a section."""

    node: NodeSection = field(default_factory=NodeSection)
    store: StoreSection = field(default_factory=StoreSection)
    raft: RaftSection = field(default_factory=RaftSection)
    scrub: ScrubSection = field(default_factory=ScrubSection)
    ack: AckSection = field(default_factory=AckSection)
    listen: ListenSection = field(default_factory=ListenSection)
    remoting: RemotingSection = field(default_factory=RemotingSection)
    grpc: GrpcSection = field(default_factory=GrpcSection)
    slaves: SlavesSection = field(default_factory=SlavesSection)
    http: HttpSection = field(default_factory=HttpSection)
    mirror: MirrorSection = field(default_factory=MirrorSection)
    topics: TopicsSection = field(default_factory=TopicsSection)
    access: AccessSection = field(default_factory=AccessSection)
    quotas: QuotasSection = field(default_factory=QuotasSection)
    transactions: TransactionsSection = field(default_factory=TransactionsSection)
    sinks: SinksSection = field(default_factory=SinksSection)
    groups: GroupsSection = field(default_factory=GroupsSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    reads: ReadsSection = field(default_factory=ReadsSection)
    retention: RetentionSection = field(default_factory=RetentionSection)
    cold: ColdSection = field(default_factory=ColdSection)
    receipts: ReceiptsSection = field(default_factory=ReceiptsSection)
    supervision: SupervisionSection = field(default_factory=SupervisionSection)
    log: LogSection = field(default_factory=LogSection)
