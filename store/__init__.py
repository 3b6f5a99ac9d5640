"""Bytes on disk: message, entry, queue unit, index file, mapped files, log, recovery."""
