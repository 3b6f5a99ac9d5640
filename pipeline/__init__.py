"""The store and a running cluster as rows of Spark: data source, without a connector jar."""
