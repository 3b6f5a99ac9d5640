"""Families of files and small files: mapped, appended, replaced whole, synced."""
