"""Alerts of a cluster: when each is raised, how grave it is, and what to do then.

``alert_rules.py`` makes Prometheus' rules of them, and the sections of docs/operating/alerts.md.
In an expression ``[$15m]`` is a window, ``$15m`` elsewhere so many seconds, and ``$age2d`` the age
of something that is made by the day; a generator option makes all of them shorter, for a test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

LEADS = "and on (job, instance) ledgermq_leads == 1"
"""Values that all members have are told once."""

OF_GROUP = "on (job, instance) group_left (cluster, broker) ledgermq_node_info"
"""Gives a node's values the names of its group, of which no series but one has them."""


NO_MIRROR = "unless on (job, instance) ledgermq_raft_mirror_lag_seconds > 0"
"""Leaves out mirrors of another site's group, which lead nothing."""


class Severity(StrEnum):
    """``critical`` wakes somebody; ``warning`` is looked at on the same day."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    Attributes:
        wait: for how long ``expr`` has to hold; a duration of Prometheus'.
        summary, description: templates of Prometheus'.
        todo: what it means and what to do, Markdown of docs/operating.
        waits_by_age: ``wait`` is one of what is made by the day.
    """

    name: str
    severity: Severity
    wait: str
    expr: str
    summary: str
    description: str
    todo: str
    waits_by_age: bool = False

    @property
    def anchor(self) -> str:
        """That of its section."""
        words = re.findall("[A-Z][a-z]*", self.name.removeprefix("Ledgermq"))
        return "-".join(words).lower()

    @property
    def title(self) -> str:
        """Headline of its section."""
        return self.anchor.replace("-", " ").capitalize()


_CRITICAL, _WARNING = Severity.CRITICAL, Severity.WARNING
_AT = "{{ $labels.instance }}"
_GROUP = "{{ $labels.cluster }}/{{ $labels.broker }}"

