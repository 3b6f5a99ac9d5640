"""RocketMQ 4.9's keys of ``broker.conf``: our setting for each, or why there is none."""

from __future__ import annotations

TRANSLATED = {
    "brokerClusterName": "node.broker_cluster_name",
    "brokerName": "node.broker_name",
    "dLegerGroup": "node.group",
    "dLegerSelfId": "node.self_id",
    "dLegerPeers": "node.peers",
    "preferredLeaderId": "raft.preferred_leaders",
    "brokerIP1": "node.broker_ip",
    "listenPort": "node.listen_port",
    "storePathRootDir": "store.path_root_dir",
    "mappedFileSizeCommitLog": "store.mapped_file_size_commit_log",
    "mappedFileSizeConsumeQueue": "store.mapped_file_size_consume_queue",
    "maxHashSlotNum": "store.max_hash_slot_num",
    "maxIndexNum": "store.max_index_num",
    "maxMessageSize": "store.max_message_size",
    "messageIndexEnable": "store.message_index_enable",
    "messageDelayLevel": "store.message_delay_level",
    "autoCreateTopicEnable": "topics.auto_create_topic_enable",
    "defaultTopicQueueNums": "topics.default_topic_queue_nums",
    "autoCreateSubscriptionGroup": "topics.auto_create_subscription_group",
    "transactionTimeOut": "transactions.transaction_timeout_ms",
    "transactionCheckInterval": "transactions.transaction_check_interval_ms",
    "transactionCheckMax": "transactions.transaction_check_max",
    "fileReservedTime": "retention.file_reserved_time",
    "deleteWhen": "retention.delete_when",
    "diskMaxUsedSpaceRatio": "retention.clean_above",
    "cleanFileForciblyEnable": "retention.force_clean",
    "osPageCacheBusyTimeOutMills": "limits.os_page_cache_busy_timeout_mills",
    "maxTransferBytesOnMessageInMemory": "reads.max_transfer_bytes_on_message_in_memory",
    "maxTransferCountOnMessageInMemory": "reads.max_transfer_count_on_message_in_memory",
    "maxTransferBytesOnMessageInDisk": "reads.max_transfer_bytes_on_message_in_disk",
    "maxTransferCountOnMessageInDisk": "reads.max_transfer_count_on_message_in_disk",
    "accessMessageInMemoryMaxRatio": "reads.access_message_in_memory_max_ratio",
    "enablePropertyFilter": "reads.enable_property_filter",
}
"""Keys with an equal."""

_OFF = frozenset({"false"})
_ON = frozenset({"true"})

SAME_WHEN: dict[str, tuple[frozenset[str], str]] = {
    "storeType": (
        frozenset({"default", "defaultrocksdb"}),
        "what is in RocksDB becomes JSON tables and queue files (ledgermq migrate take-over)",
    ),
    "enableDLegerCommitLog": (frozenset({"true", "false"}), "must be true or false"),
    "brokerId": (
        frozenset({"0"}),
        "a slave of a plain broker has no equal: replicate with a DLedger group (node.peers)",
    ),
    "brokerRole": (
        frozenset({"async_master"}),
        "no node is a slave: replicate with a DLedger group (node.peers)",
    ),
    "flushDiskType": (
        frozenset({"sync_flush"}),
        "RocketMQ acknowledged out of the page cache; the default here syncs first;"
        ' ack.mode = "majority-memory" is what it did',
    ),
    "brokerPermission": (frozenset({"6"}), "a node can be read and written; topics have theirs"),
    "messageIndexSafe": (_OFF, "the index is never ahead of the log here"),
    "enableConsumeQueueExt": (_OFF, "extended queue units are not written"),
    "transientStorePoolEnable": (_OFF, "the writer has one buffer of its own"),
    "duplicationEnable": (_OFF, "logs are not duplicated"),
    "enableLmq": (_OFF, "light queues are not kept"),
    "enableMultiDispatch": (_OFF, "light queues are not kept"),
    "aclEnable": (
        _OFF,
        "plain_acl.yml is not read: `ledgermq acl import` takes its users when the node runs",
    ),
    "offsetCheckInSlave": (_OFF, "offsets are checked on every node"),
    "slaveReadEnable": (
        frozenset({"true", "false"}),
        "must be true or false; a consumer says itself whether it reads from followers",
    ),
    "longPollingEnable": (_ON, "pulls are always held"),
    "enableCalcFilterBitMap": (_OFF, "filter bit maps are not kept"),
    "filterSupportRetry": (_OFF, "a filter sees the properties of the message that is read"),
    "traceTopicEnable": (_OFF, "there is no trace topic"),
    "rejectTransactionMessage": (_OFF, "transactional messages are taken from every producer"),
    "checkCRCOnRecover": (_ON, "CRCs are always checked in recovery"),
    "warmMapedFileEnable": (_OFF, "files are reserved with fallocate, and need no warming"),
}
"""Keys that need no setting at the values given (in lower case), and what is so at any other."""

