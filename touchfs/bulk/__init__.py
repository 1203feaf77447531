"""Jobs over many shards: packing, converting, annotating. Each can be resumed."""
