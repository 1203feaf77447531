"""The contract of shards: the stored sample, options of readers, and what readers and writers of all kinds share."""