_OF_NODES = (
    Alert(
        "LedgermqNoMajority", _CRITICAL, "30s",
        'ledgermq_not_ready_reason{code="no_majority"} == 1',
        f"{_AT} hears of no majority",
        "It leads nothing and takes no message; what is stored can be read.",
        "Fewer than half of the members can be reached, from this one at least. Messages are"
        " refused where"
        " all say so. [The majority is lost](what-to-do.md#the-majority-is-lost); where one"
        " member alone"
        " says it, the network between it and the others.",
    ),
    Alert(
        "LedgermqNoLeader", _CRITICAL, "30s",
        f"max by (job, cluster, broker) ((ledgermq_leads {NO_MIRROR}) * {OF_GROUP}) == 0",
        f"nobody leads {_GROUP}",
        "Producers and consumers get no answer.",
        "Members can be asked, and none of them leads."
        " [Elections do not settle](what-to-do.md#elections-do-not-settle).",
    ),
    Alert(
        "LedgermqNodeDown", _CRITICAL, "1m",
        'up{job="ledgermq"} == 0',
        f"{_AT} cannot be scraped",
        "The node, its host or its observer is down, or the network to it.",
        "While one of three is down, the loss of another one stops the group: leave the other two"
        " alone."
        " [A node is lost](what-to-do.md#a-node-is-lost). Where `/health/live` answers, it is the"
        " scrape:"
        " certificate, token or `http.connections_max` ([metrics.md](metrics.md)).",
    ),
    Alert(
        "LedgermqNodeNotReady", _WARNING, "2m",
        "ledgermq_ready == 0",
        f"{_AT} does not serve",
        "ledgermq status says why; ledgermq_not_ready_reason has the codes.",
        "The node runs and does not serve. Each code has its line in"
        " [watching.md](watching.md#health), and `ledgermq status` says which page helps.",
    ),
    Alert(
        "LedgermqNodeRestarts", _WARNING, "0s",
        "changes(ledgermq_start_time_seconds[$1h]) > 2",
        f"{_AT} was started {{{{ $value }}}} times within an hour",
        "systemd starts it again after each failure.",
        "The journal says of which exit status it ended, each time."
        " [A process dies again and again](what-to-do.md#a-process-dies-again-and-again).",
    ),
    Alert(
        "LedgermqProcessRestarts", _WARNING, "0s",
        "increase(ledgermq_process_starts_total[$15m]) > 2",
        f"{{{{ $labels.process }}}} of {_AT} dies again and again",
        "It is started again each time; what it does stands still meanwhile.",
        "The journal has the reason of each death."
        " [A process dies again and again](what-to-do.md#a-process-dies-again-and-again).",
    ),
    Alert(
        "LedgermqPlainKernels", _WARNING, "15m",
        "ledgermq_kernels_compiled == 0",
        f"{_AT} runs without compiled kernels",
        "It works, and takes and gives a small part of the messages a second that it could.",
        "The program was installed where there was no C compiler and no wheel of the platform:"
        " `ledgermq doctor` and the node's log say so, too. Install the Debian package, a wheel of"
        " the platform, or a C compiler and then the program again, and restart one node after"
        " the other ([new-version.md](new-version.md)).",
    ),
    Alert(
        "LedgermqElectionsTooMany", _WARNING, "0s",
        "increase(ledgermq_raft_elections_total[$15m]) > 10",
        f"{_AT} has made {{{{ $value | humanize }}}} terms and votes durable within 15 minutes",
        "Each election is a pause for producers and consumers.",
        "A quiet group has none for weeks; an upgrade has a few."
        " [Elections do not settle](what-to-do.md#elections-do-not-settle).",
    ),
    Alert(
        "LedgermqMemberSilent", _WARNING, "30s",
        "ledgermq_member_silent_seconds > $30s",
        "member {{ $labels.member }} is not heard of",
        f"{_AT} leads, and has not heard of it for {{{{ $value | humanizeDuration }}}}.",
        "It is down, or cut off from its leader. [A node is lost](what-to-do.md#a-node-is-lost).",
    ),
    Alert(
        "LedgermqMemberBehind", _WARNING, "5m",
        "ledgermq_member_behind_seconds > $1m",
        "member {{ $labels.member }} is {{ $value | humanizeDuration }} behind",
        f"{_AT} leads; should it be lost, this member has not what it needs to lead.",
        "It follows more slowly than messages come, or is being filled"
        " ([group.md](group.md#a-member-that-was-away)). Look at its disk and network with"
        " `ledgermq doctor`"
        " there; as long as it lags, the loss of another member may stop the group.",
    ),
    Alert(
        "LedgermqLeansOnWitness", _WARNING, "1m",
        "max by (job, instance) (ledgermq_raft_leans_on_witness) == 1",
        f"{_AT} leads, and leans on its witness without messages",
        "What is acknowledged now is with fewer members than usual; one more loss may lose it.",
        "A member with messages is away or far behind: bring it back, or replace it"
        " ([group.md](group.md#two-sites-and-a-third-vote)). It ends by itself once that one has"
        " what it lacks. Leave the other members alone until then.",
    ),
    Alert(
        "LedgermqMirrorBehind", _WARNING, "1m",
        "ledgermq_raft_mirror_lag_seconds > $5m",
        f"the mirror {_AT} is {{{{ $value | humanizeDuration }}}} behind its source",
        "What the source has stored in this time would be lost with it.",
        "`ledgermq mirror status` there says why: no member of the source answers or hears a"
        " leader, the line or `bytes_per_s` gives less than the source stores, or the mirror's"
        " disk does ([second-site.md](second-site.md#how-far-it-is)).",
    ),
    Alert(
        "LedgermqColdStorageAway", _WARNING, "5m",
        "ledgermq_cold_away_since > 0",
        f"the place of sealed pieces refuses {_AT}",
        "Consumers of messages that the log has no more wait for it.",
        "The log says the reason (`cold storage away`): the network, the bucket's keys, a folder"
        " that is not mounted. Consumers go on by themselves once it is back, and none has passed"
        " anything over ([cold-storage.md](cold-storage.md#when-the-log-has-gone)).",
    ),
    Alert(
        "LedgermqSealingStandsStill", _WARNING, "1d",
        "changes(ledgermq_cold_sealed_position[$1d]) == 0 and on (job, instance)"
        ' (ledgermq_log_position_bytes{cursor="committed"}'
        " > on (job, instance) ledgermq_cold_sealed_position)",
        f"nothing was sealed for a day of the log of {_AT}",
        "Retention waits for it, and the disk fills up.",
        "Run `ledgermq piece seal`, and see why its timer does not. `ledgermq status` says what the"
        " pieces lack, and the log whether one of them is not what was sealed"
        " ([cold-storage.md](cold-storage.md#what-waits-for-pieces)).",
        waits_by_age=True,
    ),
    Alert(
        "LedgermqReceiptsNotMade", _WARNING, "5m",
        "increase(ledgermq_receipts_failed_total[$5m]) > 0",
        f"checkpoints of receipts fail on {_AT}",
        "What comes to topics with receipts has none, and retention may delete it before.",
        "The log says the reason (`checkpoint of receipts not made`): a damaged place of the log,"
        " or too many queues ([receipts.md](receipts.md#when-something-is-wrong)).",
    ),
    Alert(
        "LedgermqReceiptsLate", _WARNING, "10m",
        "increase(ledgermq_receipts_hurried_total[$10m]) > 0",
        f"receipts take processors from the others on {_AT}",
        "Messages have waited for their receipts as long as they may, and producers pay for them.",
        "The processors of the node are full, and have been for longer than `receipts.behind_max_s`"
        " ([receipts.md](receipts.md#what-there-are-receipts-of)). Give it more of them, or fewer"
        " topics receipts.",
    ),
    Alert(
        "LedgermqVersionTooOld", _CRITICAL, "30s",
        "max by (job, instance) (ledgermq_broker_level_needed) > 0",
        f"{_AT} lacks feature level {{{{ $value }}}}, which the log needs",
        "It stores and replicates, and its tables stand still: it serves nobody.",
        "Install the group's version there, and restart the node"
        " ([new-version.md](new-version.md#feature-levels)).",
    ),
    Alert(
        "LedgermqTablesHeldUp", _CRITICAL, "30s",
        "max by (job, instance) (ledgermq_broker_tables_held_up) == 1",
        f"tables of {_AT} are held up",
        "A damaged place of the log, or a command of a newer version, stands before them.",
        "It reads what it has, and cannot lead. One that is alone takes no messages once it was"
        " started anew: behind that place may stand that a topic was deleted. The journal names it:"
        " [a disk that turns bits](what-to-do.md#a-disk-that-lies-or-turns-bits), or"
        " [a newer version](new-version.md#feature-levels).",
    ),
    Alert(
        "LedgermqFeatureLevelWaits", _WARNING, "7d",
        f"max by (job, instance) (ledgermq_broker_level_to_enable) > 0 {LEADS}",
        f"feature level {{{{ $value }}}} waits to be enabled at {_AT}",
        "All members know it; until then what is new is not in force.",
        "The upgrade was not finished: `ledgermq cluster features`"
        " ([new-version.md](new-version.md#feature-levels)).",
        waits_by_age=True,
    ),
)  # fmt: skip

