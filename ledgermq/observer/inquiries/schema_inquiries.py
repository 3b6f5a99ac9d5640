"""Inquiries about schemas of topics: subjects, versions, ids, and their changes."""

from __future__ import annotations

from ledgermq.client.admin.schema_admin import (
    RegisteredSchema,
    SchemaConflict,
    SchemaNumbers,
    SubjectRow,
)
from ledgermq.observer.inquiries.inquirer import Inquirer


class SchemaInquiries:
    """The leader answers: who may use a topic about its schemas, an admin about changes."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def subjects(self) -> list[SubjectRow]:
        """As ``ledgermq schema list``."""
        return await self._inquirer.leader(lambda session: session.subjects())

    async def show(
        self, subject: str, version: int | None = None
    ) -> tuple[SubjectRow, RegisteredSchema]:
        """As ``ledgermq schema show``."""
        return await self._inquirer.leader(lambda session: session.schema(subject, version))

    async def of_id(self, identity: int) -> RegisteredSchema:
        """The schema of an id."""
        return await self._inquirer.leader(lambda session: session.schema_of_id(identity))

    async def register(self, subject: str, kind: str, schema: str) -> SchemaNumbers:
        """As ``ledgermq schema register``."""
        return await self._inquirer.leader(lambda session: session.register(subject, kind, schema))

    async def check(self, subject: str, kind: str, schema: str) -> list[SchemaConflict]:
        """As ``ledgermq schema check``."""
        return await self._inquirer.leader(
            lambda session: session.check_schema(subject, kind, schema)
        )

    async def set_rule(self, subject: str, rule: str) -> None:
        """As ``ledgermq schema rule``."""
        await self._inquirer.leader(lambda session: session.set_rule(subject, rule))

    async def delete(self, subject: str, version: int | None = None) -> None:
        """As ``ledgermq schema delete``."""
        await self._inquirer.leader(lambda session: session.delete_schema(subject, version))
