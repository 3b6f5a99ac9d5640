"""Calls of administrators, a module for each subject: topics, groups, offsets, users, archives."""
