"""Lists over a whole dataset, for tools that read lists: Kaldi, NeMo, Lhotse, Hugging Face, WeNet, and plain ones.

    utterances.py       the recordings and utterances of a dataset, from its catalogs
    ids.py              their ids, which are unique in the dataset
    sorting.py          the records of both, sorted on disk
    records.py          all that lists say about a recording or an utterance
    kinds.py            the lists: which records each one shows, and how
    sorted_records.py   the records of a dataset in order
    catalog.py          the list that is a table, catalog.arrow
    stored.py           the sorted records, in a file of the scratch store, with the size of every list
    apart.py            that file made in a process of its own
    content.py          a list as a content: any range of it is made from the records that it shows
    extents.py          extents.parquet, where the bytes of all files are, in a file of the scratch store

A record has all that a list says about one recording or utterance. All lists of a dataset are made from two files of
sorted records, so what takes time, reading the catalogs and transcripts and sorting, is done once for all of them.
"""
