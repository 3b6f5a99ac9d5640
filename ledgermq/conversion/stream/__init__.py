"""Backup streams: repositories of pieces of a log, from which any point is restored."""
