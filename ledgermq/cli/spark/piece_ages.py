"""``ledgermq piece prune``: which topics' messages are how old, and what is dropped of pieces."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

from ledgermq.cli.durations import parse_age
from ledgermq.cli.output import print_table, tell
from ledgermq.cli.progress_line import ProgressLine
from ledgermq.cli.spark.cold_tables import repository_at, tables_at
from ledgermq.model.errors import ConfigError, MessageUnknownError
from ledgermq.model.limits import LASTING_TOPICS
from ledgermq.model.units import MIB
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.moments import Moment
from ledgermq.pipeline.pieces.piece_compaction import superseded_in
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest
from ledgermq.pipeline.pieces.piece_places import place_at
from ledgermq.pipeline.pieces.piece_retention import Expired, TopicAge, drop, expired_in, merged
from ledgermq.rules.tables.topics import Topic
from ledgermq.store.steady_time import confirmed_ms

ANY_REST = "*"


class TopicAges:
    """How old messages get, by topic: as its own settings say, or the rule for its name.

    Attributes:
        compacted: topics of whose keys the newest messages stay alone.
    """

    def __init__(self, topics: Iterable[Topic], rules: Mapping[str, int]) -> None:
        """Rules are ages in ms by a topic's name, or by the begin of names and ``*``."""
        self._own: dict[str, TopicAge] = {}
        self.compacted: list[str] = []
        for topic in topics:
            self._own[topic.name] = TopicAge(topic.kept_ms, topic.keep_bytes)
            if topic.is_compacted and topic.name not in LASTING_TOPICS:
                self.compacted.append(topic.name)
        self._rules = rules

    def of(self, topic: str) -> TopicAge:
        """That of a topic; without a limit where nothing says one."""
        own = self._own.get(topic, TopicAge())
        if own.keep_ms or own.keep_bytes:
            return own
        if topic in self._rules:
            return TopicAge(self._rules[topic])
        begins = (
            rule
            for rule in self._rules
            if rule.endswith(ANY_REST) and topic.startswith(rule.removesuffix(ANY_REST))
        )
        rule = max(begins, key=len, default=None)
        return TopicAge() if rule is None else TopicAge(self._rules[rule])


def prune_pieces(arguments: argparse.Namespace) -> int:
    """Drop what is beyond its topic's age."""
    place = place_at(arguments.place)
    queues = ColdQueues(place)
    ages = TopicAges(_topics(queues, has_rules=bool(arguments.keep)), _rules(arguments.keep))
    tombstones_ms = parse_age(arguments.tombstones, "--tombstones")
    now_ms = confirmed_ms(_newest_ms(queues.manifest))
    repository = repository_at(arguments.place, None)
    before = repository.prunable_end()

    def find(manifest: PieceManifest) -> list[Expired]:
        superseded = superseded_in(
            place,
            manifest,
            ages.compacted,
            tombstones_before_ms=now_ms - tombstones_ms,
            before=before,
        )
        return merged(expired_in(manifest, ages.of, now_ms=now_ms, before=before), superseded)

    if arguments.dry_run:
        return _tell_plan(arguments, find(queues.manifest))
    with ProgressLine("MiB of pieces looked through") as line:
        done = drop(place, find, told=line.show_bytes)
    repository.refresh()
    tables = repository.delete_useless_tables()
    records, sizes = sum(done.records.values()), sum(done.log_bytes.values())
    text = (
        f"{place.as_text()}: {records:,} records of {len(done.records)} topics,"
        f" {sizes / MIB:,.1f} MiB of the log, went out of {done.rewritten + done.dropped} pieces,"
        f" {done.dropped} of them as a whole; {done.freed / MIB:,.1f} MiB are free"
    )
    told = {name: one for name, one in done._asdict().items() if name != "notes"}
    return tell(arguments, {**told, "tables": tables}, text)


def _tell_plan(arguments: argparse.Namespace, found: list[Expired]) -> int:
    rows = [
        {
            "start": one.row.start,
            "end": one.row.end,
            "topic": topic,
            "messages": sum(part.end - part.offset for part in one.row.queues[topic]),
        }
        for one in found
        for topic in one.topics
    ] + [
        {"start": one.row.start, "end": one.row.end, "topic": topic, "messages": len(places)}
        for one in found
        for topic, places in one.thinned.items()
    ]
    rows.sort(key=lambda row: (row["start"], row["topic"]))
    texts = [[str(value) for value in row.values()] for row in rows]
    names = ["start", "end", "topic", "messages"]
    if not rows:
        return tell(arguments, rows, "nothing is beyond its age")
    return tell(arguments, rows, lambda: print_table(names, texts))


def _topics(queues: ColdQueues, *, has_rules: bool) -> list[Topic]:
    """The topics as of the last entry that is sealed, with what they say."""
    try:
        return list(tables_at(queues, Moment()).state.topics)
    except MessageUnknownError:
        # Of a log that none of our brokers has led there are the rules alone.
        if has_rules or not queues.manifest.rows:
            return []
        raise


def _newest_ms(manifest: PieceManifest) -> int:
    return max((row.facts.max_ms for row in manifest.rows), default=0)


def _rules(given: list[str]) -> dict[str, int]:
    """Ages in ms by topics, or begins of their names.

    Raises:
        ConfigError: an option says none.
    """
    found: dict[str, int] = {}
    for text in given:
        topic, is_rule, age = text.partition("=")
        if not topic or not is_rule or ANY_REST in topic[:-1] or topic in found:
            raise ConfigError("--keep is no rule", given=text, form="TOPIC=AGE, or BEGIN*=AGE")
        if topic in LASTING_TOPICS:
            raise ConfigError("tables and proofs are made of that topic: it stays", given=text)
        found[topic] = parse_age(age, "--keep")
    return found
