"""A request of each code as a client sends it: what a test of fields begins with."""

from __future__ import annotations

import json
from typing import NamedTuple

from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.command import BINARY_CODE_MAX, HeaderKind
from ledgermq.remoting.pull_request import SUBSCRIPTION
from tests.plain_codecs import BatchItem, encode_batch
from tests.process.remoting_steps import GROUP, NOW_MS, heartbeat_body

Fields = dict[str, object]

TO_CLIENTS = frozenset(
    (
        Code.CHECK_TRANSACTION_STATE,
        Code.NOTIFY_CONSUMER_IDS_CHANGED,
        Code.RESET_CONSUMER_CLIENT_OFFSET,
        Code.GET_CONSUMER_STATUS_FROM_CLIENT,
        Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
    )
)
"""What brokers ask clients."""

_QUEUE: Fields = {"topic": "orders", "queueId": 0}
_OF_GROUP: Fields = {"consumerGroup": GROUP, **_QUEUE}
_SENT = (
    "producers",
    "orders",
    "TBW102",
    4,
    0,
    0,
    NOW_MS,
    0,
    "KEYS\x01k\x02TAGS\x01t\x02",
    0,
    "false",
)
_LONG_NAMES = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
)  # fmt: skip
_LONG: Fields = dict(zip(_LONG_NAMES, _SENT, strict=True))
_SHORT: Fields = dict(zip("abcdefghijk", _SENT, strict=True))
_PULL: Fields = {
    "consumerGroup": GROUP, "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
    "sysFlag": SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*",
    "subVersion": 1, "expressionType": "TAG",
}  # fmt: skip
_POPPED: Fields = {
    **_OF_GROUP,
    "offset": 0,
    "extraInfo": f"0 {NOW_MS} 1000 7 0 broker-a 0 0",
}
_VALUE: Fields = {"namespace": "spaces", "key": "k", "value": "v"}
_ANSWER: Fields = {**_SHORT, "i": "REPLY_TO_CLIENT\x01fuzz\x02CORRELATION_ID\x011\x02"}


def kinds_of(code: int) -> list[HeaderKind]:
    """Headers that can name a code: those of POP are too large for a binary one."""
    return list(HeaderKind) if code <= BINARY_CODE_MAX else [HeaderKind.JSON]


class Template(NamedTuple):
    """Fields and body of a request that is well-formed."""

    fields: Fields
    body: bytes = b""


def _json(**content: object) -> bytes:
    return json.dumps(content).encode()


def _locks() -> bytes:
    queues = [{"topic": "orders", "brokerName": "broker-a", "queueId": one} for one in range(2)]
    return _json(consumerGroup=GROUP, clientId="fuzz", mqSet=queues)


def _batch() -> bytes:
    return encode_batch([BatchItem(0, b"one", b""), BatchItem(0, b"two", b"KEYS\x01k\x02")])


