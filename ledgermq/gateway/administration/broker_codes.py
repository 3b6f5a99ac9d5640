"""Codes about the broker: settings, figures, clean-up, and who may use it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ledgermq.formats.timer_wheel import SLOT_MS, WHEEL_QUEUE, TimerCheck
from ledgermq.gateway.code_rights import ADMIN, USER
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code, Freshness
from ledgermq.gateway.transport.addresses import broker_id
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.ipc.counters import BrokerCounter, WriterCounter
from ledgermq.ipc.cursor_page import PublishedRole, Role
from ledgermq.ipc.time_histogram import TimeKind, read_times
from ledgermq.model.config.broker_conf_keys import TRANSLATED
from ledgermq.model.config.settings import AckMode, LogKind
from ledgermq.model.errors import ConfigError, LedgerError, NoPermissionError, NotLeaderError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.names.system_topics import TRACE_TOPIC
from ledgermq.process.node_status import given_out
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import VERSION, Command
from ledgermq.remoting.fastjson import encode_body
from ledgermq.remoting.fields import text
from ledgermq.remoting.routes import LEADER_ID
from ledgermq.rules.access.access import PLAIN_LISTS, PLAIN_TEXTS
from ledgermq.rules.consumers.request_modes import request_modes
from ledgermq.rules.tables.delays import TOPIC as DELAY_TOPIC

WINDOWS_S = (10, 60, 600)
KEPT_MS = 10_000
"""Samples are at least so far apart, once they are not among the newest."""


class Sample(NamedTuple):
    """Counts of messages at one time (monotonic ms)."""

    at_ms: int
    stored: int
    read: int


class StoredRates:
    """Keeps a sample for each ten seconds of the longest window.

    Invariant: samples are in the order of their times, and there are at most 62.
    """

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=62)

    def note(self, sample: Sample) -> None:
        """Take the counts as they are now; to be called now and then."""
        samples = self._samples
        if len(samples) > 1 and samples[-1].at_ms - samples[-2].at_ms < KEPT_MS:
            samples.pop()
        samples.append(sample)

    def stored(self, now: Sample) -> str:
        """Messages stored a second: three numbers with blanks between them, as tools cut them."""
        return " ".join(f"{self._rate(now, window, 1):.2f}" for window in WINDOWS_S)

    def read(self, now: Sample) -> str:
        """Messages read a second; see ``stored``."""
        return " ".join(f"{self._rate(now, window, 2):.2f}" for window in WINDOWS_S)

    def _rate(self, now: Sample, window_s: int, field: int) -> float:
        """Growth per second since the oldest sample in the window, or the last one before it."""
        begin = None
        for sample in reversed(self._samples):
            if sample.at_ms < now.at_ms:
                begin = sample
                if sample.at_ms <= now.at_ms - 1_000 * window_s:
                    break
        if begin is None:
            return 0.0
        return (now[field] - begin[field]) * 1_000 / (now.at_ms - begin.at_ms)


_BY_ITSELF = "deletes by itself what is not needed any more: docs/operating/disk-space.md"
_REFUSED = {
    RequestCode.UPDATE_BROKER_CONFIG: (
        "settings are those of the node's own file: change them there, and reload"
        " (docs/operating/settings.md)"
    ),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: f"the node {_BY_ITSELF}",
    RequestCode.CLEAN_UNUSED_TOPIC: (
        f"a topic's queues end with the topic, and the node {_BY_ITSELF}"
    ),
    RequestCode.DELETE_EXPIRED_COMMITLOG: f"the node {_BY_ITSELF}",
    RequestCode.RESUME_CHECK_HALF_MESSAGE: (
        "half messages are asked about until they are ended or discarded; end one by hand:"
        " ledgermq transaction (docs/operating/transactions.md)"
    ),
}
"""What does not apply here, and why."""

_ZEROS = (
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "queryThreadPoolQueueSize",
    "EndTransactionQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "EndTransactionThreadPoolQueueHeadWaitTimeMills",
    "putMessageFailedTimes",
    "getMessageEntireTimeMax",
    "dispatchMaxBuffer",
    "remainHowManyDataToCommit",
    "remainTransientStoreBufferNumbs",
    "startAcceptSendRequestTimeStamp",
    "msgPutTotalYesterdayMorning",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgGetTotalTodayMorning",
)
"""Keys of thread pools that there are not, and of counts that are not kept; tools want the keys."""

_CAPACITIES = (
    "sendThreadPoolQueueCapacity",
    "pullThreadPoolQueueCapacity",
    "queryThreadPoolQueueCapacity",
    "EndTransactionThreadPoolQueueCapacity",
)


_AS_IN_ROCKETMQ = {
    "filterServerNums": "0",
    "msgTraceTopicName": TRACE_TOPIC,
    "slaveReadEnable": "true",
    "traceOn": "true",
    "traceTopicEnable": "false",
}
"""Settings that are none here, with what is so; tools want the keys."""


class BrokerCodes(PortPart):
    """Answers of this node about itself, whether it leads or not."""

    def __init__(self, context: BrokerContext) -> None:
        self._environment = context.environment
        self._tables = context.tables
        self._figures = context.figures
        self._rates = StoredRates()
        self.codes = (
            Code(RequestCode.GET_BROKER_CONFIG, self._config, ADMIN, tables=Freshness.NONE),
            Code(RequestCode.GET_BROKER_RUNTIME_INFO, self._runtime, USER, tables=Freshness.NONE),
            Code(RequestCode.GET_ALL_DELAY_OFFSET, self._delays, USER),
            *(Code(code, _refusing(remark), ADMIN) for code, remark in _REFUSED.items()),
        )

    def note_rates(self) -> None:
        """Take a sample for the rates; to be called every few seconds, whenever there is a turn."""
        self._rates.note(self._sample())

    def _sample(self) -> Sample:
        page = self._environment.page
        return Sample(
            self._environment.clock.monotonic_ns() // 1_000_000,
            page.read_counters(Role.WRITER)[WriterCounter.MESSAGES],
            given_out(page, BrokerCounter.MESSAGES),
        )

    def _config(self, asked: Asked) -> Command:
        """The settings that have an equal in RocketMQ, under its names."""
        settings = self._environment.settings
        leads = self._environment.page.read_grant().role is PublishedRole.LEADER
        is_synced = settings.ack.mode is AckMode.MAJORITY_FSYNC
        lines = {
            **_AS_IN_ROCKETMQ,
            "brokerId": str(LEADER_ID if leads else broker_id(settings.node.self_id)),
            "brokerRole": "SYNC_MASTER" if leads else "SLAVE",
            "enableDLegerCommitLog": _property(settings.store.log is LogKind.DLEDGER),
            "flushDiskType": "SYNC_FLUSH" if is_synced else "ASYNC_FLUSH",
            "useTLS": _property(settings.remoting.tls_certificate_file is not None),
        }
        for key, name in TRANSLATED.items():
            section, _, field = name.partition(".")
            lines[key] = _property(getattr(getattr(settings, section), field))
        content = "".join(f"{key}={lines[key]}\n" for key in sorted(lines))
        version = encode_body(self._version()).decode()
        return asked.command.reply(fields={"version": version}, body=content.encode())

    def _version(self) -> dict[str, object]:
        return {"counter": 0, "timestamp": self._environment.page.started_ms}

    def _delays(self, asked: Asked) -> Command:
        levels = {
            str(queue.queue_id + 1): source.safe_offset
            for queue, source in sorted(self._tables.state.delays)
            if queue.topic == DELAY_TOPIC
        }
        return asked.command.reply(body=encode_body({"offsetTable": levels}))

    def _runtime(self, asked: Asked) -> Command:
        table = {
            **dict.fromkeys(_ZEROS, "0"),
            **dict.fromkeys(_CAPACITIES, "0"),
            **self._figures_of_puts(),
            **self._figures_of_log(),
            **self._figures_of_messages(),
            **self._figures_of_delays(),
        }
        return asked.command.reply(body=encode_body({"table": table}))

    def _figures_of_puts(self) -> dict[str, str]:
        """How long puts took since the node was started, in ms: bounds that were not exceeded."""
        page = self._environment.page
        times, lock = read_times(page, TimeKind.PUT_LOCK), page.read_put_lock()
        now_ns = self._environment.clock.monotonic_ns()
        held_ns = max(0, now_ns - lock.since_ns) if lock.holder else 0
        return {
            "pageCacheLockTimeMills": str(held_ns // 1_000_000),
            "putMessageEntireTimeMax": str(-(-times.quantile_ns(1) // 1_000_000)),
            "putLatency99": f"{times.quantile_ns(0.99) / 1e6:.3f}",
            "putLatency999": f"{times.quantile_ns(0.999) / 1e6:.3f}",
        }

    def _figures_of_log(self) -> dict[str, str]:
        page, now_ms = self._environment.page, self._figures.epoch_ms()
        root = self._environment.settings.store.path_root_dir
        disk = os.statvfs(root)
        total, free = disk.f_frsize * disk.f_blocks, disk.f_frsize * disk.f_bavail
        ratio = f"{1 - free / total:.4f}" if total else "0"
        written, begin = page.read_written().position, page.read_log_begin().position
        gib = 1024**3
        return {
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": "V4_9_4",
            "bootTimestamp": str(page.started_ms),
            "runtime": _duration(now_ms - page.started_ms),
            "commitLogMinOffset": str(begin),
            "commitLogMaxOffset": str(written),
            "dispatchBehindBytes": str(max(0, written - page.read_dispatched().position)),
            "remainHowManyDataToFlush": f"{max(0, written - page.read_durable()[0].position)} B",
            "earliestMessageTimeStamp": str(self._figures.earliest_ms(None)),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{root}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {total / gib:.1f} GiB, Free : {free / gib:.1f} GiB.",
        }

    def _figures_of_messages(self) -> dict[str, str]:
        now = self._sample()
        bytes_stored = self._environment.page.read_counters(Role.WRITER)[WriterCounter.BYTES]
        return {
            "putTps": self._rates.stored(now),
            # As RocketMQ 4.9 spells it, and as RocketMQ 5 does.
            "getTransferedTps": self._rates.read(now),
            "getTransferredTps": self._rates.read(now),
            "getFoundTps": self._rates.read(now),
            "getTotalTps": self._rates.read(now),
            "getMissTps": "0.00 0.00 0.00",
            "putMessageTimesTotal": str(now.stored),
            "putMessageSizeTotal": str(bytes_stored),
            "putMessageAverageSize": str(bytes_stored / now.stored if now.stored else 0.0),
            "putMessageDistributeTime": "",
            "msgPutTotalTodayNow": str(now.stored),
            "msgGetTotalTodayNow": str(now.read),
        }

    def _figures_of_delays(self) -> dict[str, str]:
        found = {}
        for queue, source in sorted(self._tables.state.delays):
            if queue.topic == DELAY_TOPIC:
                _, end = self._figures.bounds(QueueName(queue.topic, queue.queue_id))
                key = f"scheduleMessageOffset_{queue.queue_id + 1}"
                found[key] = f"{source.safe_offset},{end}"
        return found


def _refusing(remark: str) -> Callable[[Asked], Command]:
    def refused(asked: Asked) -> Command:
        return asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=f"does not apply: {remark}")

    return refused


def _property(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ";".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _duration(milliseconds: int) -> str:
    """A duration as RocketMQ writes it."""
    minutes, seconds = divmod(max(0, milliseconds) // 1_000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


class AclCodes(PortPart):
    """Users and their rights, as RocketMQ's administrators show and change them.

    They are the replicated users of this group: RocketMQ has an account in a file of each broker.
    No secret is given out, and no address is let do everything. Looks are answered by every node,
    changes by the one that leads.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._tables = context.tables
        self._changes = context.changes
        self._addresses = context.addresses
        self._started_ms = context.environment.page.started_ms
        self.codes = (
            Code(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, self._put, ADMIN),
            Code(RequestCode.DELETE_ACL_CONFIG, self._delete, ADMIN),
            Code(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, self._version, ADMIN),
            Code(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, self._refuse_addresses, ADMIN),
            Code(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, self._all, ADMIN),
        )

    def _put(self, asked: Asked) -> None:
        """Add a user, or change what is given of one, as RocketMQ changes its file.

        There, too, an empty address takes the address back, and who is not said to be an admin is
        none (``PlainPermissionManager.createAclAccessConfigMap``).
        """
        told = asked.command.fields
        name = text(told, "accessKey")
        fields: dict[str, object] = {key: told[key] for key in PLAIN_TEXTS if told.get(key)}
        if "whiteRemoteAddress" in told:
            fields["whiteRemoteAddress"] = told["whiteRemoteAddress"]
        fields["admin"] = told.get("admin", "").lower() == "true"
        for key in PLAIN_LISTS:
            if told.get(key):
                fields[key] = [one.strip() for one in told[key].split(",") if one.strip()]
        self._ask(
            asked,
            "acl_set",
            {"user": name, "mode": "set", "fields": fields},
            ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
        )

    def _delete(self, asked: Asked) -> None:
        """Remove a user; one that is not there is no error, as tools ask each node."""
        name = text(asked.command.fields, "accessKey")
        self._ask(asked, "acl_remove", {"user": name}, ResponseCode.DELETE_ACL_CONFIG_FAILED)

    def _ask(
        self, asked: Asked, verb: str, arguments: dict[str, object], failed: ResponseCode
    ) -> None:
        def refused(error: LedgerError) -> Command | None:
            if isinstance(error, NotLeaderError | NoPermissionError):
                return None
            is_gone = verb == "acl_remove" and isinstance(error, ConfigError)
            if is_gone and self._tables.users.get(str(arguments["user"])) is None:
                return asked.command.reply()
            return asked.command.reply(failed, remark=refusal(asked.command, error).remark)

        self._changes.ask(asked, verb, arguments, refused=refused)

    def _version(self, asked: Asked) -> Command:
        version = {"counter": self._tables.users.revision, "timestamp": self._started_ms}
        told = encode_body(version).decode()
        fields = {
            "version": told,
            "allAclFileVersion": encode_body({"access.json": version}).decode(),
            "brokerName": self._addresses.broker,
            "brokerAddr": self._addresses.own,
            "clusterName": self._addresses.cluster,
        }
        return asked.command.reply(fields=fields)

    def _refuse_addresses(self, asked: Asked) -> Command:
        remark = (
            "does not apply: no address is let do everything here; give a user its addresses"
            " (whiteRemoteAddress)"
        )
        code = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        return asked.command.reply(code, remark=remark)

    def _all(self, asked: Asked) -> Command:
        rows = []
        for user in self._tables.users:
            fields = user.to_fields()
            rows.append(
                {
                    "accessKey": user.name,
                    "admin": user.admin,
                    "defaultGroupPerm": user.default_group.text,
                    "defaultTopicPerm": user.default_topic.text,
                    "groupPerms": fields.get("groupPerms", []),
                    "topicPerms": fields.get("topicPerms", []),
                    "whiteRemoteAddress": user.addresses,
                }
            )
        body = {"globalWhiteAddrs": [], "plainAccessConfigs": rows}
        return asked.command.reply(body=encode_body(body))