_OF_DISKS = (
    Alert(
        "LedgermqDiskFull", _CRITICAL, "0s",
        "ledgermq_disk_full == 1",
        f"the disk of {_AT} is full",
        "It takes no messages; what is stored can be read.",
        "[The disk is full](what-to-do.md#the-disk-is-full).",
    ),
    Alert(
        "LedgermqDiskFillsUp", _WARNING, "10m",
        "predict_linear(ledgermq_disk_free_bytes[$1h], $1d) < 0"
        " and ledgermq_disk_free_bytes < 0.4 * ledgermq_disk_size_bytes",
        f"the disk of {_AT} is full within a day",
        "By the rate at which it filled up in the last hour.",
        "What keeps old files is `ledgermq_retention_held`; what is deleted when, and what to"
        " change:"
        " [disk-space.md](disk-space.md#what-is-deleted).",
    ),
    Alert(
        "LedgermqDiskSick", _CRITICAL, "0s",
        "ledgermq_raft_disk_sick == 1",
        f"the disk of {_AT} hangs",
        "Syncs, or the writer, have not come back; another member leads if one can.",
        "[A disk is sick](what-to-do.md#a-disk-is-sick).",
    ),
    Alert(
        "LedgermqSyncSlow", _WARNING, "10m",
        "histogram_quantile(0.99,"
        " sum by (job, instance, le) (rate(ledgermq_sync_seconds_bucket[$5m]))) > 0.5",
        f"one of a hundred syncs of {_AT} takes {{{{ $value | humanizeDuration }}}}",
        "Producers wait for the syncs of a majority.",
        "`ledgermq doctor` measures the disk without the node's load"
        " ([doctor.md](doctor.md)); [a disk is sick](what-to-do.md#a-disk-is-sick) says where to"
        " look.",
    ),
    Alert(
        "LedgermqAcknowledgementSlow", _WARNING, "10m",
        "histogram_quantile(0.99,"
        " sum by (job, instance, le) (rate(ledgermq_acknowledgement_seconds_bucket[$5m]))) > 2",
        f"one of a hundred acknowledgements of {_AT} takes {{{{ $value | humanizeDuration }}}}",
        "From the put to the answer, at the leader.",
        "Slow syncs here (`ledgermq_sync_seconds`) or at the followers, members that are behind,"
        " or more"
        " load than the machine takes ([capacity.md](capacity.md)).",
    ),
    Alert(
        "LedgermqPutLockHeld", _CRITICAL, "0s",
        "ledgermq_put_lock_held_seconds > $5s",
        f"a put hangs at {_AT}",
        "It has lasted for {{ $value | humanizeDuration }}; nobody else can put meanwhile.",
        "The writer waits for the disk, or gets no processor."
        " [A disk is sick](what-to-do.md#a-disk-is-sick).",
    ),
    Alert(
        "LedgermqLogDamaged", _CRITICAL, "0s",
        "sum by (job, instance) (ledgermq_damaged_places) > 0"
        " or max by (job, instance) (ledgermq_raft_lacks_entries) == 1",
        f"the log of {_AT} is damaged",
        "In a group it is mended from another member, and the alert ends by itself.",
        "[A disk that lies or turns bits](what-to-do.md#a-disk-that-lies-or-turns-bits)."
        " What is mended still says something of the disk.",
    ),
    Alert(
        "LedgermqDispatchBehind", _WARNING, "5m",
        "ledgermq_log_not_dispatched_bytes > 67108864",
        f"dispatch of {_AT} is {{{{ $value | humanize1024 }}}}B behind",
        "What is not dispatched is not seen by consumers.",
        "The dispatcher gets too little of processor or disk, waits for space"
        " (`ledgermq_dispatch_waits_for_space`), or hangs: `ledgermq status`."
        " [capacity.md](capacity.md), [disk-space.md](disk-space.md#a-full-disk).",
    ),
)  # fmt: skip

