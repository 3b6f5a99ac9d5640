"""Vocabulary: ids, errors, limits and settings; imports nothing of ours."""
