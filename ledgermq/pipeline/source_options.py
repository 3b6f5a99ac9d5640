"""Source options: those of ``spark.read.format("ledgermq")`` and of ``readStream``.

Names are Kafka's where they fit.

docs/operating/spark.md explains them. Each wrong one is named in the error, with what is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ledgermq.formats.records.body_compression import PLAIN_SIZE_MAX
from ledgermq.model.errors import ConfigError
from ledgermq.model.names.system_topics import is_system_topic
from ledgermq.pipeline.columns.message_schema import (
    BODY_WHY,
    BROKER_GROUP,
    COLUMNS,
    TYPED_COLUMNS,
    checked_columns,
)
from ledgermq.pipeline.job_defaults import SPLIT_BYTES, TYPED
from ledgermq.pipeline.queue_ranges import (
    Place,
    Queue,
    parse_group_tables,
    parse_queue_table,
)

SPLIT_BYTES_MIN = 1024 * 1024
ALL_GROUPS = "all"

_BOTH = {
    "path",
    "nodes",
    "pieces",
    "selfId",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "minPartitions",
    "splitBytes",
    "failOnDataLoss",
    "includeBody",
    "inflateBodies",
    "inflateMax",
    "columns",
    "subject",
    "timeoutMs",
    "readFrom",
    "brokerGroups",
    "failOnDeadGroup",
}
_BATCH = {"endingOffsets", "endingTimestamp", "pushFilters", "asOf"}
_PLACES = {
    "path",
    "nodes",
    "pieces",
    "brokerGroups",
    "subscribe",
    "subscribePattern",
    "assign",
    "timeoutMs",
    "subject",
}
_STREAM = {"maxOffsetsPerTrigger", "group"}
_BY_LOWER = {name.lower(): name for name in _BOTH | _BATCH | _STREAM}


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which queues are read; all but those of the system when nothing was said.

    Attributes:
        is_partial: what is named may be elsewhere: this is about one of several groups.
    """

    topics: frozenset[str] | None = None
    pattern: str | None = None
    queues: frozenset[Queue] | None = None
    is_partial: bool = False

    def has(self, queue: Queue) -> bool:
        """Whether the queue is one of them."""
        if self.queues is not None:
            return queue in self.queues
        if self.topics is not None:
            return queue[0] in self.topics
        if self.pattern is not None:
            return re.fullmatch(self.pattern, queue[0]) is not None
        return not is_system_topic(queue[0])

    def check_found(self, found: set[Queue]) -> None:
        """Compare what was named with what there is.

        Raises:
            ConfigError: a topic or a queue that was named is not there.
        """
        if self.is_partial:
            return
        topics = {topic for topic, _ in found}
        if self.topics is not None and not self.topics <= topics:
            missing = sorted(self.topics - topics)
            raise ConfigError("no such topic", option="subscribe", topics=missing)
        if self.queues is not None and not self.queues <= found:
            missing_queues = [f"{topic}/{queue}" for topic, queue in sorted(self.queues - found)]
            raise ConfigError("no such queue", option="assign", queues=missing_queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChoice:
    """Which groups of a cluster are read.

    Attributes:
        seeds: addresses of the nodes of one group each, as clients of a cluster take them.
        names: None: all groups.
        starting, ending: by the name of a group; of others the options' own.
        fails_on_dead: a group that does not answer for ``timeout_ms`` is an error.
    """

    seeds: tuple[str, ...]
    names: frozenset[str] | None
    starting: Mapping[str, Place] = field(default_factory=dict)
    ending: Mapping[str, Place] = field(default_factory=dict)
    fails_on_dead: bool = True

    def has(self, name: str) -> bool:
        """Whether the group is one of them."""
        return self.names is None or name in self.names


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options that were checked; see the module.

    Attributes:
        paths: store directories of one group, the preferred one first; empty with the others.
        nodes: addresses of a cluster's nodes.
        pieces: a place of pieces, and no nodes; one path is the store whose log goes on behind
            them. Else empty.
        as_of: of pieces, the moment whose messages are read: a time, or ``index=N``; empty: all.
        timeout_ms: how long a cluster may be away.
        typed: whether bodies are fields, too.
        subject: whose schema gives them; None: the topic's.
        read_from: ``leader``, or ``followers``: old messages come from the one that it suggests.
        starting_ms, ending_ms: store times, epoch ms, instead of offsets.
        group: a consumer group: where it is, a stream begins; None: the options say where.
        groups: of a cluster, all of which are read; None: one group is.
        broker_group: the one of them that these options are about; empty: none, or not yet.
        answer_ms: how long one question may take, where it is asked again; None: ``timeout_ms``.
    """

    paths: tuple[Path, ...]
    nodes: tuple[str, ...]
    self_id: str | None
    choice: TopicChoice
    starting: Place
    ending: Place
    starting_ms: int | None
    ending_ms: int | None
    min_partitions: int
    split_bytes: int
    max_offsets: int | None
    fail_on_data_loss: bool
    inflate: bool
    push_filters: bool
    timeout_ms: int
    read_from: str
    inflate_max: int = PLAIN_SIZE_MAX
    typed: bool = False
    subject: str | None = None
    group: str | None = None
    groups: GroupChoice | None = None
    broker_group: str = ""
    answer_ms: int | None = None
    pieces: str = ""
    as_of: str = ""

    def of_group(self, name: str, nodes: str, *, answer_ms: int | None = None) -> SourceOptions:
        """The same for one group of a cluster, whose nodes have these addresses."""
        assert self.groups is not None, "groups are chosen"
        return replace(
            self,
            nodes=tuple(nodes.split(",")),
            choice=replace(self.choice, is_partial=True),
            starting=self.groups.starting.get(name, self.starting),
            ending=self.groups.ending.get(name, self.ending),
            groups=None,
            broker_group=name,
            answer_ms=answer_ms,
        )


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that ``columns`` and ``includeBody`` leave.

    Raises:
        ConfigError: a column that there is not.
    """
    given = _canonical(options)
    known = known_columns(given)
    if "columns" in given:
        names = _named_columns(given)
        if TYPED in names:
            columns = _typed(names, known)
        else:
            columns = checked_columns(names, option="columns", known=(*known, BODY_WHY))
    else:
        columns = known
    if not flag_option(given, "includeBody", default=True):
        columns = tuple(name for name in columns if name != "body")
    return columns


def known_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """All columns that there are of messages: of several groups, the group as well."""
    return (*COLUMNS, BROKER_GROUP) if "brokerGroups" in _canonical(options) else COLUMNS


def schema_options(options: Mapping[str, str]) -> SourceOptions:
    """What of the options says where schemas are, for a batch and a stream alike.

    Raises:
        ConfigError: one is unknown, of a wrong form, or contradicts another one.
    """
    given = _canonical(options)
    return parse_options({name: given[name] for name in given if name in _PLACES}, streaming=True)


def subjects_of(options: SourceOptions) -> tuple[str, ...]:
    """Subjects of which the first one that has a schema gives the typed columns.

    Raises:
        ConfigError: the options name neither one topic nor a subject.
    """
    if options.subject is not None:
        return (options.subject,)
    topics = options.choice.topics or {queue[0] for queue in options.choice.queues or ()}
    if len(topics) != 1:
        raise ConfigError(
            "typed columns are those of one topic, or of a subject",
            options=["subscribe", "assign", "subject"],
            topics=sorted(topics),
        )
    (topic,) = topics
    return topic, f"{topic}-value"


def _named_columns(given: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in given.get("columns", "").split(",")]


def _typed(names: list[str], known: tuple[str, ...]) -> tuple[str, ...]:
    others = [name for name in names if name != TYPED]
    if "body" in others:
        raise ConfigError(
            "typed columns have the body: where it was not read it is in `unparsed`",
            option="columns",
        )
    plain = checked_columns(others, option="columns", known=known) if others else known
    return (*(name for name in plain if name != "body"), *TYPED_COLUMNS)


def parse_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options as the user gave them, checked.

    Raises:
        ConfigError: one is unknown, of a wrong form, or contradicts another one.
    """
    given = _canonical(options)
    check_kind(given, streaming=streaming, batch=_BATCH, stream=_STREAM)
    starting_ms = number_option(given, "startingTimestamp", minimum=0)
    ending_ms = number_option(given, "endingTimestamp", minimum=0)
    for timestamp, offsets in (
        ("startingTimestamp", "startingOffsets"),
        ("endingTimestamp", "endingOffsets"),
    ):
        if timestamp in given and offsets in given:
            raise ConfigError("options exclude one another", options=[timestamp, offsets])
    starting, starting_of = _places(
        given,
        "startingOffsets",
        default="latest" if streaming else "earliest",
        refused=None if streaming else "latest",
    )
    ending, ending_of = _places(given, "endingOffsets", default="latest", refused="earliest")
    paths = tuple(Path(item.strip()) for item in given.get("path", "").split(",") if item.strip())
    seeds = seeds_option(given)
    nodes = tuple(seeds[0].split(",")) if seeds else ()
    if len(paths) > 1 and "selfId" in given:
        raise ConfigError(
            "each of several directories has the log of one node",
            options=["path", "selfId"],
            value=given["path"],
        )
    pieces = given.get("pieces", "").strip()
    if bool(nodes) is bool(paths or pieces):
        raise ConfigError(
            "give either path, store directories, or nodes, addresses of a cluster, or pieces, a"
            " place of them, with path or without",
            options=["path", "nodes", "pieces"],
        )
    if pieces and len(paths) > 1:
        raise ConfigError(
            "behind pieces one store is read", options=["path", "pieces"], value=given["path"]
        )
    as_of = given.get("asOf", "").strip()
    if as_of and not pieces:
        raise ConfigError(
            "a moment is told by pieces alone: seal the log, and name the place",
            options=["asOf", "pieces"],
            value=as_of,
        )
    if pieces and TYPED in _named_columns(given):
        raise ConfigError(
            "schemas are told by nodes and store directories: pieces have bodies as they are",
            options=["columns", "pieces"],
        )
    return SourceOptions(
        paths=paths,
        nodes=nodes,
        pieces=pieces,
        as_of=as_of,
        self_id=given.get("selfId"),
        choice=_choice(given),
        starting=starting,
        ending=ending,
        starting_ms=starting_ms,
        ending_ms=ending_ms,
        min_partitions=number_option(given, "minPartitions", minimum=1) or 1,
        split_bytes=number_option(given, "splitBytes", minimum=SPLIT_BYTES_MIN) or SPLIT_BYTES,
        max_offsets=number_option(given, "maxOffsetsPerTrigger", minimum=1),
        fail_on_data_loss=flag_option(given, "failOnDataLoss", default=True),
        inflate=flag_option(given, "inflateBodies", default=True),
        inflate_max=_inflate_max(given),
        push_filters=flag_option(given, "pushFilters", default=False),
        timeout_ms=number_option(given, "timeoutMs", minimum=1) or 120_000,
        read_from=_read_from(given),
        typed=TYPED in _named_columns(given),
        subject=given.get("subject"),
        group=_group(given, nodes),
        groups=_groups(given, seeds, starting_of, ending_of),
    )


def seeds_option(given: Mapping[str, str]) -> list[str]:
    """Addresses of ``nodes``, those of one group in a text each; one without ``brokerGroups``."""
    texts = (
        given.get("nodes", "").split(";") if "brokerGroups" in given else [given.get("nodes", "")]
    )
    each = ([item.strip() for item in one.split(",") if item.strip()] for one in texts)
    return [",".join(items) for items in each if items]


def _inflate_max(given: Mapping[str, str]) -> int:
    found = number_option(given, "inflateMax", minimum=1) or PLAIN_SIZE_MAX
    if found > PLAIN_SIZE_MAX:
        raise ConfigError(
            "bodies become not so large", option="inflateMax", value=found, allowed=PLAIN_SIZE_MAX
        )
    return found


def names_option(text: str) -> frozenset[str] | None:
    """The groups that ``brokerGroups`` names; None: all.

    Raises:
        ConfigError: it names none.
    """
    names = frozenset(item.strip() for item in text.split(",") if item.strip())
    if not names:
        raise ConfigError("option names no group", option="brokerGroups", value=text)
    return None if names == {ALL_GROUPS} else names


def refuse_without_groups(given: Mapping[str, str], option: str) -> None:
    """Refuse an option that says something of several groups of brokers, where there is one.

    Raises:
        ConfigError: it is given.
    """
    if option in given:
        raise ConfigError("option needs another one", option=option, needs="brokerGroups")


def _groups(
    given: Mapping[str, str],
    seeds: list[str],
    starting: Mapping[str, Place],
    ending: Mapping[str, Place],
) -> GroupChoice | None:
    text = given.get("brokerGroups")
    if text is None:
        refuse_without_groups(given, "failOnDeadGroup")
        return None
    if not seeds:
        raise ConfigError(
            "groups are those of a cluster: give addresses of its nodes",
            options=["brokerGroups", "nodes"],
        )
    if "group" in given:
        raise ConfigError(
            "offsets of a consumer group are committed with rows in one group of brokers alone",
            options=["brokerGroups", "group"],
        )
    names = names_option(text)
    for option, tables in (("startingOffsets", starting), ("endingOffsets", ending)):
        strange = sorted(set(tables) - names) if names is not None else []
        if strange:
            raise ConfigError(
                "option names a group that is not read", option=option, broker_group=strange[0]
            )
    return GroupChoice(
        seeds=tuple(seeds),
        names=names,
        starting=starting,
        ending=ending,
        fails_on_dead=flag_option(given, "failOnDeadGroup", default=True),
    )


def _group(given: Mapping[str, str], nodes: tuple[str, ...]) -> str | None:
    name = given.get("group")
    if name is None:
        return None
    if not nodes:
        raise ConfigError("groups are asked of nodes", options=["group", "nodes"], value=name)
    if not name:
        raise ConfigError("option is no name of a group", option="group", value=name)
    return name


def _read_from(given: Mapping[str, str]) -> str:
    value = given.get("readFrom", "leader")
    if value not in ("leader", "followers"):
        raise ConfigError(
            "option is no kind of node",
            option="readFrom",
            value=value,
            allowed=["leader", "followers"],
        )
    return value


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    return canonical(options, _BY_LOWER)


def canonical(options: Mapping[str, str], by_lower: Mapping[str, str]) -> dict[str, str]:
    """The options by the names that they are known by; they were given in any case.

    Raises:
        ConfigError: one is unknown.
    """
    given: dict[str, str] = {}
    for name, value in options.items():
        known = by_lower.get(name.lower())
        if known is None:
            raise ConfigError("no such option", option=name, options=sorted(by_lower.values()))
        given[known] = value
    return given


def check_kind(
    given: Mapping[str, str], *, streaming: bool, batch: set[str], stream: set[str]
) -> None:
    """Refuse options of batches in a stream, and the other way round.

    Raises:
        ConfigError: one is given.
    """
    strange = sorted(set(given) & (batch if streaming else stream))
    if strange:
        kind = "a batch" if streaming else "a stream"
        raise ConfigError(f"option is for {kind} alone", option=strange[0])


def _choice(given: Mapping[str, str]) -> TopicChoice:
    named = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(named) > 1:
        raise ConfigError("options exclude one another", options=named)
    if "subscribe" in given:
        topics = frozenset(item.strip() for item in given["subscribe"].split(",") if item.strip())
        if not topics:
            raise ConfigError("option names no topic", option="subscribe", value=given["subscribe"])
        return TopicChoice(topics=topics)
    if "subscribePattern" in given:
        pattern = given["subscribePattern"]
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(
                "option is no regular expression",
                option="subscribePattern",
                value=pattern,
                reason=str(error),
            ) from error
        return TopicChoice(pattern=pattern)
    if "assign" in given:
        return TopicChoice(queues=_assigned(given["assign"]))
    return TopicChoice()


def _assigned(text: str) -> frozenset[Queue]:
    form = '{"topic": [queue id, …]}'
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            "option is not JSON", option="assign", value=text, reason=error.msg, at=error.pos
        ) from error
    is_table = isinstance(document, dict) and all(
        isinstance(ids, list) and all(type(id_) is int and id_ >= 0 for id_ in ids)
        for ids in document.values()
    )
    if not is_table or not document:
        raise ConfigError("option has another form", option="assign", value=text, form=form)
    return frozenset((topic, id_) for topic, ids in document.items() for id_ in ids)


def _places(
    given: Mapping[str, str], option: str, *, default: Place, refused: str | None
) -> tuple[Place, Mapping[str, Place]]:
    """A place for all queues, and those of groups by their names where groups are chosen."""
    text = given.get(option)
    if text is None:
        return default, {}
    plain = text.strip().lower()
    if plain == refused:
        raise ConfigError(
            "place cannot be used here: nothing would be read", option=option, value=text
        )
    if plain == "earliest":
        return "earliest", {}
    if plain == "latest":
        return "latest", {}
    if "brokerGroups" not in given:
        return parse_queue_table(text, option=option), {}
    # As in a table of queues: what is not named is read from its beginning, or to its end.
    others: Place = "earliest" if option == "startingOffsets" else "latest"
    return others, parse_group_tables(text, option=option)


def number_option(given: Mapping[str, str], option: str, *, minimum: int) -> int | None:
    """The whole number that an option gives; None when it is left out.

    Raises:
        ConfigError: it is none, or too small.
    """
    text = given.get(option)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError as error:
        raise ConfigError("option is not a whole number", option=option, value=text) from error
    if value < minimum:
        raise ConfigError("option is too small", option=option, value=value, minimum=minimum)
    return value


def flag_option(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    """Whether an option is set; ``default`` when it is left out.

    Raises:
        ConfigError: it is neither true nor false.
    """
    text = given.get(option)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ConfigError("option is neither true nor false", option=option, value=text)
    return text.lower() == "true"