_OF_MESSAGES = (
    Alert(
        "LedgermqConsumerLagOld", _WARNING, "5m",
        f"ledgermq_consumer_lag_seconds > $15m {LEADS}",
        "{{ $labels.group }} is {{ $value | humanizeDuration }} behind in {{ $labels.topic }}",
        "The age of the oldest message that it has not consumed.",
        "Its consumers are away, too few, or one message holds a queue up: `ledgermq group show`"
        " ([consumer-groups.md](consumer-groups.md)).",
    ),
    Alert(
        "LedgermqConsumerLagGrows", _WARNING, "30m",
        "ledgermq_consumer_lag_messages > 1000 and deriv(ledgermq_consumer_lag_messages[$15m]) > 0"
        f" {LEADS}",
        "{{ $labels.group }} falls behind in {{ $labels.topic }}: {{ $value | humanize }} wait",
        "More come than it consumes, for half an hour.",
        "It needs more consumers, up to one a queue, or more queues"
        " ([consumer-groups.md](consumer-groups.md#how-queues-are-shared)).",
    ),
    Alert(
        "LedgermqDeadLetters", _WARNING, "0s",
        "sum by (job, instance) (increase(ledgermq_broker_messages_dead_total[$15m])) > 0",
        f"messages became dead letters at {_AT}",
        "{{ $value | humanize }} within 15 minutes: consumers gave them back as often as they may.",
        "`ledgermq dlq list` says which, and `replay` brings them back once the consumer is mended"
        " ([retries.md](retries.md#dead-letters)).",
    ),
    Alert(
        "LedgermqTransactionsStuck", _WARNING, "0s",
        "sum by (job, instance) (min_over_time(ledgermq_broker_half_messages_waiting[$30m])) > 0"
        " and on (job, instance)"
        " sum by (job, instance) (increase(ledgermq_broker_transactions_checked_total[$30m])) > 0",
        f"transactions have no end at {_AT}",
        "{{ $value }} wait, and their producers are asked about them.",
        "Producers that began them are away, or their listener does not know the outcome:"
        " `ledgermq transaction list` ([transactions.md](transactions.md#what-waits)).",
    ),
    Alert(
        "LedgermqPoisonMessages", _WARNING, "0s",
        "sum by (job, instance) (increase(ledgermq_broker_poison_messages_total[$1h])) > 0",
        f"{_AT} passed over messages of which nothing could be made",
        "The journal names each once (POISON_MESSAGE).",
        "A message that its service or a filter cannot read; the others go on. Look at it with"
        " `ledgermq message show`, and at the producer that made it"
        " ([watching.md](watching.md#counters)).",
    ),
    Alert(
        "LedgermqClientsDenied", _WARNING, "0s",
        "sum by (job, instance) (increase(ledgermq_writer_denied_total[$15m]))"
        " + sum by (job, instance) (increase(ledgermq_broker_denied_total[$15m])) > 10",
        f"clients are refused for want of a right at {_AT}",
        "{{ $value | humanize }} requests within 15 minutes.",
        "A user lacks a right that it needs, or somebody tries what is not his: the journal has"
        " the names"
        " ([access.md](access.md)).",
    ),
    Alert(
        "LedgermqClientsThrottled", _WARNING, "15m",
        "sum by (job, instance) (rate(ledgermq_writer_throttled_total[$5m]))"
        " + sum by (job, instance) (rate(ledgermq_broker_throttled_total[$5m])) > 1",
        f"clients meet their quotas at {_AT}",
        "{{ $value | humanize }} requests a second are refused.",
        "They come again by themselves, later. Whether the quota or the client is wrong:"
        " [quotas.md](quotas.md).",
    ),
    Alert(
        "LedgermqRequestsFailed", _WARNING, "0s",
        "sum by (job, instance) (increase(ledgermq_broker_requests_failed_total[$1h])) > 0",
        f"requests met a bug at {_AT}",
        "The node goes on; the journal has the traceback.",
        "Please report the traceback. [Exit status"
        " 3](what-to-do.md#a-process-dies-again-and-again) is"
        " the same for a whole process.",
    ),
)  # fmt: skip

