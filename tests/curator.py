"""NeMo Curator's own readers and writers of interleaved samples, in a process of `.venv-curator`.

`.ci/setup test` makes that environment. Importing Curator takes seconds, so one process serves many calls: a line of
JSON for each, and tables in Arrow files. Its stages are called as its pipelines call them, without Ray.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

PYTHON = Path(__file__).parents[1] / ".venv-curator" / "bin" / "python"


class CuratorError(Exception):
    """A stage of Curator raised an error. `kind` is the name of its class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(frozen=True)
class CuratorBatch:
    """A batch that Curator read: its rows, its lineage, and the warnings of the call that gave it."""

    table: pa.Table
    source_files: list[str]
    warnings: list[str]


class Curator:
    """A process with Curator. Use it as a context manager, from one thread."""

    def __init__(self) -> None:
        if not PYTHON.exists():
            raise RuntimeError(f"{PYTHON} is missing: run .ci/setup test")
        self._place = tempfile.TemporaryDirectory(prefix="touchfs-curator-")
        self._log = Path(self._place.name, "log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [PYTHON, "-P", __file__, self._place.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )

    def __enter__(self) -> Curator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()
        self._place.cleanup()

    def read_webdataset(self, paths: Sequence[str | os.PathLike[str]], **parameters: Any) -> list[CuratorBatch]:
        """The batches of one partition, by `InterleavedWebdatasetReaderStage`."""
        return self._read("read_webdataset", paths, parameters)

    def read_parquet(self, paths: Sequence[str | os.PathLike[str]], **parameters: Any) -> list[CuratorBatch]:
        """The batches of one partition, by `InterleavedParquetReaderStage`."""
        return self._read("read_parquet", paths, parameters)

    def partitions(self, file_paths: str | list[str], **parameters: Any) -> list[list[str]]:
        """The files of each partition, by `FilePartitioningStage`."""
        answer = self._call("partitions", file_paths, parameters)
        found: list[list[str]] = answer["partitions"]
        return found

    def write_webdataset(self, table: pa.Table, source_files: Sequence[str] = (), **parameters: Any) -> list[str]:
        """The files that `InterleavedWebdatasetWriterStage` writes for a batch."""
        return self._write("write_webdataset", table, source_files, parameters)

    def write_parquet(self, table: pa.Table, source_files: Sequence[str] = (), **parameters: Any) -> list[str]:
        """The files that `InterleavedParquetWriterStage` writes for a batch."""
        return self._write("write_parquet", table, source_files, parameters)

    def materialize(self, table: pa.Table, **parameters: Any) -> pa.Table:
        """The rows with their bytes, by `materialize_task_binary_content`."""
        answer = self._call("materialize", self._save(table), parameters)
        return _load(answer["batches"][0]["table"])

    def _read(
        self, call: str, paths: Sequence[str | os.PathLike[str]], parameters: Mapping[str, Any]
    ) -> list[CuratorBatch]:
        answer = self._call(call, [os.fspath(path) for path in paths], parameters)
        return [
            CuratorBatch(_load(batch["table"]), batch["source_files"], answer["warnings"])
            for batch in answer["batches"]
        ]

    def _write(
        self, call: str, table: pa.Table, source_files: Sequence[str], parameters: Mapping[str, Any]
    ) -> list[str]:
        answer = self._call(call, [self._save(table), list(source_files)], parameters)
        written: list[str] = answer["written"]
        return written

    def _save(self, table: pa.Table) -> str:
        path = os.path.join(self._place.name, "asked.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return path

    def _call(self, call: str, data: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        request = {"call": call, "data": data, "parameters": dict(parameters)}
        self._process.stdin.write(json.dumps(request, default=os.fspath).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Curator's process ended: {self._log.read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise CuratorError(*answer["error"])
        return answer


def _load(path: str) -> pa.Table:
    """The table of an Arrow file, which is removed."""
    with pa.OSFile(path) as file:
        table = pa.ipc.open_file(file).read_all()
    os.unlink(path)
    return table


def serve(place: str) -> None:
    """Answer calls on standard input until it ends. This runs in `.venv-curator`."""
    import loguru
    from nemo_curator.stages.file_partitioning import FilePartitioningStage
    from nemo_curator.stages.interleaved.io.readers.parquet import InterleavedParquetReaderStage
    from nemo_curator.stages.interleaved.io.readers.webdataset import InterleavedWebdatasetReaderStage
    from nemo_curator.stages.interleaved.io.writers.tabular import InterleavedParquetWriterStage
    from nemo_curator.stages.interleaved.io.writers.webdataset import InterleavedWebdatasetWriterStage
    from nemo_curator.stages.interleaved.utils import materialize_task_binary_content
    from nemo_curator.tasks import EmptyTask, FileGroupTask, InterleavedBatch

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the stages print is not an answer
    warnings: list[str] = []
    loguru.logger.remove()
    loguru.logger.add(lambda message: warnings.append(message.record["message"]), level="WARNING")

    def batches(found: Any) -> dict[str, Any]:
        results = []
        for number, batch in enumerate(found if isinstance(found, list) else [found]):
            path = os.path.join(place, f"answer-{number}.arrow")
            table = batch.to_pyarrow()
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            results.append({"table": path, "source_files": batch._metadata.get("source_files", [])})
        return {"batches": results, "warnings": list(warnings)}

    def read(stage: Any, files: list[str], parameters: dict[str, Any]) -> dict[str, Any]:
        lists = {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}
        task = FileGroupTask(dataset_name="", data=files, _metadata={"source_files": files}, reader_config={})
        return batches(stage(**lists).process(task))

    def batch(path: str, source_files: Sequence[str] = ()) -> Any:
        with pa.OSFile(path) as file:
            table = pa.ipc.open_file(file).read_all()
        metadata = {"source_files": list(source_files)} if source_files else {}
        return InterleavedBatch(dataset_name="", data=table, _metadata=metadata)

    def write(stage: Any, data: list[Any], parameters: dict[str, Any]) -> dict[str, Any]:
        return {"written": stage(**parameters).process(batch(*data)).data}

    def partitions(paths: Any, parameters: dict[str, Any]) -> dict[str, Any]:
        stage = FilePartitioningStage(file_paths=paths, **parameters)
        return {"partitions": [task.data for task in stage.process(EmptyTask)]}

    calls = {
        "read_webdataset": lambda data, more: read(InterleavedWebdatasetReaderStage, data, more),
        "read_parquet": lambda data, more: read(InterleavedParquetReaderStage, data, more),
        "write_webdataset": lambda data, more: write(InterleavedWebdatasetWriterStage, data, more),
        "write_parquet": lambda data, more: write(InterleavedParquetWriterStage, data, more),
        "materialize": lambda data, more: batches(materialize_task_binary_content(batch(data), **more)),
        "partitions": partitions,
    }
    for line in sys.stdin:
        request = json.loads(line)
        warnings.clear()
        try:
            answer = calls[request["call"]](request["data"], request["parameters"])
        except Exception as error:
            answer = {"error": [type(error).__name__, str(error)]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
