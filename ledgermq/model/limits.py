"""Limits of RocketMQ 4.9.4's format, and of the local protocol, each with its reason."""

from __future__ import annotations

import re

TOPIC_SIZE_MAX = 127
"""The topic's length is one signed byte on disk."""

STORED_TOPIC_SIZE_MAX = 255
"""RocketMQ 5 stores longer ones, retry topics of POP: each is the name of a folder, too."""

PROPERTIES_SIZE_MAX = 32_767
"""The length of the properties is a signed 16-bit number on disk."""

BODY_SIZE_MAX = 4 * 1024 * 1024
"""RocketMQ's ``maxMessageSize``."""

ENTRY_SIZE_MAX = 4 * 1024 * 1024
"""DLedger 0.2.6 encodes an entry in a 4 MiB buffer: a larger one is one that it cannot store."""

TOPIC_CHARACTERS = r"^[%|a-zA-Z0-9_-]+$"
"""RocketMQ's ``TopicValidator``."""

TOPIC_NAME = re.compile(TOPIC_CHARACTERS)

GROUP_SIZE_MAX = 255
"""RocketMQ's ``Validators.CHARACTER_MAX_LENGTH``."""

LEVEL_MAX, TIMES_MAX = 1_000, 1_000_000
"""Bounds of a message that is given back: its delay level, and how often it was given back."""

TIMESTAMP_MAX = 2**63 - 1
"""Later than all times."""

CLIENT_NAME_SIZE_MAX = 255
"""Characters of a client's name, as an operator sees it."""

FRAME_SIZE_MAX = 8 * 1024 * 1024
"""Largest payload of one send frame: two of the largest messages and their tables."""

FRAME_RECORDS_MAX = 65_536
"""Most records in one send frame."""

QUEUE_ID_MAX = 65_535
QUEUE_OFFSET_MAX = 2**63 - 1
"""Most queues a topic can have here; RocketMQ's largest built-in topic has 1,024."""

SYSTEM_TOPIC = "LEDGERMQ_SYSTEM"
"""Reserved topic of the entries that the node writes for itself."""

DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Where messages of RocketMQ's delay levels wait, a queue each level."""

TIMER_TOPIC = "LEDGERMQ_TIMER"
"""Where messages wait that have a time of delivery of their own."""

STAGED_TOPIC = "LEDGERMQ_STAGED"
"""Where rows of batches wait that are not committed, many in a message."""

DELIVERY_AHEAD_MS_MAX = 366 * 24 * 3_600_000
"""Farthest time of delivery: a year, also one with a leap day."""

RECEIPTS_TOPIC = "LEDGERMQ_RECEIPTS"
"""Where the checkpoints of receipts are, each a message of queue 0."""

LASTING_TOPICS = frozenset({SYSTEM_TOPIC, RECEIPTS_TOPIC})
"""Topics that stay in sealed pieces: tables are made of the one, and proofs of the other."""

FORBIDDEN_TOPICS = frozenset(
    {
        DELAY_TOPIC,
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        SYSTEM_TOPIC,
        TIMER_TOPIC,
        STAGED_TOPIC,
        RECEIPTS_TOPIC,
    }
)
"""Topics that clients may not send to (RocketMQ's list and our own)."""

DEDUPLICATION_WINDOW_MS_MIN = 1_000
DEDUPLICATION_WINDOW_MS_MAX = 7 * 24 * 60 * 60 * 1_000
"""How long unique ids may count: stored times are compared, which clocks of nodes give."""

KEEP_MS_MAX = 100 * 365 * 24 * 60 * 60 * 1_000
KEEP_BYTES_MAX = 1 << 60
"""How old messages get in sealed pieces, and how much of a topic stays there."""

UNIQUE_ID_SIZE_MAX = 128
"""Characters of a unique id that an application gives; a producer's own have 32."""