LATE_MS = 3_000
"""A timer that was due for so long is delivered here."""


class SlaveCodes(PortPart):
    """Looks at the tables; keeps nothing."""

    def __init__(self, context: BrokerContext) -> None:
        """Answers for what the tables say."""
        self._tables = context.tables
        self._figures = context.figures
        self.codes = (
            Code(RequestCode.GET_TIMER_CHECK_POINT, self._timers, USER),
            Code(RequestCode.GET_TIMER_METRICS, _count_no_timers, USER),
            Code(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self._modes, USER),
        )

    def _timers(self, asked: Asked) -> Command:
        """How far RocketMQ's wheel would be.

        Without that a slave that becomes the master would deliver again what its log has of the
        wheel's queue. What of it waits here, and is due later, its wheel has, too.
        """
        before_ms = (self._figures.epoch_ms() - LATE_MS) // SLOT_MS * SLOT_MS
        _, end = self._figures.bounds(WHEEL_QUEUE)
        return asked.command.reply(body=TimerCheck(before_ms, 0, end, end).told())

    def _modes(self, asked: Asked) -> Command:
        modes: dict[str, dict[str, object]] = {}
        for group, topic, mode in request_modes(self._tables.names):
            if mode.takes_singly:
                modes.setdefault(topic, {})[group] = {
                    "topic": topic,
                    "consumerGroup": group,
                    "mode": "POP",
                    "popShareQueueNum": mode.share_queues,
                }
        return asked.command.reply(body=encode_body({"messageRequestModeMap": modes}))


def _count_no_timers(asked: Asked) -> Command:
    """Figures by topic that RocketMQ shows of its wheel, and that nothing goes by."""
    version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
    return asked.command.reply(body=encode_body({"dataVersion": version, "timingCount": {}}))
