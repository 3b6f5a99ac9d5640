"""Tables of RocketMQ's as they are met: edited by hand, written by scripts and other versions.

Each form is a text and what is read of it, by RocketMQ 4.9.4's own classes and by ours; None: both
refuse it. ``tests/compat/test_table_texts.py`` asks RocketMQ.
"""

from __future__ import annotations

from typing import Any, NamedTuple

TOPIC = (
    '{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
    '"topicName":"alpha","topicSysFlag":0,"writeQueueNums":4}'
)
TOPICS = '{"dataVersion":{"counter":7,"timestamp":1700000000000},"topicConfigTable":{"alpha":%s}}'
PLAIN = TOPICS % TOPIC
ALPHA = {"version": [7, 1_700_000_000_000], "rows": {"alpha": [4, 4, 6, False, 0]}}
OFFSETS = {"rows": {"alpha@g": {"0": 3, "1": 0}}}


class Form(NamedTuple):
    """A text of a kind of table, and what is read of it."""

    name: str
    kind: str
    text: str
    read: dict[str, Any] | None


def _alpha(**more: Any) -> dict[str, Any]:
    row = {"read": 4, "write": 4, "perm": 6, "order": False, "flag": 0, **more}
    return {**ALPHA, "rows": {"alpha": list(row.values())}}


THREE = '"perm":6,"readQueueNums":4,"writeQueueNums":4'


def _topic(fields: str) -> str:
    return TOPICS % f"{{{fields}}}"


