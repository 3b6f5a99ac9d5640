"""The table of verbs is whole: none of the broker's, and no code of the port, is left out."""

from __future__ import annotations

from ledgermq.remoting.codes import RequestCode as Code
from tests.acknowledged.lives import ROWS
from tests.whole_broker import verbs

SENDS = "SEND"
"""No CALL: a message that is stored."""

ONCE = frozenset(
    {
        "feature_enable",
        "cluster_begin",
        "cluster_join",
        "cluster_leave",
        "cluster_hand_over",
        "cluster_take_over",
        "cluster_group_set",
        "cluster_group_remove",
        "cluster_group_phase",
        "cluster_topic_set",
        "cluster_topic_alter",
        "cluster_topic_phase",
        "cluster_topic_release",
    }
)
"""What is done once in a group's life, or in a cluster, and lasts:
``tests/process/test_feature_levels.py``, ``test_cluster_groups.py``."""

NOT_KEPT = {
    "group_heartbeat": "members are heard of again within seconds",
    "group_leave": "a member that left says nothing more, and is forgotten",
    "transaction_checks": "who does not get the question is asked again",
    "sink_abort": "what nobody commits is dropped after its time, aborted or not",
}
"""What a dead broker may have told, and another one need not know; why."""

BY_VERB = {
    Code.HEART_BEAT: "group_prepare",
    Code.CONSUMER_SEND_MSG_BACK: "send_back",
    Code.END_TRANSACTION: "transaction_end",
    Code.UNLOCK_BATCH_MQ: "queue_unlock",
    Code.UPDATE_AND_CREATE_ACL_CONFIG: "acl_set",
    Code.DELETE_ACL_CONFIG: "acl_remove",
    Code.DELETE_KV_CONFIG: "name_set",
    Code.INVOKE_BROKER_TO_RESET_OFFSET: "group_commit",
    Code.PULL_MESSAGE: "offsets_store",
    Code.LITE_PULL_MESSAGE: "offsets_store",
    Code.SEND_MESSAGE: "topic_for_send",
    Code.SEND_MESSAGE_V2: "topic_for_send",
    Code.SEND_BATCH_MESSAGE: "topic_for_send",
    Code.POP_MESSAGE: "share_receive",
    Code.ACK_MESSAGE: "share_settle",
    Code.BATCH_ACK_MESSAGE: "share_settle",
    Code.CHANGE_MESSAGE_INVISIBLETIME: "share_settle",
    Code.SET_MESSAGE_REQUEST_MODE: "name_set",
    Code.WIPE_WRITE_PERM_OF_BROKER: "topic_alter",
    Code.ADD_WRITE_PERM_OF_BROKER: "topic_alter",
}
"""Codes that ask for a verb which has its row, and answer as that is answered."""

BY_ROW = {Code[row.verb] for row in ROWS if row.verb in Code.__members__}
BY_ROW |= {Code.UPDATE_CONSUMER_OFFSET}  # ``offsets_store``, which nothing else asks for

