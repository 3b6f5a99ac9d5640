"""Sink options: those of ``df.write.format("ledgermq")`` and of ``writeStream``.

docs/operating/spark.md explains them. Each wrong one is named in the error, with what is allowed.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ledgermq.client.core.address import parse_addresses
from ledgermq.client.sending.outgoing import topic_bytes
from ledgermq.client.staging import PACK_BYTES
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.model.limits import BODY_SIZE_MAX
from ledgermq.model.names.stages import check_sink_name
from ledgermq.pipeline.source_options import (
    GroupChoice,
    canonical,
    check_kind,
    flag_option,
    names_option,
    number_option,
    refuse_without_groups,
    seeds_option,
)

PACK_BYTES_MIN = 4_096
TIMEOUT_MS = 120_000

_BOTH = {
    "nodes",
    "topic",
    "packBytes",
    "timeoutMs",
    "awaitMessages",
    "brokerGroups",
    "commitFolder",
}
_BATCH = {"jobId", "jobBatch"}
_STREAM = {"commitOffsets"}
_SPARKS = {"checkpointlocation", "queryname"}
"""Options of Spark's own, which it hands to sinks of streams, too."""

CHECKPOINT = "checkpointLocation"
PLANS = "ledgermq"
"""Folder of plans in the checkpoint of a query over several groups."""

_BY_LOWER = {name.lower(): name for name in _BOTH | _BATCH | _STREAM}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options that were checked; see the module.

    Attributes:
        nodes: addresses of the cluster's nodes.
        topic: of rows without a topic of their own; empty when each has one.
        timeout_ms: how long a cluster may be away.
        awaits_messages: a commit waits until its rows can be consumed.
        job: name of the sink of a batch job; drawn when nobody gave one.
        job_batch: number of the job's batch.
        is_once: nobody else will use that name.
        checkpoint: where Spark keeps a query's offsets, which are to be committed with its rows;
            None: they are not.
        groups: of a cluster, over which rows are spread; None: they go to one.
        plans: folder where it is decided what a batch over groups is, before it is committed; None:
            nobody runs it again.
    """

    nodes: tuple[str, ...]
    topic: str
    pack_bytes: int
    timeout_ms: int
    awaits_messages: bool
    job: str
    job_batch: int
    is_once: bool
    checkpoint: Path | None = None
    groups: GroupChoice | None = None
    plans: Path | None = None


def parse_sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options as the user gave them, checked.

    Raises:
        ConfigError: one is unknown, missing, or of a wrong form.
    """
    own = {n: v for n, v in options.items() if not (streaming and n.lower() in _SPARKS)}
    given = canonical(own, _BY_LOWER)
    check_kind(given, streaming=streaming, batch=_BATCH, stream=_STREAM)
    seeds = seeds_option(given)
    nodes = tuple(seeds[0].split(",")) if seeds else ()
    if not nodes:
        raise ConfigError("rows are written to nodes: give their addresses", option="nodes")
    parse_addresses(nodes)
    topic = given.get("topic", "")
    if topic:
        topic_bytes(topic)
    pack_bytes = number_option(given, "packBytes", minimum=PACK_BYTES_MIN) or PACK_BYTES
    if pack_bytes > BODY_SIZE_MAX:
        raise ConfigError(
            "option is too large", option="packBytes", value=pack_bytes, limit=BODY_SIZE_MAX
        )
    if "jobBatch" in given and "jobId" not in given:
        raise ConfigError("option needs another one", option="jobBatch", needs="jobId")
    return SinkOptions(
        nodes=nodes,
        topic=topic,
        pack_bytes=pack_bytes,
        timeout_ms=number_option(given, "timeoutMs", minimum=1) or TIMEOUT_MS,
        awaits_messages=flag_option(given, "awaitMessages", default=True),
        job=_job(given),
        job_batch=number_option(given, "jobBatch", minimum=0) or 0,
        is_once="jobId" not in given,
        checkpoint=_checkpoint(given, options),
        groups=_groups(given, seeds),
        plans=_plans(given, options, streaming=streaming),
    )


def _groups(given: Mapping[str, str], seeds: list[str]) -> GroupChoice | None:
    text = given.get("brokerGroups")
    if text is None:
        refuse_without_groups(given, "commitFolder")
        return None
    if "commitOffsets" in given:
        raise ConfigError(
            "offsets of a consumer group are committed with rows in one group of brokers alone",
            options=["brokerGroups", "commitOffsets"],
        )
    return GroupChoice(seeds=tuple(seeds), names=names_option(text))


def _plans(given: Mapping[str, str], options: Mapping[str, str], *, streaming: bool) -> Path | None:
    """Where plans of batches over groups are."""
    if "brokerGroups" not in given:
        return None
    folder = given.get("commitFolder")
    if folder is not None:
        return _folder("commitFolder", folder)
    if streaming:
        checkpoint = _location(options)
        if checkpoint is None:
            raise ConfigError("option needs another one", option="brokerGroups", needs=CHECKPOINT)
        return _folder(CHECKPOINT, checkpoint) / PLANS
    if "jobId" in given:
        raise ConfigError("option needs another one", option="jobId", needs="commitFolder")
    return None


def _checkpoint(given: Mapping[str, str], options: Mapping[str, str]) -> Path | None:
    if not flag_option(given, "commitOffsets", default=False):
        return None
    folder = _location(options)
    if folder is None:
        raise ConfigError("option needs another one", option="commitOffsets", needs=CHECKPOINT)
    return _folder(CHECKPOINT, folder)


def _location(options: Mapping[str, str]) -> str | None:
    """Spark's own option, which has any case."""
    return next((v for name, v in options.items() if name.lower() == CHECKPOINT.lower()), None)


def _folder(option: str, text: str) -> Path:
    parts = urlsplit(text)
    if parts.scheme not in ("", "file") or parts.netloc:
        raise ConfigError(
            "batches are committed by a checkpoint in a folder of the driver's host alone",
            option=option,
            value=f"{parts.scheme}://...",
            allowed=["a path", "file:///…"],
        )
    return Path(unquote(parts.path) if parts.scheme else text)


def _job(given: Mapping[str, str]) -> str:
    if "jobId" not in given:
        return f"spark-job-{uuid.uuid4().hex}"
    try:
        return check_sink_name(given["jobId"])
    except ProtocolError as error:
        raise ConfigError(
            "option is no name of a sink", option="jobId", value=given["jobId"], reason=str(error)
        ) from error
