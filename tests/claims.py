"""Opens datasets that claim more than they have, one after the other, and says how much memory each took.

Gets paths on stdin, and writes a line of JSON for each: the path, the peak in MB above what there was before, the
seconds, and what came of it: an error in one line, or the number of samples.
"""

import json
import sys
import time

import touchfs
from touchfs.core.errors import TouchfsError


def peak() -> int:
    """The largest resident size since `forget`, in MB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) >> 10


def forget() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def read_all(path: str) -> str:
    """Opens a dataset, and reads the first samples of it."""
    said = []
    try:
        samples = touchfs.open(path)
        said.append(f"{len(samples)} samples")
        for i in range(min(len(samples), 3)):
            for field in [*samples[i]]:
                try:
                    said.append(f"{field} {len(samples[i][field])}")
                except TouchfsError as error:
                    said.append(str(error))
    except TouchfsError as error:
        said.append(str(error))
    return "; ".join(said)


def main() -> None:
    import pyarrow.parquet  # noqa: F401

    for line in sys.stdin:
        forget()
        before, began = peak(), time.monotonic()
        said = read_all(line.rstrip("\n"))
        print(json.dumps([line.rstrip("\n"), peak() - before, round(time.monotonic() - began, 2), said]), flush=True)


main()
