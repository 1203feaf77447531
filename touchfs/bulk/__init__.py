"""Jobs over many shards: pack, convert, annotate. Each can be resumed."""
