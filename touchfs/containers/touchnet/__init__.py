"""Shards of .bin/.idx: TouchNet's, Megatron-LM's and fairseq's."""