_OF_UPKEEP = (
    Alert(
        "LedgermqCertificateEnds", _WARNING, "0s",
        "min by (job, instance, setting)"
        " (ledgermq_certificate_expiry_timestamp_seconds) - time() < 1209600",
        f"the certificate of {{{{ $labels.setting }}}} at {_AT} ends in"
        f" {{{{ $value | humanizeDuration }}}}",
        "Clients refuse the node then.",
        "Put a new one in its place, and `systemctl reload ledgermq`"
        " ([security.md](security.md#to-change-them-while-messages-flow)).",
    ),
    Alert(
        "LedgermqCertificateEndsNow", _CRITICAL, "0s",
        "min by (job, instance, setting)"
        " (ledgermq_certificate_expiry_timestamp_seconds) - time() < 172800",
        f"the certificate of {{{{ $labels.setting }}}} at {_AT} ends within two days, or has ended",
        "Clients refuse the node then.",
        "As above: put a new one in its place, and `systemctl reload ledgermq`"
        " ([security.md](security.md#to-change-them-while-messages-flow)).",
    ),
    Alert(
        "LedgermqBackupOld", _WARNING, "0s",
        "time() - max by (job, cluster, broker)"
        f" (ledgermq_backup_timestamp_seconds * {OF_GROUP}) > $age2d",
        f"the last backup of {_GROUP} is {{{{ $value | humanizeDuration }}}} old",
        "By what its members know of; one backup of any of them counts.",
        "Look at what makes them, and make one: `ledgermq backup create` ([backup.md](backup.md))."
        " Where none are wanted, leave this alert out.",
    ),
    Alert(
        "LedgermqBackupStreamBehind", _WARNING, "0s",
        "time() - max by (job, cluster, broker)"
        f" (ledgermq_backup_stream_timestamp_seconds * {OF_GROUP}) > $2m",
        f"the backup stream of {_GROUP} is {{{{ $value | humanizeDuration }}}} behind",
        "Of several streams the best one counts. Nobody can go back to a moment that is later.",
        "`systemctl status ledgermq-backup-stream` on the host that streams; what it waits for is"
        " in its journal ([backup.md](backup.md#any-point-in-time)). Where none is wanted any more,"
        " delete `ledgermq/last-stream` in the store.",
    ),
    Alert(
        "LedgermqBackupMissing", _WARNING, "2d",
        "count by (job, cluster, broker) (ledgermq_node_info) unless on (job, cluster, broker)"
        f" max by (job, cluster, broker) (ledgermq_backup_timestamp_seconds * {OF_GROUP})",
        f"nobody has made a backup of {_GROUP}",
        "No member has noted one.",
        "Replication repeats mistakes faithfully: [backup.md](backup.md). Where none are wanted,"
        " leave this"
        " alert out.",
        waits_by_age=True,
    ),
    Alert(
        "LedgermqArchiveOld", _WARNING, "0s",
        f"time() - ledgermq_archive_timestamp_seconds > $age2d {LEADS}",
        "archive {{ $labels.archive }} has not gone on for {{ $value | humanizeDuration }}",
        "Retention waits for it, and the disk fills up.",
        "Run its job, or wait for it no more: `ledgermq archive remove`"
        " ([disk-space.md](disk-space.md#archives-that-retention-waits-for)).",
    ),
    Alert(
        "LedgermqClusterRightsTooOld", _CRITICAL, "30s",
        "max by (job, instance) (ledgermq_broker_cluster_rights_too_old) == 1",
        f"{_AT} refuses the users of its cluster",
        "The group has not heard the home of the cluster for longer than"
        " access.cluster_rights_max_age_s.",
        "`ledgermq cluster status`, asked of the group's leader, says why the home gives nothing;"
        " [rights that are too old](several-groups.md#rights-that-are-too-old).",
    ),
    Alert(
        "LedgermqClusterHomeSilent", _WARNING, "1m",
        "max by (job, instance) (ledgermq_broker_cluster_current_at) > 0"
        " and time() - max by (job, instance) (ledgermq_broker_cluster_current_at) / 1000 > $2m",
        f"the group of {_AT} hears nothing of its cluster's home",
        "It serves by the users, rights and quotas that it has.",
        "`ledgermq cluster status`, asked of the group's leader, says why the home gives nothing;"
        " one that is lost is [replaced](several-groups.md#another-home).",
    ),
    Alert(
        "LedgermqScrapesFail", _WARNING, "0s",
        "increase(ledgermq_observer_scrapes_failed_total[$15m]) > 3"
        " or ledgermq_consumer_lag_look_age_seconds > $10m",
        f"the figures of {_AT} are incomplete or old",
        "Alerts that go by them may be missing.",
        "The observer's lines in the journal say why a scrape failed; where there are tens of"
        " thousands of"
        " pairs of group and topic, a shorter scrape interval makes rounds shorter"
        " ([metrics.md](metrics.md#metrics)).",
    ),
)  # fmt: skip

ALERTS = (*_OF_NODES, *_OF_DISKS, *_OF_MESSAGES, *_OF_UPKEEP)
"""All alerts, in the order of the document."""

GROUPS = {
    "nodes": _OF_NODES,
    "disks": _OF_DISKS,
    "messages": _OF_MESSAGES,
    "upkeep": _OF_UPKEEP,
}
"""The same by what they are about."""
