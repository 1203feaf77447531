"""The records of a dataset, sorted: recordings and utterances by id, remarks by path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from touchfs.core.control_characters import one_line
from touchfs.core.progress import Progress
from touchfs.dataset import Dataset
from touchfs.lists.kinds import DECODERS, REMARKS, SAMPLES, UTTERANCES
from touchfs.lists.records import Begins, decode_utterance, encode_sample, encode_utterance, in_kaldi, with_beginning
from touchfs.lists.sorting import Sorter
from touchfs.lists.utterances import LeftOut, listed_samples

_NOT_IN_KALDI = "Kaldi's lists cannot name it: Kaldi would take its path for a command"
_EVERY = 1000


class SortedRecords:
    """The records of a dataset, to be taken in order. What does not fit into `memory` bytes of each sort is sorted in
    temporary files in `directory`.
    """

    def __init__(self, directory: str, memory: int) -> None:
        self._sorters = {sort: Sorter(directory, memory) for sort in DECODERS}

    def add(self, dataset: Dataset, *, with_speakers: bool, progress: Progress) -> bool:
        """Add all records. Returns False as soon as a speaker is found that ids should name and do not.

        `progress` gets the number of recordings added, and of samples.
        """
        samples, utterances, left_out = (self._sorters[sort] for sort in (SAMPLES, UTTERANCES, REMARKS))
        for number, sample in enumerate(listed_samples(dataset, with_speakers=with_speakers)):
            if not number % _EVERY:
                progress(min(number, dataset.samples), dataset.samples)
            if isinstance(sample, LeftOut):
                left_out.add(*_remark(sample))
                continue
            if not with_speakers and any(each.utterance.speaker for each in sample.utterances):
                return False
            if sample.utterances and not in_kaldi(sample.recording):
                left_out.add(*_remark(LeftOut(sample.recording.path, _NOT_IN_KALDI)))
            samples.add(sample.recording.id.encode(), encode_sample(sample))
            for each in sample.utterances:
                utterances.add(each.utterance.id.encode(), encode_utterance(each))
        return True

    def close(self) -> None:
        """Remove the temporary files."""
        for sorter in self._sorters.values():
            sorter.close()

    def records(self, sort: str) -> Iterator[bytes]:
        """Yield the records of a sort."""
        records = self._sorters[sort].records()
        return _with_beginnings(records) if sort == UTTERANCES else records


def _with_beginnings(utterances: Iterable[bytes]) -> Iterator[bytes]:
    before = ""
    for data in utterances:
        utterance = decode_utterance(with_beginning(data, Begins.NOTHING), "").listed.utterance
        begins = Begins.NOTHING
        if in_kaldi(utterance.recording) and utterance.speaker_id != before:
            begins = Begins.SPEAKER if before else Begins.LIST
            before = utterance.speaker_id
        yield with_beginning(data, begins)


def _remark(left_out: LeftOut) -> tuple[bytes, bytes]:
    path = left_out.path.encode("utf-8", "replace")
    return path, path + b"\t" + one_line(left_out.reason).encode()
