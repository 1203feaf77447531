"""An index that lies with its data, so that other machines need not make it.

It has two files at a prefix, for each set of options that shape catalogs. The *pack* has the catalogs of all shards and
the index of keys, end to end. The *listing* names the pack and says where each of them is in it, of which version of
the shard it is, and its checksum. The name of a pack is a hash of its content. The listing is written last, so it
always names a complete pack. A mount of ten thousand shards gets both with two requests and a few more for a large
pack.

What is read from there is copied to the index of this machine, where it is checked as if it had been made here.
"""