TEMPLATES: dict[Code, Template] = {
    Code.SEND_MESSAGE: Template(_LONG, b"body"),
    Code.SEND_MESSAGE_V2: Template(_SHORT, b"body"),
    Code.SEND_BATCH_MESSAGE: Template({**_SHORT, "m": "true"}, _batch()),
    Code.SEND_REPLY_MESSAGE: Template({**_LONG, "properties": _ANSWER["i"]}, b"answer"),
    Code.SEND_REPLY_MESSAGE_V2: Template(_ANSWER, b"answer"),
    Code.PULL_MESSAGE: Template(_PULL),
    Code.LITE_PULL_MESSAGE: Template(_PULL),
    Code.POP_MESSAGE: Template(
        {
            **_OF_GROUP,
            "maxMsgNums": 1,
            "invisibleTime": 1_000,
            "pollTime": 0,
            "bornTime": 1,
            "initMode": 0,
            "expType": "TAG",
            "exp": "a || b",
            "order": "false",
        }
    ),
    Code.PEEK_MESSAGE: Template({**_OF_GROUP, "maxMsgNums": 1}),
    Code.NOTIFICATION: Template({**_OF_GROUP, "pollTime": 0, "bornTime": 1}),
    Code.POLLING_INFO: Template(_OF_GROUP),
    Code.ACK_MESSAGE: Template(_POPPED),
    Code.CHANGE_MESSAGE_INVISIBLETIME: Template({**_POPPED, "invisibleTime": 1_000}),
    Code.BATCH_ACK_MESSAGE: Template(
        {},
        _json(
            brokerName="broker-a",
            acks=[
                {
                    "c": GROUP,
                    "t": "orders",
                    "r": "0",
                    "so": 0,
                    "q": 0,
                    "rq": 7,
                    "pt": NOW_MS,
                    "it": 1_000,
                    "b": "AQ==",
                }
            ],
        ),
    ),
    Code.QUERY_ASSIGNMENT: Template(
        {},
        _json(
            topic="orders",
            consumerGroup=GROUP,
            clientId="fuzz",
            strategyName="AVG",
            messageModel="CLUSTERING",
        ),
    ),
    Code.SET_MESSAGE_REQUEST_MODE: Template(
        {}, _json(topic="orders", consumerGroup=GROUP, mode="PULL", popShareQueueNum=0)
    ),
    Code.QUERY_MESSAGE: Template(
        {"topic": "orders", "key": "k", "maxNum": 8, "beginTimestamp": 0, "endTimestamp": 2**62}
    ),
    Code.QUERY_CONSUMER_OFFSET: Template(_OF_GROUP),
    Code.UPDATE_CONSUMER_OFFSET: Template({**_OF_GROUP, "commitOffset": 0}),
    Code.UPDATE_AND_CREATE_TOPIC: Template(
        {
            "topic": "made",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicSysFlag": 0,
            "order": "false",
            "topicFilterType": "SINGLE_TAG",
            "defaultTopic": "TBW102",
        }
    ),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: Template(
        {},
        _json(
            topicConfigList=[
                {
                    "topicName": "made",
                    "readQueueNums": 2,
                    "writeQueueNums": 2,
                    "perm": 6,
                    "topicFilterType": "SINGLE_TAG",
                    "topicSysFlag": 0,
                    "order": False,
                    "attributes": {},
                }
            ]
        ),
    ),
    Code.GET_ALL_TOPIC_CONFIG: Template({}),
    Code.GET_TOPIC_CONFIG: Template({"topic": "orders"}),
    Code.UPDATE_BROKER_CONFIG: Template({}, b"flushDiskType=SYNC_FLUSH"),
    Code.GET_BROKER_CONFIG: Template({}),
    Code.GET_BROKER_RUNTIME_INFO: Template({}),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: Template({**_QUEUE, "timestamp": NOW_MS}),
    Code.GET_MAX_OFFSET: Template(_QUEUE),
    Code.GET_MIN_OFFSET: Template(_QUEUE),
    Code.GET_EARLIEST_MSG_STORETIME: Template(_QUEUE),
    Code.VIEW_MESSAGE_BY_ID: Template({"offset": 48}),
    Code.HEART_BEAT: Template({}, heartbeat_body("fuzz", "orders")),
    Code.UNREGISTER_CLIENT: Template(
        {"clientID": "fuzz", "consumerGroup": GROUP, "producerGroup": "producers"}
    ),
    Code.CONSUMER_SEND_MSG_BACK: Template(
        {
            "offset": 48,
            "group": GROUP,
            "delayLevel": 0,
            "originMsgId": "x",
            "originTopic": "orders",
            "unitMode": "false",
            "maxReconsumeTimes": 16,
        }
    ),
    Code.END_TRANSACTION: Template(
        {
            "producerGroup": "producers",
            "tranStateTableOffset": 0,
            "commitLogOffset": 48,
            "commitOrRollback": 8,
            "fromTransactionCheck": "false",
            "msgId": "x",
            "transactionId": "x",
        }
    ),
    Code.GET_CONSUMER_LIST_BY_GROUP: Template({"consumerGroup": GROUP}),
    Code.LOCK_BATCH_MQ: Template({}, _locks()),
    Code.UNLOCK_BATCH_MQ: Template({}, _locks()),
    Code.GET_ALL_CONSUMER_OFFSET: Template({}),
    Code.GET_ALL_DELAY_OFFSET: Template({}),
    Code.GET_TIMER_CHECK_POINT: Template({}),
    Code.GET_TIMER_METRICS: Template({}),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: Template({}),
    Code.CHECK_CLIENT_CONFIG: Template(
        {},
        _json(
            clientId="fuzz",
            group=GROUP,
            subscriptionData={"topic": "orders", "subString": "a > 5", "expressionType": "SQL92"},
        ),
    ),
    Code.UPDATE_AND_CREATE_ACL_CONFIG: Template(
        {
            "accessKey": "user1234",
            "secretKey": "secret12",
            "admin": "false",
            "topicPerms": "orders=PUB",
            "groupPerms": "billing=SUB",
            "defaultTopicPerm": "DENY",
            "defaultGroupPerm": "DENY",
            "whiteRemoteAddress": "10.0.0.1",
        }
    ),
    Code.DELETE_ACL_CONFIG: Template({"accessKey": "user1234"}),
    Code.GET_BROKER_CLUSTER_ACL_INFO: Template({}),
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Template({"globalWhiteAddrs": "10.0.0.1"}),
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: Template({}),
    Code.PUT_KV_CONFIG: Template(_VALUE),
    Code.GET_KV_CONFIG: Template(_VALUE),
    Code.DELETE_KV_CONFIG: Template(_VALUE),
    Code.REGISTER_BROKER: Template(
        {
            "brokerName": "java",
            "brokerAddr": "127.0.0.1:10911",
            "clusterName": "java",
            "haServerAddr": "127.0.0.1:10912",
            "brokerId": 0,
            "compressed": "false",
            "bodyCrc32": 0,
        },
        _json(
            filterServerList=[],
            topicConfigSerializeWrapper={
                "dataVersion": {"counter": 1, "timestamp": NOW_MS},
                "topicConfigTable": {
                    "java-orders": {
                        "order": False,
                        "perm": 6,
                        "readQueueNums": 4,
                        "topicName": "java-orders",
                        "topicSysFlag": 0,
                        "writeQueueNums": 4,
                    }
                },
            },
        ),
    ),
    Code.UNREGISTER_BROKER: Template(
        {
            "brokerName": "java",
            "brokerAddr": "127.0.0.1:10911",
            "clusterName": "java",
            "brokerId": 0,
        }
    ),
    Code.GET_ROUTEINFO_BY_TOPIC: Template({"topic": "orders", "acceptStandardJsonOnly": "true"}),
    Code.GET_BROKER_CLUSTER_INFO: Template({}),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Template(
        {},
        _json(
            groupName="made",
            consumeEnable=True,
            consumeFromMinEnable=True,
            brokerId=0,
            consumeBroadcastEnable=True,
            retryQueueNums=1,
            retryMaxTimes=16,
            whichBrokerWhenConsumeSlowly=1,
            notifyConsumerIdsChangedEnable=True,
        ),
    ),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Template(
        {}, _json(groupConfigList=[{"groupName": "made", "retryMaxTimes": 4}])
    ),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Template({}),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: Template({"group": GROUP}),
    Code.GET_TOPIC_STATS_INFO: Template({"topic": "orders"}),
    Code.GET_CONSUMER_CONNECTION_LIST: Template({"consumerGroup": GROUP}),
    Code.GET_PRODUCER_CONNECTION_LIST: Template({"producerGroup": "producers"}),
    Code.WIPE_WRITE_PERM_OF_BROKER: Template({"brokerName": "broker-z"}),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Template({}),
    Code.DELETE_SUBSCRIPTIONGROUP: Template({"groupName": "made", "removeOffset": "true"}),
    Code.GET_CONSUME_STATS: Template({"consumerGroup": GROUP, "topic": "orders"}),
    Code.DELETE_TOPIC_IN_BROKER: Template({"topic": "made"}),
    Code.DELETE_TOPIC_IN_NAMESRV: Template({"topic": "made"}),
    Code.GET_KVLIST_BY_NAMESPACE: Template({"namespace": "spaces"}),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: Template(
        {"topic": "orders", "group": GROUP, "timestamp": NOW_MS, "isForce": "true"}
    ),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Template(
        {"topic": "orders", "group": GROUP, "clientAddr": "fuzz"}
    ),
    Code.GET_TOPICS_BY_CLUSTER: Template({"cluster": "DefaultCluster"}),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: Template({"topic": "orders"}),
    Code.QUERY_CONSUME_TIME_SPAN: Template({"topic": "orders", "group": GROUP}),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: Template({}),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Template({}),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: Template({}),
    Code.GET_CONSUMER_RUNNING_INFO: Template(
        {"consumerGroup": GROUP, "clientId": "fuzz", "jstackEnable": "false"}
    ),
    Code.QUERY_CORRECTION_OFFSET: Template(
        {"topic": "orders", "filterGroups": "a,b", "compareGroup": GROUP}
    ),
    Code.CONSUME_MESSAGE_DIRECTLY: Template(
        {"consumerGroup": GROUP, "clientId": "fuzz", "msgId": "7F00000100002A9F0000000000000030"}
    ),
    Code.GET_UNIT_TOPIC_LIST: Template({}),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: Template({}),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Template({}),
    Code.CLONE_GROUP_OFFSET: Template(
        {"srcGroup": GROUP, "destGroup": "copied", "topic": "orders", "offline": "true"}
    ),
    Code.VIEW_BROKER_STATS_DATA: Template({"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}),
    Code.CLEAN_UNUSED_TOPIC: Template({}),
    Code.GET_BROKER_CONSUME_STATS: Template({"isOrder": "false"}),
    Code.UPDATE_NAMESRV_CONFIG: Template({}, b"orderMessageEnable=true"),
    Code.GET_NAMESRV_CONFIG: Template({}),
    Code.QUERY_CONSUME_QUEUE: Template({**_OF_GROUP, "index": 0, "count": 10}),
    Code.QUERY_DATA_VERSION: Template(
        {
            "brokerName": "java",
            "brokerAddr": "127.0.0.1:10911",
            "clusterName": "java",
            "brokerId": 0,
        },
        _json(counter=1, timestamp=NOW_MS),
    ),
    Code.BROKER_HEARTBEAT: Template(
        {
            "brokerName": "java",
            "brokerAddr": "127.0.0.1:10911",
            "clusterName": "java",
            "brokerId": 0,
        }
    ),
    Code.RESUME_CHECK_HALF_MESSAGE: Template({"msgId": "7F00000100002A9F0000000000000030"}),
    Code.ADD_WRITE_PERM_OF_BROKER: Template({"brokerName": "broker-z"}),
    Code.GET_ALL_PRODUCER_INFO: Template({}),
    Code.DELETE_EXPIRED_COMMITLOG: Template({}),
}
"""Every code that a broker or a name server is asked."""
