"""Lists of ids: `key in @ids.parquet`, of which there may be tens of millions.

hashing.py    hashes of ids
reader.py     the ids of a .parquet, .txt, .npy or .jsonl, batch by batch
sorting.py    entries of ids sorted by their hashes, in bounded memory
id_list.py    the sorted list in the scratch store, and which values are in it
names.py      what may follow `@`: a file, where the person who types it is the process, or the name of a list
"""
