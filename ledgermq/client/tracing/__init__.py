"""Traces of messages: OpenTelemetry's spans, and records in RocketMQ's trace topic.

Nothing here is imported, or called, by a client that was not given a ``Tracing``.
"""
