"""Windows of tokens: the tokens of a shard, document after document, cut into windows of a fixed length."""