FORMS = (
    Form("plain", "topics", PLAIN, ALPHA),
    Form("comma behind the last", "topics", PLAIN[:-2] + ",},}", ALPHA),
    Form("commas", "topics", PLAIN.replace(',"perm"', ',,, ,"perm"'), ALPHA),
    Form("single quotes", "topics", PLAIN.replace('"', "'"), ALPHA),
    Form(
        "bare names",
        "topics",
        PLAIN.replace('"', "").replace("SINGLE_TAG", "'X'").replace(":alpha,", ":'alpha',"),
        ALPHA,
    ),
    Form("comment before", "topics", "/* edited by ops */" + PLAIN, ALPHA),
    Form("comment to the line's end", "topics", PLAIN[:-1] + "// it, us: {\n}", ALPHA),
    Form("comment without an end", "topics", PLAIN + "/* ops", ALPHA),
    Form(
        "numbers as text",
        "topics",
        _topic(
            '"order":"false","perm":"6","readQueueNums":"4","topicName":"alpha","writeQueueNums":"4"'
        ).replace("7,", '"7",'),
        ALPHA,
    ),
    Form(
        "numbers with zeros as text",
        "topics",
        _topic('"perm":"6.00","readQueueNums":"4","writeQueueNums":"0,004"'),
        ALPHA,
    ),
    Form(
        "nulls",
        "topics",
        _topic('"order":null,"perm":6,"readQueueNums":null,"writeQueueNums":4'),
        _alpha(read=16),
    ),
    Form(
        "null as text",
        "topics",
        _topic('"order":"null","perm":"","readQueueNums":"NULL","writeQueueNums":4'),
        _alpha(read=16),
    ),
    Form(
        "undefined",
        "topics",
        _topic('"perm":undefined,"readQueueNums":NULL,"writeQueueNums":4'),
        _alpha(read=16),
    ),
    Form("mark", "topics", "\ufeff" + PLAIN, ALPHA),
    Form("line ends of another system", "topics", PLAIN.replace(",", ",\r\n") + "\r\n", ALPHA),
    Form(
        "large counter",
        "topics",
        PLAIN.replace('"counter":7', '"counter":2147871249,"stateVersion":0'),
        {**ALPHA, "version": [2_147_871_249, 1_700_000_000_000]},
    ),
    Form(
        "twice, the last counts",
        "topics",
        TOPICS % (TOPIC.replace('"readQueueNums":4', '"readQueueNums":2') + ',"alpha":' + TOPIC),
        ALPHA,
    ),
    Form(
        "fields of a later version",
        "topics",
        _topic(TOPIC[1:-1] + ',"attributes":{"+message.type":"NORMAL"}'),
        ALPHA,
    ),
    Form(
        "fractions", "topics", _topic('"perm":6.0,"readQueueNums":4.9,"writeQueueNums":4e0'), ALPHA
    ),
    Form("suffixes", "topics", _topic('"perm":6L,"readQueueNums":4S,"writeQueueNums":4.D'), ALPHA),
    Form(
        "zeros in front",
        "topics",
        _topic('"perm":006,"readQueueNums":04,"writeQueueNums":4'),
        ALPHA,
    ),
    Form("plus", "topics", _topic('"perm": +6,"readQueueNums":"+4","writeQueueNums":4'), ALPHA),
    Form("flag as number", "topics", _topic('"order":1,' + THREE), _alpha(order=True)),
    Form("flag as text", "topics", _topic('"order":"Y",' + THREE), _alpha(order=True)),
    Form(
        "spelt otherwise",
        "topics",
        _topic('"isOrder":true,"Perm":2,"read_queue_nums":4,"WRITE-QUEUE-NUMS":4').replace(
            "topicConfigTable", "TopicConfigTable"
        ),
        _alpha(perm=2, order=True),
    ),
    Form("escapes", "topics", (TOPICS % TOPIC).replace('"alpha":', '"\\x61l\\u0070ha":'), ALPHA),
    Form("zeros behind", "topics", PLAIN + "\0" * 200, ALPHA),
    Form("braces behind", "topics", PLAIN + "}", None),
    Form("cut", "topics", PLAIN[:-20], None),
    Form("word for a number", "topics", _topic('"perm":six'), None),
    Form("text for a number", "topics", _topic('"perm":"six"'), None),
    Form("object for a number", "topics", _topic('"perm":{}'), None),
    Form("null for a topic", "topics", TOPICS % "null", None),
    Form("too large", "topics", _topic('"perm":99999999999999999999'), None),
    Form("no document", "topics", "null", {"version": [0, 0], "rows": {}}),
    Form(
        "group",
        "groups",
        '{"subscriptionGroupTable":{"g":{"consumeEnable":"false",retryMaxTimes:\'3\',},}}',
        {"version": [0, 0], "rows": {"g": [False, 1, 3, True, True, 0]}},
    ),
    Form(
        "group with nulls",
        "groups",
        '{"subscriptionGroupTable":{"g":{"consumeEnable":null,"brokerId":null}}}',
        {"version": [0, 0], "rows": {"g": [True, 1, 16, True, True, 0]}},
    ),
    Form("offsets", "offsets", '{"offsetTable":{"alpha@g":{0:3,1:0}}}', OFFSETS),
    Form("offsets, commas behind", "offsets", '{"offsetTable":{"alpha@g":{0:3,1:0,},},}', OFFSETS),
    Form("offsets, bare", "offsets", '{offsetTable:{"alpha@g":{0:3,1:0}}}', OFFSETS),
    Form("offsets as text", "offsets", '{"offsetTable":{"alpha@g":{"0":"3","1":"0"}}}', OFFSETS),
    Form("offsets, single quotes", "offsets", "{'offsetTable':{'alpha@g':{0:3,1:0}}}", OFFSETS),
    Form(
        "offsets, comment",
        "offsets",
        '{"offsetTable":{"alpha@g":{0:3,1:0/* reset by ops */}}}',
        OFFSETS,
    ),
    Form(
        "offsets, version",
        "offsets",
        '{"dataVersion":{"counter":3},"offsetTable":{"alpha@g":{0:3,1:0}}}',
        OFFSETS,
    ),
    Form(
        "offsets, strange names",
        "offsets",
        '{"offsetTable":{"alpha@g@x":{0:3},"alpha":{0:1},"alpha@g":{0:3,1:0}}}',
        OFFSETS,
    ),
    Form("offsets, a comma missing", "offsets", '{"offsetTable":{"alpha@g":{0:3\n1:0}}}', OFFSETS),
    Form(
        "offsets, queue below zero",
        "offsets",
        '{"offsetTable":{"alpha@g":{0:3,1:0,-1:5}}}',
        OFFSETS,
    ),
    Form("offsets, null", "offsets", '{"offsetTable":{"alpha@g":{0:null}}}', None),
    Form("delays", "delays", '{offsetTable:{1:5,"2":"6",}}', {"rows": {"1": 5, "2": 6}}),
    Form("delays, no document", "delays", "null", {"rows": {}}),
)
