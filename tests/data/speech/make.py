"""Speak the sentences below with espeak-ng and write wav/ and speech.jsonl beside this file.

Phrases are spoken one at a time and padded to whole milliseconds, so every segment's start and end
names a sample exactly, under truncation (`int(float(t) * rate)`) as well as under rounding.
"""

import json
import shutil
import subprocess
import wave
from pathlib import Path

HERE = Path(__file__).parent
RATE = 16000
PER_MS = RATE // 1000
PAUSE_MS = 60

# key, voice, phrases. Debian's Mandarin voice lacks most characters, so it is given pinyin: (written, spoken).
UTTERANCES = [
    ("talks/monday", "en-gb", ["Good morning.", "This is a talk."]),
    ("talks/tuesday", "en-us", ["Welcome back.", "Any questions?"]),
    ("talks/q&a/1", "en-gb-scotland", ["How long is a shard?", "As long as you like."]),
    ("numbers", "en-us-nyc", ["One.", "Two.", "Three.", "Four."]),
    ("grüße", "de", ["Schöne Grüße", "aus Köln."]),
    ("wetter heute", "de", ["Heute ist es schön.", "Morgen regnet es."]),
    ("café", "fr-fr", ["Où est le café ?", "Là-bas, à côté."]),
    ("réponse", "fr-be", ["Ça va ?", "Très bien, merci."]),
    ("问候", "cmn-latn-pinyin", [("你好。", "ni3 hao3"), ("谢谢大家。", "xie4xie da4jia1")]),
    ("unsegmented", "en-gb-x-rp", ["No segments here."]),
]
WITHOUT_INFO = {"unsegmented"}


def speak(voice: str, phrase: str) -> bytes:
    """One phrase as mono PCM16 at RATE, silence trimmed off both ends, no dither so that it can be repeated."""
    espeak = ["espeak-ng", "-v", voice, "-s", "190", "--stdout", phrase]
    spoken = subprocess.run(espeak, check=True, capture_output=True).stdout
    raw = ["-t", "raw", "-r", str(RATE), "-b", "16", "-e", "signed", "-c", "1", "-"]
    trim = ["silence", "1", "0.005", "0.3%"]
    sox = ["sox", "-D", "-t", "wav", "-", *raw, *trim, "reverse", *trim, "reverse"]
    return subprocess.run(sox, input=spoken, check=True, capture_output=True).stdout


def is_exact(ms: int) -> bool:
    return int(float(json.dumps(ms / 1000)) * RATE) == ms * PER_MS


def pad(pcm: bytearray, ms: int = 0) -> float:
    """Append silence, at least `ms` of it, up to an exact millisecond; that time in seconds."""
    end = -(-len(pcm) // (2 * PER_MS)) + ms
    while not is_exact(end):
        end += 1
    pcm.extend(bytes(end * PER_MS * 2 - len(pcm)))
    return end / 1000


def main() -> None:
    shutil.rmtree(HERE / "wav", ignore_errors=True)
    (HERE / "wav").mkdir()
    lines = []
    for number, (key, voice, phrases) in enumerate(UTTERANCES, start=1):
        pcm = bytearray()
        segments: list[dict[str, float | str]] = []
        for phrase in phrases:
            written, spoken = (phrase, phrase) if isinstance(phrase, str) else phrase
            start = pad(pcm, PAUSE_MS) if pcm else 0.0
            pcm += speak(voice, spoken)
            segments.append({"start": start, "end": pad(pcm), "txt": written})

        name = f"wav/{number:02}.wav"
        with wave.open(str(HERE / name), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(pcm)

        between = "" if voice.startswith("cmn") else " "
        line: dict[str, object] = {"key": key, "wav": name, "txt": between.join(str(s["txt"]) for s in segments)}
        if key not in WITHOUT_INFO:
            line["info"] = {"segments": segments}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    (HERE / "speech.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
