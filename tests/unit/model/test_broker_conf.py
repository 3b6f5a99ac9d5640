"""RocketMQ's ``broker.conf`` as settings: what is taken over, and what is said about the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.model.config.broker_conf import translate_broker_conf, write_translation
from ledgermq.model.config.broker_conf_keys import SAME_WHEN, TRANSLATED, WITHOUT_EQUAL
from ledgermq.model.config.settings import ForceClean, LogKind, RetentionSection, Settings
from ledgermq.model.config.settings_file import SettingsError, read_settings
from ledgermq.model.config.settings_rules import RULES
from ledgermq.model.errors import ConfigError

PLAIN = """\
brokerClusterName = Shop
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = SYNC_MASTER
flushDiskType = SYNC_FLUSH
brokerIP1 = 192.168.1.5
storePathRootDir = /data/rocketmq/store
maxMessageSize = 65536
autoCreateTopicEnable = FALSE
defaultTopicQueueNums = 4
messageDelayLevel = 1s 5s 10s
dLegerSelfId = n7
"""


def remarks(text: str) -> dict[str, str]:
    translation = translate_broker_conf(text, name="broker.conf")
    return {entry.key: entry.why for entry in translation.untranslated if entry.line}


def test_a_plain_broker_keeps_its_commit_log() -> None:
    settings = translate_broker_conf(PLAIN, name="broker.conf").settings

    assert settings.store.log is LogKind.COMMITLOG
    assert settings.store.path_root_dir == Path("/data/rocketmq/store")
    assert settings.store.max_message_size == 65_536
    assert settings.store.message_delay_level == "1s 5s 10s"
    assert settings.topics.auto_create_topic_enable is False
    assert settings.topics.default_topic_queue_nums == 4
    assert settings.node.broker_ip == "192.168.1.5"
    assert settings.node.self_id == Settings().node.self_id


def test_retention_is_taken_over_with_rocketmqs_way_to_write_it() -> None:
    text = (
        "deleteWhen=04;16\nfileReservedTime=48\n"
        "diskMaxUsedSpaceRatio=60\ncleanFileForciblyEnable=true\n"
    )
    retention = translate_broker_conf(text, name="broker.conf").settings.retention

    assert retention == RetentionSection(
        delete_when="04;16",
        file_reserved_time=48,
        clean_above="60%",
        force_clean=ForceClean.OLDEST,
    )


def test_what_has_no_effect_is_named_once_with_its_line_and_value() -> None:
    translation = translate_broker_conf(PLAIN, name="broker.conf")

    assert [entry[:3] for entry in translation.untranslated if entry.line] == [
        (6, "brokerRole", "SYNC_MASTER"),
        (14, "dLegerSelfId", "n7"),
    ]


def test_defaults_that_differ_are_named_when_the_file_leaves_them_out() -> None:
    translation = translate_broker_conf("brokerName=a\n", name="broker.conf")

    assert [entry.key for entry in translation.untranslated] == [
        "brokerIP1",
        "cleanFileForciblyEnable",
        "storePathRootDir",
    ]
    assert all(entry.line == 0 for entry in translation.untranslated)


def test_the_translation_is_a_settings_file_that_names_its_origins() -> None:
    translation = translate_broker_conf(PLAIN, name="broker.conf")

    text = write_translation(translation, name="broker.conf")

    assert read_settings(text, name="translated") == translation.settings
    assert 'broker_cluster_name = "Shop"  # brokerClusterName\n' in text
    assert "listen_port" not in text


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("maxMessageSize=big", "no whole number to Java, so RocketMQ ignored it"),
        ("maxMessageSize=8388608", "store.max_message_size must be 1 to 4194304"),
        ("storePathRootDir=store", "store.path_root_dir must be an absolute path"),
        ("brokerIP1=broker.local", "node.broker_ip must be an IPv4 or IPv6 address"),
        (
            "storePathCommitLog=/fast/log",
            "the log is always at /var/lib/ledgermq/commitlog: move it there, or mount it there",
        ),
        ("mappedFileSizeCommitlog=5", "not a key of RocketMQ, which ignored it;"),
        ("zzz=5", "not a key that is known here"),
    ],
)
def test_a_value_that_cannot_be_taken_over_is_left_at_its_default(line: str, why: str) -> None:
    key = line.partition("=")[0]

    assert translate_broker_conf(line, name="b").settings.store.log is LogKind.COMMITLOG
    assert remarks(line)[key].startswith(why)


def test_a_log_in_its_usual_place_needs_no_remark() -> None:
    text = (
        "enableDLegerCommitLog=true\ndLegerSelfId=n2\nstorePathRootDir=/data\n"
        "storePathCommitLog=/data/commitlog/\nstorePathDLedgerCommitLog=/data/dledger-n2/data\n"
    )

    assert remarks(text) == {}


def test_contradictions_are_refused_with_the_line_in_the_broker_conf() -> None:
    text = "enableDLegerCommitLog=true\ndLegerPeers=n0-a:1;n1-b:1\ndLegerSelfId=n9\n"

    with pytest.raises(SettingsError, match=r"broker\.conf:3: node\.self_id: 'n9' is none of"):
        translate_broker_conf(text, name="broker.conf")


def test_every_key_is_in_one_table_and_names_a_setting_that_exists() -> None:
    assert set(TRANSLATED) & set(SAME_WHEN) == set()
    assert set(TRANSLATED) & set(WITHOUT_EQUAL) == set()
    assert set(SAME_WHEN) & set(WITHOUT_EQUAL) == set()
    assert set(TRANSLATED.values()) <= set(RULES)


GROUP = "enableDLegerCommitLog=true\ndLegerPeers=n0-a:1;n1-b:1;n2-c:1\ndLegerSelfId=n1\n"


def test_a_group_keeps_its_members_and_preferred_leaders_in_their_order() -> None:
    text = GROUP + "preferredLeaderId = n2; n0;n2\n"

    settings = translate_broker_conf(text, name="broker.conf").settings

    assert settings.node.peers == ("n0-a:1", "n1-b:1", "n2-c:1")
    assert settings.raft.preferred_leaders == ("n2", "n0")
    assert remarks(text) == {}


def test_a_preferred_leader_that_is_no_member_is_left_out_and_named() -> None:
    text = GROUP + "preferredLeaderId=n7;n2\n"

    settings = translate_broker_conf(text, name="broker.conf").settings

    assert settings.raft.preferred_leaders == ("n2",)
    assert remarks(text) == {"preferredLeaderId": "n7 is no member of dLegerPeers"}


def test_a_plain_broker_has_no_preferred_leader() -> None:
    text = "preferredLeaderId=n0\n"

    assert translate_broker_conf(text, name="b").settings.raft.preferred_leaders == ()
    assert remarks(text)["preferredLeaderId"].startswith("without enableDLegerCommitLog=true")


def test_no_preferred_leader_needs_no_remark() -> None:
    assert remarks(GROUP + "preferredLeaderId=\n") == {}


@pytest.mark.parametrize("value", ["48 ", "48 # hours", "4_8", "64*1024", "", "4\xa08"])
def test_a_number_that_java_does_not_read_is_ignored_as_rocketmq_did_and_told(value: str) -> None:
    found = translate_broker_conf(f"fileReservedTime={value}", name="b")

    assert found.settings.retention.file_reserved_time == 72
    assert "RocketMQ ignored it" in remarks(f"fileReservedTime={value}")["fileReservedTime"]


def test_a_number_may_have_a_sign() -> None:
    found = translate_broker_conf("fileReservedTime=+48", name="b")

    assert found.settings.retention.file_reserved_time == 48
    assert "fileReservedTime" not in remarks("fileReservedTime=+48")


def test_blanks_behind_a_value_belong_to_it() -> None:
    text = "storePathRootDir=/data/store \nenableDLegerCommitLog=true \n"
    found = translate_broker_conf(text, name="b")

    assert found.settings.store.path_root_dir == Path("/data/store ")
    assert found.settings.store.log is LogKind.COMMITLOG
    told = remarks(text)
    assert "as RocketMQ read it" in told["storePathRootDir"]
    assert "enableDLegerCommitLog" in told


def test_comments_of_any_encoding_and_a_mark_at_the_beginning_are_read_as_java_reads_them() -> None:
    conf = "# 删除文件时间点\n".encode("gbk") + b"# Gr\xf6\xdfe\nfileReservedTime=48\n"
    marked = b"\xef\xbb\xbf" + b"fileReservedTime=48\nbrokerName=shop\n"
    read, first_ignored = (
        translate_broker_conf(one.decode("latin-1"), name="b").settings for one in (conf, marked)
    )

    assert read.retention.file_reserved_time == 48
    assert first_ignored.retention.file_reserved_time == 72
    assert first_ignored.node.broker_name == "shop"


def test_an_escape_that_java_refuses_is_refused() -> None:
    with pytest.raises(ConfigError, match="four hexadecimal"):
        translate_broker_conf("storePathRootDir=/data/\\u00zz", name="b")
