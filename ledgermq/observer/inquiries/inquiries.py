"""Inquiries: everything that a caller may ask of the node and change, subject by subject.

The API and the console ask here, and nowhere else. All answers are of dicts, lists, texts, numbers,
booleans and None, with the keys of the commands' ``--json``. All refusals are ``LedgerError``:
``NoPermissionError`` where the caller has not the right; ``NotLeaderError`` where another node is
to be asked (``details["leader"]``, and ``details["url"]`` where ``http.members`` names it);
``TopicUnknownError``, ``GroupUnknownError`` and ``MessageUnknownError``; ``ConfigError`` of what
cannot be asked so.
"""

from __future__ import annotations

from typing import TypeVar

from ledgermq.client.core.table_verbs import asking
from ledgermq.observer.callers import HttpCaller
from ledgermq.observer.inquiries.access_inquiries import QuotaInquiries, UserInquiries
from ledgermq.observer.inquiries.dead_letter_inquiries import DeadLetterInquiries
from ledgermq.observer.inquiries.group_inquiries import GroupInquiries
from ledgermq.observer.inquiries.inquirer import Inquirer, Sources
from ledgermq.observer.inquiries.message_inquiries import MessageInquiries
from ledgermq.observer.inquiries.mirror_inquiries import MirrorInquiries
from ledgermq.observer.inquiries.node_inquiries import NodeInquiries
from ledgermq.observer.inquiries.row_pages import Json
from ledgermq.observer.inquiries.topic_inquiries import TopicInquiries
from ledgermq.verbs.schemas import SubjectRow
from ledgermq.verbs.verb import Verb

Told = TypeVar("Told")


class Inquiries:
    """Those of one caller; made anew for each request. Verbs of the table are asked as they are.

        found = await Inquiries(sources, caller).topics.list(limit=50, after=after)
        await Inquiries(sources, caller).ask(DeleteTopic("orders"))

    Attributes:
        node: status, raft, feature levels, hand-over; any node answers about itself.
        mirrors: of this log, and of which one this node's is a copy; any node answers.
        topics, groups, messages, dead_letters, users, quotas: the
            leader answers.
    """

    def __init__(self, sources: Sources, caller: HttpCaller) -> None:
        """Inquiries with the rights of ``caller``."""
        inquirer = self._inquirer = Inquirer(sources, caller)
        self.caller = caller
        self.node = NodeInquiries(inquirer)
        self.mirrors = MirrorInquiries(inquirer)
        self.topics = TopicInquiries(inquirer)
        self.groups = GroupInquiries(inquirer)
        self.messages = MessageInquiries(inquirer)
        self.dead_letters = DeadLetterInquiries(inquirer)
        self.users = UserInquiries(inquirer)
        self.quotas = QuotaInquiries(inquirer)

    async def ask(self, verb: Verb[Told]) -> Json:
        """What the leader tells when it is asked ``verb``, with the keys of ``--json``."""
        return verb.document(await self.told(verb))

    async def told(self, verb: Verb[Told]) -> Told:
        """The same with its types."""
        return await self._inquirer.leader(lambda session: session.run(asking(verb)))

    async def subjects(self) -> list[SubjectRow]:
        """As ``ledgermq schema list``."""
        return await self._inquirer.leader(lambda session: session.subjects())
