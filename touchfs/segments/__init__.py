"""Segments of recordings: rules that find them in a sample's JSON, and codecs of files with segments.

Nothing here does IO. `json_rules.segments_of_json(value)` takes the decoded JSON of a sample, `sidecar.parse(extension,
blocks)` a file beside the recording. Both return `segment.Segments`, or None. `touchfs.manifest` has lists of many
recordings, such as Kaldi's. Rules are tried in this order, and the first that finds segments wins:

    rule            where the segments are                                made by
    info.segments   the list `segments` in the object `info`              TouchNet
    segments        the list `segments`, or a JSON that is a list         Whisper, WeNet, GigaSpeech, pyannote
    supervisions    the list `supervisions` of a cut                      Lhotse
    alignment       the list `alignment`, or `word` in that object        Lhotse's supervisions, aligners
    utterances      `utterances` or `words` beside `audio_url`, in ms     AssemblyAI
    words           the list `words`                                      Whisper, aligners
    chunks          the list `chunks` with `timestamp: [start, end]`      pipelines of Hugging Face
    transcription   the list `transcription` with `offsets` in ms         whisper.cpp
    timestamp       `segment` or `word` in the object `timestamp`         NeMo
    results         `utterances`, `audio_segments` or the words of the    Deepgram, AWS Transcribe
                    first channel in the object `results`
    srt, vtt        subtitles beside the recording                        players, Whisper
    textgrid        intervals beside the recording                        Praat, Montreal Forced Aligner
    ctm, stm, rttm  words, utterances, turns of speakers                  NIST's tools, Kaldi, diarization
    eaf             annotations                                           ELAN
    txt             labels with tabs                                      Audacity
    kaldi           `segments`, `text`, `utt2spk` beside the shard        Kaldi (`touchfs.containers.lines.kaldi`)
    nemo            the manifest beside the tars                           NeMo (`touchfs.containers.lines.tarred`)
    line            the span of the line of a list that names the audio    NeMo, WeNet, Lhotse
    (`touchfs.containers.lines`)

In JSON, a segment has one of these, in seconds, and the first that is there counts:

    start       start, start_time, begin, begin_time, offset, or the first of `timestamp`
    end         end, end_time, stop, or the second of `timestamp`; null, -1 or none is the end of the recording
    duration    duration, dur; counts if there is no end
    in samples  start_sample, start_samples, offset_samples; end_sample, end_samples; num_samples: integers only

    text        text, txt, transcript, word; further strings, and members of `texts`, are versions of the text
    speaker     speaker, speaker_id, spk, spk_id, speaker_label
    language    language, lang
    channel     channel

TouchNet's segments and Lhotse's keep the rounding of their tools (`format.metainfo`, `format.lhotse`); all others have
that of `times`. A segment that leaves its recording is cut to it, one without valid times has no samples, and its span
says why. A damaged file is a FormatError, and so are more than `segment.SEGMENTS_MAX` segments.
"""
