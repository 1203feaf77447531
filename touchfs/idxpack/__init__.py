"""Index packs of Lhotse and NeMo: the offset indexes of many shards in one file."""
