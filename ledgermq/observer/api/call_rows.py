"""The rows of all calls."""

from __future__ import annotations

from ledgermq.observer.api.calls import ApiCall
from ledgermq.observer.api.group_rows import GROUP_CALLS
from ledgermq.observer.api.message_rows import MESSAGE_CALLS
from ledgermq.observer.api.node_rows import NODE_CALLS
from ledgermq.observer.api.topic_rows import TOPIC_CALLS

CALLS: tuple[ApiCall, ...] = (*NODE_CALLS, *TOPIC_CALLS, *GROUP_CALLS, *MESSAGE_CALLS)
