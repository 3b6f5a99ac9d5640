"""What each page of RocketMQ's dashboard shows, and what is right of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from tests.compat.dashboard_walk import (
    CHARTS_S,
    COUNTS,
    DEAD_TOPIC,
    HOUR_MS,
    PRODUCER,
    QUEUES,
    RATES,
    READER,
    RETRY_TOPIC,
    Call,
    Visitor,
)
from tests.compat.dashboards import Answer
from tests.compat.remoting_group import BROKER_NAME
from tests.process.group_nodes import TOPIC


class Reads(Visitor):
    """What pages ask for when they are opened, and what their buttons show."""

    def reads(self) -> list[Call]:
        """What pages ask for when they are opened, and what their buttons show."""
        pages = [
            self._ops(), self._cluster(), self._topics(), self._consumers(), self._producers(),
            self._messages(), self._traces(), self._dead_letters(),
        ]  # fmt: skip
        if not self._is_old:
            pages += [self._proxies(), self._rights()]
        return [call for page in pages for call in page]

    def charts(self) -> list[Call]:
        """The start page, whose curves it collects by itself."""
        today = datetime.now().strftime("%Y-%m-%d")
        current = "dashboard/topicCurrent" + ("" if self._is_old else ".query")
        leader = f"{BROKER_NAME}:0"
        page = "dashboard"
        calls = [
            self._get(page, "dashboard/broker.query", lambda told: told[leader][0], date=today),
            self._get(page, "dashboard/topic.query", lambda told: told[TOPIC][0], date=today),
            self._get(
                page, "dashboard/topic.query of one", bool, date=today, topicName=TOPIC,
            ),
            self._get(
                page, current, lambda told: any(one.startswith(f"{TOPIC},") for one in told),
            ),
        ]  # fmt: skip
        return [one._replace(settles_s=CHARTS_S) for one in calls]

    def _ops(self) -> list[Call]:
        servers = self._life.name_servers
        named = "rocketmq/nsaddr" + ("" if self._is_old else ".query")
        return [
            self._get("sign-in", "login/check.query", lambda told: not told["loginRequired"]),
            self._get("ops", named, lambda told: told == servers.encode()),
            # It is shipped with the VIP channel on.
            self._get(
                "ops", "ops/homePage.query",
                lambda told: told["useVIPChannel"] and not told["useTLS"]
                and ";".join(told["namesvrAddrList"]) == servers,
            ),
            self._get("ops", "ops/rocketMqStatus.query", lambda told: len(told) == 2),
        ]  # fmt: skip

    def _cluster(self) -> list[Call]:
        def is_listed(told: Any) -> bool:
            addresses = told["clusterInfo"]["brokerAddrTable"][BROKER_NAME]["brokerAddrs"]
            shown = told["brokerServer"][BROKER_NAME]
            return (
                told["clusterInfo"]["clusterAddrTable"] == {BROKER_NAME: [BROKER_NAME]}
                and addresses.keys() == shown.keys()
                and len(addresses) == self._members
                and "0" in addresses
                and all(one["brokerVersionDesc"] == "V4_9_4" for one in shown.values())
                and all(int(one["commitLogMaxOffset"]) > 0 for one in shown.values())
                and all(float(one[key].split()[0]) >= 0 for key in RATES for one in shown.values())
                and all(int(one[key]) >= 0 for key in COUNTS for one in shown.values())
            )

        return [
            self._get("cluster", "cluster/list.query", is_listed),
            Call(
                "cluster", "cluster/brokerConfig.query", self._config_of_each,
                lambda told: all(one["brokerName"] == BROKER_NAME for one in told),
            ),
        ]  # fmt: skip

    def _config_of_each(self) -> Answer:
        listed = self._board.get("cluster/list.query")
        if listed.refusal:
            return listed
        table = listed.data["clusterInfo"]["brokerAddrTable"][BROKER_NAME]["brokerAddrs"]
        told = [
            self._board.get("cluster/brokerConfig.query", {"brokerAddr": address})
            for address in table.values()
        ]
        refusal = next((one.refusal for one in told if one.refusal), "")
        return Answer(refusal, [one.data for one in told])

    def _topics(self) -> list[Call]:
        count = len(self._life.sent)

        def has_all(told: Any) -> bool:
            rows = [row for key, row in told["offsetTable"].items() if f"topic={TOPIC}," in key]
            return (
                len(rows) == QUEUES
                and sum(row["maxOffset"] - row["minOffset"] for row in rows) == count
            )

        def is_route(told: Any) -> bool:
            (broker,), (queues,) = told["brokerDatas"], told["queueDatas"]
            return (
                len(broker["brokerAddrs"]) == self._members
                and "0" in broker["brokerAddrs"]
                and (queues["brokerName"], queues["readQueueNums"], queues["perm"])
                == (BROKER_NAME, QUEUES, 6)
            )

        calls = [
            self._get(
                "topic", "topic/list.query",
                lambda told: {TOPIC, RETRY_TOPIC, DEAD_TOPIC} <= set(told["topicList"]),
            ),
            self._get("topic", "topic/stats.query", has_all, topic=TOPIC),
            self._get("topic", "topic/route.query", is_route, topic=TOPIC),
            self._get(
                "topic", "topic/queryConsumerByTopic.query",
                lambda told: self._has_read_all([told[READER]]), topic=TOPIC,
            ),
            self._get(
                "topic", "topic/queryTopicConsumerInfo.query",
                lambda told: READER in told["groupList"], topic=TOPIC,
            ),
            self._get(
                "topic", "topic/examineTopicConfig.query",
                lambda told: self._is_config(told, TOPIC, QUEUES), topic=TOPIC,
            ),
        ]  # fmt: skip
        if not self._is_old:
            calls.append(
                self._get(
                    "topic", "topic/list.queryTopicType",
                    lambda told: told["messageTypeList"][told["topicNameList"].index(TOPIC)],
                )
            )  # fmt: skip
        return calls

    def _has_read_all(self, told: Any) -> bool:
        """Whether a group has had all messages, queue by queue, and who reads each."""
        (one,) = [row for row in told if row["topic"] == TOPIC]
        rows = one["queueStatInfoList"]
        return (
            one["diffTotal"] == 0
            and len(rows) == QUEUES
            and all(row["clientInfo"] == self._life.consumer for row in rows)
            and sum(row["consumerOffset"] for row in rows) == len(self._life.sent)
        )

    def _consumers(self) -> list[Call]:
        consumer = self._life.consumer

        def is_shown(told: Any) -> bool:
            return bool(
                (told["group"], told["count"], told["diffTotal"], told["messageModel"])
                == (READER, 1, 0, "CLUSTERING")
            )

        def is_running(told: Any) -> bool:
            queues = [key for key in told["mqTable"] if f"topic={TOPIC}," in key]
            return len(queues) == QUEUES

        calls = [
            self._get(
                "consumer", "consumer/groupList.query",
                lambda told: any(row["group"] == READER for row in told),
                **({} if self._is_old else {"skipSysGroup": "false", "address": ""}),
            ),
            self._get("consumer", "consumer/group.query", is_shown, consumerGroup=READER),
            self._of_reader("consumer/queryTopicByConsumer.query", self._has_read_all),
            self._of_reader(
                "consumer/consumerConnection.query",
                lambda told: [one["clientId"] for one in told["connectionSet"]] == [consumer]
                and TOPIC in told["subscriptionTable"],
            ),
            self._get(
                "consumer", "consumer/consumerRunningInfo.query", is_running,
                consumerGroup=READER, clientId=consumer, jstack="false",
            ),
            self._get(
                "consumer", "consumer/consumerRunningInfo.query with stacks",
                lambda told: is_running(told) and "java.lang.Thread" in told["jstack"],
                consumerGroup=READER, clientId=consumer, jstack="true",
            ),
            self._get(
                "consumer", "consumer/examineSubscriptionGroupConfig.query",
                lambda told: self._is_group(told, READER, 16), consumerGroup=READER,
            ),
            self._get(
                "consumer", "consumer/fetchBrokerNameList.query",
                lambda told: told == [BROKER_NAME], consumerGroup=READER,
            ),
            self._get("consumer", "monitor/consumerMonitorConfig.query", lambda told: told == {}),
        ]  # fmt: skip
        if not self._is_old:
            refreshed = "consumer/group.refresh"
            calls += [
                self._get(
                    "consumer", refreshed + ".all",
                    lambda told: any(map(is_shown, [r for r in told if r["group"] == READER])),
                ),
                self._get("consumer", refreshed, is_shown, consumerGroup=READER),
            ]  # fmt: skip
        return calls

    def _of_reader(self, path: str, is_right: Callable[[Any], object]) -> Call:
        """A call about the consumers, for which the page of 2.1.0 gives addresses of its list."""

        def ask() -> Answer:
            asked = {"consumerGroup": READER}
            if not self._is_old:
                listed = self._board.get("consumer/group.refresh.all")
                if listed.refusal:
                    return listed
                (row,) = [one for one in listed.data if one["group"] == READER]
                asked["address"] = ",".join(row["address"])
            return self._board.get(path, asked)

        return Call("consumer", path, ask, is_right)

    def _producers(self) -> list[Call]:
        return [
            self._get(
                "producer", "producer/producerConnection.query",
                lambda told: [one["clientId"] for one in told["connectionSet"]]
                == [self._life.producer],
                producerGroup=PRODUCER, topic=TOPIC,
            )
        ]  # fmt: skip

    def _within(self, topic: str, page: int = 1, size: int = 20) -> dict[str, object]:
        return {
            "topic": topic, "begin": self._begin, "end": self._begin + 2 * HOUR_MS,
            "pageNum": page, "pageSize": size, "taskId": self._task,
        }  # fmt: skip

    def _messages(self) -> list[Call]:
        sent = self._life.sent
        unique_id, offset_id = sent[0]

        def is_page(told: Any) -> bool:
            self._task = told["taskId"]
            page = told["page"]
            return page["totalElements"] == len(sent) and len(page["content"]) == QUEUES

        def is_view(told: Any) -> bool:
            # RocketMQ's tools look no further where another broker leads than stored the message.
            view = told["messageView"]
            wanted = "CONSUMED" if view["storeHost"].endswith(told["leader"]) else "NOT_CONSUME_YET"
            tracks = {one["consumerGroup"]: one["trackType"] for one in told["messageTrackList"]}
            return view["messageBody"] == "body 0" and tracks[READER] == wanted

        paged, viewed = "message/queryMessagePageByTopic.query", "message/viewMessage.query"
        return [
            self._get(
                "message", "message/queryMessageByTopic.query",
                lambda told: {one["msgId"] for one in told} == {one for one, _ in sent},
                topic=TOPIC, begin=self._begin, end=self._begin + 2 * HOUR_MS,
            ),
            self._post("message", paged, is_page, self._within(TOPIC, size=QUEUES)),
            Call(
                "message", f"{paged} of page 2",
                lambda: self._board.post(paged, body=self._within(TOPIC, page=2, size=QUEUES)),
                lambda told: is_page(told) and told["page"]["number"] == 1,
            ),
            self._get(
                "message", "message/queryMessageByTopicAndKey.query",
                lambda told: [(one["msgId"], one["messageBody"]) for one in told]
                == [(unique_id, "body 0")],
                topic=TOPIC, key="key0",
            ),
            Call("message", viewed, partial(self._viewed, unique_id), is_view),
            Call("message", f"{viewed} by place", partial(self._viewed, offset_id), is_view),
        ]  # fmt: skip

    def _viewed(self, message: str) -> Answer:
        """A message, and the address of who leads."""
        listed = self._board.get("cluster/list.query")
        asked = {"topic": TOPIC, "msgId": message}
        viewed = self._board.get("message/viewMessage.query", asked)
        if listed.refusal or viewed.refusal:
            return Answer(viewed.refusal or listed.refusal, None)
        addresses = listed.data["clusterInfo"]["brokerAddrTable"][BROKER_NAME]["brokerAddrs"]
        return Answer("", viewed.data | {"leader": addresses["0"]})

    def _traces(self) -> list[Call]:
        unique_id, _ = self._life.sent[0]

        def is_graph(told: Any) -> bool:
            (group,) = told["subscriptionNodeList"]
            (read,) = group["consumeNodeList"]
            return (
                told["producerNode"]["groupName"] == PRODUCER
                and told["producerNode"]["traceNode"]["status"] == "success"
                and (group["subscriptionGroup"], read["status"]) == (READER, "success")
            )

        return [
            self._get(
                "trace", "messageTrace/viewMessage.query",
                lambda told: told["messageView"]["messageBody"] == "body 0",
                topic=TOPIC, msgId=unique_id,
            ),
            self._get(
                "trace", "messageTrace/viewMessageTraceDetail.query",
                lambda told: {"Pub", "SubBefore", "SubAfter"} == {one["traceType"] for one in told},
                msgId=unique_id,
            ),
            self._get(
                "trace", "messageTrace/viewMessageTraceGraph.query", is_graph,
                msgId=unique_id, traceTopic="RMQ_SYS_TRACE_TOPIC",
            ),
        ]  # fmt: skip

    def _dead_letters(self) -> list[Call]:
        original, _ = self._life.sent[-1]
        last = f"body {len(self._life.sent) - 1}"

        def view() -> Answer:
            failed, letter = self._dead()
            if not letter:
                return failed
            asked = {"topic": DEAD_TOPIC, "msgId": letter["msgId"]}
            return self._board.get("message/viewMessage.query", asked)

        calls = [
            Call(
                "dead letters", "message/viewMessage.query of a dead letter", view,
                lambda told: told["messageView"]["messageBody"] == last
                and told["messageView"]["properties"]["RETRY_TOPIC"] == TOPIC,
            )
        ]  # fmt: skip
        if not self._is_old:
            calls += [
                self._post(
                    "dead letters", "dlqMessage/queryDlqMessageByConsumerGroup.query",
                    lambda told: [one["msgId"] for one in told["page"]["content"]] == [original],
                    self._within(DEAD_TOPIC) | {"taskId": ""},
                ),
                Call(
                    "dead letters", "dlqMessage/exportDlqMessage.do",
                    lambda: self._exported(is_batch=False), self._is_sheet,
                ),
                Call(
                    "dead letters", "dlqMessage/batchExportDlqMessage.do",
                    lambda: self._exported(is_batch=True), self._is_sheet,
                ),
            ]  # fmt: skip
        return calls

    def _exported(self, *, is_batch: bool) -> Answer:
        failed, letter = self._dead()
        if not letter:
            return failed
        asked = {"consumerGroup": READER, "msgId": letter["msgId"]}
        if is_batch:
            return self._board.post("dlqMessage/batchExportDlqMessage.do", body=[asked])
        return self._board.get("dlqMessage/exportDlqMessage.do", asked)

    @staticmethod
    def _is_sheet(told: bytes) -> bool:
        # A table of Excel is an archive.
        return told.startswith(b"PK")

    def _proxies(self) -> list[Call]:
        return [self._get("proxy", "proxy/homePage.query", lambda told: told["proxyAddrList"])]

    def _rights(self) -> list[Call]:
        of = {"clusterName": BROKER_NAME}
        user = {"username": "walker", "password": "secret12", "userType": "Normal"}
        return [
            self._get("acl", "acl/users.query", lambda told: told == [], **of),
            self._get("acl", "acl/acls.query", lambda told: told == [], **of),
            self._post("acl", "acl/createUser.do", bool, of | {"userInfo": user}),
        ]
