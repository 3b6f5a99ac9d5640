"""Object stores: buckets of S3, of its protocol, of Google and Azure, with puts on condition."""
