"""What each page of RocketMQ's dashboard changes, and how that is seen."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.compat.dashboard_walk import (
    QUEUES,
    READER,
    Call,
    Visitor,
)
from tests.compat.dashboards import Answer
from tests.compat.remoting_group import BROKER_NAME
from tests.process.group_nodes import TOPIC


class Changes(Visitor):
    """What buttons change: topics, groups, messages, offsets, the dashboard's own settings."""

    def changes(self) -> list[Call]:
        """What buttons change: topics, groups, messages, offsets, the dashboard's own settings."""
        pages = [
            self._topic_changes(), self._group_changes(), self._message_changes(),
            self._offset_changes(), self._deletions(), self._own_changes(),
        ]  # fmt: skip
        return [call for page in pages for call in page]

    def _topic_changes(self) -> list[Call]:
        def config(name: str, queues: int) -> dict[str, object]:
            return {
                "clusterNameList": [BROKER_NAME], "brokerNameList": [BROKER_NAME],
                "topicName": name, "writeQueueNums": queues, "readQueueNums": queues,
                "perm": 6, "order": False, "messageType": "NORMAL",
            }  # fmt: skip

        make, look = "topic/createOrUpdate.do", "topic/examineTopicConfig.query"
        calls = []
        for queues, what in ((4, "makes"), (8, "alters")):
            calls += [
                self._post(
                    "topic", f"{make} that {what}", bool, config(self._topic, queues)
                ),
                self._get(
                    "topic", f"{look} of what it {what}",
                    partial(self._is_config, topic=self._topic, queues=queues),
                    topic=self._topic,
                ),
                self._get(
                    "topic", f"topic/route.query of what it {what}",
                    partial(self._has_queues, queues=queues), topic=self._topic,
                ),
            ]  # fmt: skip
        return calls

    @staticmethod
    def _has_queues(told: Any, queues: int) -> bool:
        (one,) = told["queueDatas"]
        return bool(one["readQueueNums"] == queues)

    def _group_changes(self) -> list[Call]:
        def config(tries: int) -> dict[str, object]:
            return {
                "clusterNameList": [BROKER_NAME], "brokerNameList": [BROKER_NAME],
                "subscriptionGroupConfig": {
                    "groupName": self._group, "consumeEnable": True, "consumeFromMinEnable": True,
                    "consumeBroadcastEnable": True, "retryQueueNums": 1, "retryMaxTimes": tries,
                    "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
                },
            }  # fmt: skip

        make, look = "consumer/createOrUpdate.do", "consumer/examineSubscriptionGroupConfig.query"
        named = {"consumeGroupName": READER}
        calls = []
        for tries, what in ((5, "makes"), (7, "alters")):
            calls += [
                self._post("consumer", f"{make} that {what}", bool, config(tries)),
                self._get(
                    "consumer", f"{look} of what it {what}",
                    partial(self._is_group, group=self._group, tries=tries),
                    consumerGroup=self._group,
                ),
            ]  # fmt: skip
        monitor = "monitor/createOrUpdateConsumerMonitor.do"
        return [
            *calls,
            self._post("consumer", monitor, bool, minCount=1, maxDiffTotal=9, **named),
            self._get(
                "consumer", "monitor/consumerMonitorConfigByGroupName.query",
                lambda told: (told["minCount"], told["maxDiffTotal"]) == (1, 9), **named,
            ),
            self._post("consumer", "monitor/deleteConsumerMonitor.do", bool, **named),
        ]  # fmt: skip

    def _message_changes(self) -> list[Call]:
        sent = {
            "topic": self._topic, "key": "typed", "tag": "by-hand", "messageBody": "from a page",
            "traceEnabled": True,
        }  # fmt: skip
        unique: list[str] = []

        def is_sent(told: Any) -> bool:
            unique[:] = [told["msgId"]]
            return bool(told["sendStatus"] == "SEND_OK")

        def trace() -> Answer:
            """That of the message; where there is none, the next one's, which is sent.

            Who writes it is a client of its own, and one of RocketMQ 5 that finds its name server
            down gives it up.
            """
            asked = {"msgId": "".join(unique)}
            found = self._board.get("messageTrace/viewMessageTraceGraph.query", asked)
            if found.refusal or found.data["producerNode"] is None:
                again = self._board.post("topic/sendTopicMessage.do", body=sent)
                if not again.refusal:
                    is_sent(again.data)
            return found

        def resend(*, is_batch: bool) -> Answer:
            # As pages do it: the message that died goes to the consumer again, not its dead letter.
            failed, letter = self._dead()
            if not letter:
                return failed
            named = letter["properties"]
            asked = {"consumerGroup": READER, "msgId": named["ORIGIN_MESSAGE_ID"]}
            topic = named["RETRY_TOPIC"]
            if is_batch:
                body = [asked | {"topicName": topic}]
                return self._board.post("dlqMessage/batchResendDlqMessage.do", body=body)
            return self._board.post("message/consumeMessageDirectly.do", asked | {"topic": topic})

        calls = [
            self._post("topic", "topic/sendTopicMessage.do", is_sent, sent),
            self._get(
                "message", "message/queryMessageByTopicAndKey.query of what was sent",
                lambda told: {one["messageBody"] for one in told} == {"from a page"},
                topic=self._topic, key="typed",
            ),
            Call(
                "trace", "messageTrace/viewMessageTraceGraph.query of what was sent", trace,
                lambda told: told["producerNode"]["traceNode"]["status"] == "success",
            ),
            Call(
                "message", "message/consumeMessageDirectly.do", partial(resend, is_batch=False),
                lambda told: told["consumeResult"] == "CR_SUCCESS",
            ),
        ]  # fmt: skip
        if not self._is_old:
            calls.append(
                Call(
                    "dead letters", "dlqMessage/batchResendDlqMessage.do",
                    partial(resend, is_batch=True),
                    lambda told: [one["consumeResult"] for one in told] == ["CR_SUCCESS"],
                )
            )  # fmt: skip
        return calls

    def _offset_changes(self) -> list[Call]:
        def wanted(group: str, reset_ms: int) -> dict[str, object]:
            return {
                "consumerGroupList": [group], "topic": TOPIC, "resetTime": reset_ms, "force": True,
            }  # fmt: skip

        def is_at(told: Any, group: str, offsets: int) -> bool:
            rows = told[group]["rollbackStatsList"]
            return (
                told[group]["status"]
                and len(rows) == QUEUES
                and sum(row["rollbackOffset"] for row in rows) == offsets
            )

        return [
            self._post(
                "topic", "consumer/resetOffset.do",
                lambda told: is_at(told, self._group, 0), wanted(self._group, self._begin),
            ),
            self._get(
                "topic", "topic/queryConsumerByTopic.query of the reset one",
                lambda told: READER in told, topic=TOPIC,
            ),
            self._post(
                "topic", "consumer/skipAccumulate.do",
                lambda told: is_at(told, READER, len(self._life.sent)), wanted(READER, -1),
            ),
        ]  # fmt: skip

    def _deletions(self) -> list[Call]:
        gone = f"{self._topic}-gone"
        made = {
            "clusterNameList": [BROKER_NAME], "brokerNameList": [], "topicName": gone,
            "writeQueueNums": 1, "readQueueNums": 1, "perm": 6, "order": False,
        }  # fmt: skip
        group = {"groupName": self._group, "brokerNameList": [BROKER_NAME]}
        look = "consumer/examineSubscriptionGroupConfig.query"
        return [
            self._post("consumer", "consumer/deleteSubGroup.do", bool, group),
            self._get(
                "consumer", f"{look} of a deleted one", lambda told: not told,
                consumerGroup=self._group,
            ),
            # 2.1.0 has the group's offsets deleted with it.
            self._get(
                "topic", "topic/queryTopicConsumerInfo.query of a deleted one",
                lambda told: READER in told["groupList"]
                and (self._is_old or self._group not in told["groupList"]), topic=TOPIC,
            ),
            self._post("topic", "topic/createOrUpdate.do in a cluster", bool, made),
            self._post(
                "topic", "topic/deleteTopicByBroker.do", bool, brokerName=BROKER_NAME, topic=gone,
            ),
            self._post("topic", "topic/deleteTopic.do", bool, topic=self._topic),
            self._post("topic", "topic/deleteTopic.do of the other", bool, topic=gone),
            self._get(
                "topic", "topic/list.query without the deleted",
                lambda told: not {self._topic, gone} & set(told["topicList"])
                and TOPIC in told["topicList"],
            ),
        ]  # fmt: skip

    def _own_changes(self) -> list[Call]:
        servers = self._life.name_servers
        calls = [
            self._post("ops", "ops/updateIsVIPChannel.do", bool, useVIPChannel="false"),
            self._get("ops", "cluster/list.query without VIP", lambda told: told["brokerServer"]),
            self._post("ops", "ops/updateIsVIPChannel.do back", bool, useVIPChannel="true"),
            self._post("ops", "ops/updateUseTLS.do", bool, useTLS="false"),
            self._post("ops", "ops/updateNameSvrAddr.do", bool, nameSvrAddrList=servers),
            self._get("ops", "cluster/list.query again", lambda told: told["brokerServer"]),
        ]
        if not self._is_old:
            calls += [
                self._post("ops", "ops/addNameSvrAddr.do", bool, newNamesrvAddr=servers),
                self._post("proxy", "proxy/addProxyAddr.do", bool, newProxyAddr="127.0.0.1:1"),
                self._post("proxy", "proxy/updateProxyAddr.do", bool, proxyAddr="127.0.0.1:8080"),
            ]
        return calls
