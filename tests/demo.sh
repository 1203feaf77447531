#!/usr/bin/env bash
# The demo of the README: pack a few recordings into shards, mount them, look, copy, verify, unmount. Every command is printed
# before it runs, and can be pasted into a shell in this directory.
# shellcheck disable=SC2016
set -u
cd "$(dirname "$0")/.." || exit

run() {
    printf '\n$ %s\n' "$1"
    eval "$1"
}

demo() {
    run 'export XDG_CACHE_HOME=$DIR/cache XDG_STATE_HOME=$DIR/state'
    run 'touchfs pack touchnet tests/data/speech/speech.jsonl $DIR/shards'
    run 'touchfs mount $DIR/shards $DIR/mnt'
    run 'ls $DIR/mnt $DIR/mnt/shards'
    run 'find $DIR/mnt/shards | head'
    run 'cat $DIR/mnt/shards/000000000/talks/monday.txt; echo'
    run 'ls -l $DIR/mnt/segments/000000000/talks/monday/'
    run 'cp $DIR/mnt/shards/000000000/talks/monday.wav $DIR/recording.wav'
    run 'cp $DIR/mnt/segments/000000000/talks/monday/0001.wav $DIR/segment.wav'

    if command -v ffprobe >/dev/null; then
        run 'ffprobe -hide_banner $DIR/recording.wav 2>&1'
        run 'ffprobe -hide_banner $DIR/segment.wav 2>&1'
    elif command -v sox >/dev/null; then
        run 'sox --i $DIR/recording.wav $DIR/segment.wav'
    fi
    run 'python3 -c "
import json, sys, wave
def samples(path):
    with wave.open(path) as file:
        return memoryview(file.readframes(file.getnframes())).cast(\"h\"), file.getframerate()
line = json.loads(open(\"tests/data/speech/speech.jsonl\", encoding=\"utf-8\").readline())
phrase = line[\"info\"][\"segments\"][1]
original, rate = samples(\"tests/data/speech/\" + line[\"wav\"])
start, end = (int(phrase[at] * rate) for at in (\"start\", \"end\"))
same = samples(sys.argv[1]) == (original, rate) and samples(sys.argv[2]) == (original[start:end], rate)
print(f\"recording {len(original) / rate} s, segment {(end - start) / rate} s:\", \"the same samples\" if same else \"DIFFERENT\")
sys.exit(not same)
" $DIR/recording.wav $DIR/segment.wav'

    run 'touchfs umount $DIR/mnt'
    echo
    echo 'To see these recordings in the browser: .venv/bin/touchfs demo /tmp/demo && .venv/bin/touchfs serve /tmp/demo/touchnet --open'
}

finish() {
    mount_point=$(realpath "$DIR")/mnt
    for _ in 1 2 3 4 5; do # a mount interrupted while it starts may still appear
        if grep -qsF " $mount_point " /proc/mounts; then
            touchfs umount "$mount_point" || fusermount3 -u -z "$mount_point"
        fi
        rm -rf --one-file-system "$DIR" 2>/dev/null
        sleep 0.2
        [ -e "$DIR" ] || return
    done
    echo "could not remove $DIR" >&2
}

# Ctrl-C ends the subshell, and this shell cleans up: Bash may give up in the middle of a trap. The subshell has traps, or it
# would go on where its command has ended as if nothing had happened.
trap : INT TERM
run 'export PATH="$PWD/.venv/bin:$PATH"'
run 'DIR=$(mktemp -d)' || exit
(
    trap 'exit 130' INT
    trap 'exit 143' TERM
    set -e
    demo
)
status=$?
trap '' INT TERM
finish
exit "$status"