_THREADS = "processes have one loop each, and no thread pools"
_SYNC = "the writer syncs whatever waits, at once; ack.mode says who waits for it"
_RETENTION = "the node looks when a file of the log is made, and once a minute"
_REGISTER = "nodes register with those of remoting.name_servers, every 30 s and at each change"
_DELAY = "delivery of delayed messages has no settings but its levels"
_NO_FILTER = "filters by property (SQL92) are not kept"
_HA = "slaves of RocketMQ's follow a node by listen.ha, with a plain log"

WITHOUT_EQUAL = {
    "namesrvAddr": f"{_REGISTER}; each node answers as one, too",
    "registerNameServerPeriod": _REGISTER,
    "registerBrokerTimeoutMills": _REGISTER,
    "forceRegister": _REGISTER,
    "brokerIP2": _HA,
    "haListenPort": _HA,
    "haMasterAddress": _HA,
    "haSendHeartbeatInterval": _HA,
    "slaveTimeout": _HA,
    "enableBatchPush": "entries are always replicated in batches",
    "readOnlyCommitLogStorePaths": "a log is in one folder",
    "sendMessageThreadPoolNums": _THREADS,
    "pullMessageThreadPoolNums": _THREADS,
    "putMessageFutureThreadPoolNums": _THREADS,
    "useReentrantLockWhenPutMessage": _THREADS,
    "waitTimeMillsInSendQueue": "limits.os_page_cache_busy_timeout_mills bounds the wait",
    "brokerFastFailureEnable": "limits.os_page_cache_busy_timeout_mills bounds the wait",
    "syncFlushTimeout": "the client's own timeout bounds the wait",
    "flushIntervalCommitLog": _SYNC,
    "flushCommitLogLeastPages": _SYNC,
    "flushCommitLogThoroughInterval": _SYNC,
    "flushCommitLogTimed": _SYNC,
    "commitIntervalCommitLog": _SYNC,
    "commitCommitLogLeastPages": _SYNC,
    "commitCommitLogThoroughInterval": _SYNC,
    "transientStorePoolSize": "the writer has one buffer of its own",
    "fastFailIfNoBufferInStorePool": "the writer has one buffer of its own",
    "flushLeastPagesWhenWarmMapedFile": "files are reserved with fallocate, and need no warming",
    "flushIntervalConsumeQueue": "store.checkpoint_interval_ms is the nearest",
    "flushConsumeQueueLeastPages": "store.checkpoint_interval_ms is the nearest",
    "flushConsumeQueueThoroughInterval": "store.checkpoint_interval_ms is the nearest",
    "cleanResourceInterval": _RETENTION,
    "deleteCommitLogFilesInterval": _RETENTION,
    "deleteConsumeQueueFilesInterval": _RETENTION,
    "destroyMapedFileIntervalForcibly": _RETENTION,
    "redeleteHangedFileInterval": _RETENTION,
    "mappedFileSizeConsumeQueueExt": "extended queue units are not written",
    "bitMapLengthConsumeQueueExt": "extended queue units are not written",
    "maxMsgsNumBatch": "limits of a frame are fixed (docs/formats/client-protocol.md)",
    "defaultQueryMaxNum": "the query says how many it takes",
    "transferMsgByHeap": "messages are sent out of the page cache",
    "diskFallRecorded": "what is behind is always counted",
    "shortPollingTimeMills": "pulls are always held",
    "flushConsumerOffsetInterval": "offsets of groups are written as they are committed",
    "flushDelayOffsetInterval": _DELAY,
    "maxLmqConsumeQueueNum": "light queues are not kept",
    "enableScheduleMessageStats": "there are no statistics by delay level",
    "enableScheduleAsyncDeliver": _DELAY,
    "scheduleAsyncDeliverMaxPendingLimit": _DELAY,
    "scheduleAsyncDeliverMaxResendNum2Blocked": _DELAY,
    "expectConsumerNumUseFilter": _NO_FILTER,
    "maxErrorRateOfBloomFilter": _NO_FILTER,
    "filterDataCleanTimeSpan": _NO_FILTER,
    "msgTraceTopicName": "there is no trace topic",
}
"""Keys that have no setting here at any value, and why."""

DEFAULTS_THAT_DIFFER = {
    "storePathRootDir": (
        "~/store",
        "the default here is another: set store.path_root_dir to where the broker's store is",
    ),
    "brokerName": (
        "the host's name",
        "the default here is another: set node.broker_name to the name in use",
    ),
    "brokerIP1": (
        "the first local address",
        "the default here is 127.0.0.1: set node.broker_ip, it becomes part of message ids",
    ),
    "cleanFileForciblyEnable": (
        "true",
        'a disk that gets full deletes nothing before its time: retention.force_clean = "oldest"',
    ),
}
"""Keys that are missed when the file leaves them out: RocketMQ's default, and what to do."""
