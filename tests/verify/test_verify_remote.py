"""Verifying data of other stores asks for no more than it needs."""

from s3_server import asked_of_s3, s3_server
from tars import write_tar

from touchfs.indexing import open_dataset
from touchfs.shard.options import DEFAULT
from touchfs.verify.job import verify
from touchfs.verify.journal import Journal


def test_nobody_looks_again_for_what_is_beside_each_shard(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    with s3_server(monkeypatch) as s3:
        for number in range(5):
            data = write_tar(tmp_path / "one.tar", {f"k{number}.txt": b"x"}).read_bytes()
            s3.pipe(f"data/set/{number}.tar", data)
        dataset = open_dataset("s3://data/set")

        def verdicts():
            return list(verify(dataset, DEFAULT, Journal(str(tmp_path), dataset), None, lambda done, total: None))

        with asked_of_s3() as asked:
            assert [verdict.problems for verdict in verdicts()] == [[]] * 5
        assert {request.rpartition("/")[2] for request in asked} == {f"{number}.tar" for number in range(5)}
        s3.pipe("data/set/3.tar", data)
        assert [bool(verdict.problems) for verdict in verdicts()] == [False, False, False, True, False]
        s3.rm("data/set/4.tar")
        assert [bool(verdict.problems) for verdict in verdicts()] == [False, False, False, True, True]