CHANGE_NOTHING = frozenset(
    Code[name]
    for name in [
        "QUERY_MESSAGE",
        "QUERY_CONSUMER_OFFSET",
        "GET_ALL_TOPIC_CONFIG",
        "GET_TOPIC_CONFIG",
        "GET_SUBSCRIPTIONGROUP_CONFIG",
        "UPDATE_BROKER_CONFIG",
        "GET_BROKER_CONFIG",
        "GET_BROKER_RUNTIME_INFO",
        "SEARCH_OFFSET_BY_TIMESTAMP",
        "GET_MAX_OFFSET",
        "GET_MIN_OFFSET",
        "GET_EARLIEST_MSG_STORETIME",
        "VIEW_MESSAGE_BY_ID",
        "UNREGISTER_CLIENT",
        "GET_CONSUMER_LIST_BY_GROUP",
        "CHECK_TRANSACTION_STATE",
        "NOTIFY_CONSUMER_IDS_CHANGED",
        "GET_ALL_CONSUMER_OFFSET",
        "GET_ALL_DELAY_OFFSET",
        "GET_ALL_MESSAGE_REQUEST_MODE",
        "GET_TIMER_CHECK_POINT",
        "GET_TIMER_METRICS",
        "CHECK_CLIENT_CONFIG",
        "QUERY_ASSIGNMENT",
        "PEEK_MESSAGE",
        "NOTIFICATION",
        "POLLING_INFO",
        "GET_BROKER_CLUSTER_ACL_INFO",
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG",
        "GET_BROKER_CLUSTER_ACL_CONFIG",
        "GET_KV_CONFIG",
        "REGISTER_BROKER",
        "UNREGISTER_BROKER",
        "GET_ROUTEINFO_BY_TOPIC",
        "GET_BROKER_CLUSTER_INFO",
        "GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
        "GET_TOPIC_STATS_INFO",
        "GET_CONSUMER_CONNECTION_LIST",
        "GET_PRODUCER_CONNECTION_LIST",
        "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
        "GET_CONSUME_STATS",
        "DELETE_TOPIC_IN_NAMESRV",
        "GET_KVLIST_BY_NAMESPACE",
        "RESET_CONSUMER_CLIENT_OFFSET",
        "GET_CONSUMER_STATUS_FROM_CLIENT",
        "INVOKE_BROKER_TO_GET_CONSUMER_STATUS",
        "GET_TOPICS_BY_CLUSTER",
        "QUERY_TOPIC_CONSUME_BY_WHO",
        "QUERY_CONSUME_TIME_SPAN",
        "GET_SYSTEM_TOPIC_LIST_FROM_NS",
        "GET_SYSTEM_TOPIC_LIST_FROM_BROKER",
        "CLEAN_EXPIRED_CONSUMEQUEUE",
        "GET_CONSUMER_RUNNING_INFO",
        "QUERY_CORRECTION_OFFSET",
        "CONSUME_MESSAGE_DIRECTLY",
        "GET_UNIT_TOPIC_LIST",
        "GET_HAS_UNIT_SUB_TOPIC_LIST",
        "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST",
        "VIEW_BROKER_STATS_DATA",
        "CLEAN_UNUSED_TOPIC",
        "GET_BROKER_CONSUME_STATS",
        "UPDATE_NAMESRV_CONFIG",
        "GET_NAMESRV_CONFIG",
        "QUERY_CONSUME_QUEUE",
        "QUERY_DATA_VERSION",
        "BROKER_HEARTBEAT",
        "RESUME_CHECK_HALF_MESSAGE",
        "SEND_REPLY_MESSAGE",
        "SEND_REPLY_MESSAGE_V2",
        "PUSH_REPLY_MESSAGE_TO_CLIENT",
        "GET_ALL_PRODUCER_INFO",
        "DELETE_EXPIRED_COMMITLOG",
    ]
)
"""Codes that change nothing a later leader has to know: replies go to who waits now, clients and
other brokers announce themselves again, and what is cleaned up is of no use."""


def test_each_verb_that_changes_something_is_in_the_table() -> None:
    in_rows = {row.verb.partition(" ")[0] for row in ROWS} - {SENDS} - {one.name for one in BY_ROW}
    changes = {name for name, verb in verbs().items() if not verb.needs.is_read}

    assert in_rows.isdisjoint(ONCE | NOT_KEPT.keys())
    assert changes == in_rows | ONCE | NOT_KEPT.keys()


def test_each_code_of_the_port_is_in_the_table() -> None:
    asked = {row.verb.partition(" ")[0] for row in ROWS}

    assert set(BY_VERB.values()) <= asked
    assert BY_VERB.keys() | BY_ROW | CHANGE_NOTHING == set(Code)
    assert len(BY_VERB) + len(BY_ROW) + len(CHANGE_NOTHING) == len(Code)
