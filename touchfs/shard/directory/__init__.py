"""What a directory holds besides shards: the lists that other tools have of its data, and files that are left out."""
