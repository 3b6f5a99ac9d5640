"""Archives: Parquet files under a manifest, written, verified and replayed."""
