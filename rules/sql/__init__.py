"""SQL-92 filters: grammar and meaning."""
