"""Lists of recordings and utterances: what other tools expect, and lists that point to audio. Nothing here does IO.

    tool           lists that are built                                              references that are parsed
    Kaldi          wav.scp segments text utt2spk spk2utt utt2dur reco2dur            wav.scp, and segments with text
    NeMo           nemo_manifest.jsonl                                               lines with `audio_filepath`
    Lhotse         recordings.jsonl supervisions.jsonl cuts.jsonl                    lines of all three
    Hugging Face   metadata.csv of an AudioFolder
    WeNet          data.list (raw)                                                   lines with `wav`

Each tool has a module. A builder takes a `ListedRecording` or an `Utterance` (`entry`) and returns one line. Callers
sort the lines by id; Python's order of strings is that of `LC_ALL=C sort`. Parsers return a `Reference` (`reference`):
its path is as written, nothing is opened, and commands are refused. `json_lines.parse_reference` knows the tool by the
fields.
"""
