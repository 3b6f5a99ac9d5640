"""Commands that send, receive, find and show messages."""
