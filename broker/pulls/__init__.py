"""Sessions of consumers: pulls that are answered or held, queries, and answers under way."""
