"""Names with braces in other stores, and in lists that name several."""

import subprocess

import pytest
from command import TOUCHFS, in_one_process
from range_server import range_server
from s3_server import asked_of_s3, s3_server
from tars import write_tar

from touchfs.core.errors import LocationError, SourceError
from touchfs.core.location import keep_query
from touchfs.indexing import open_dataset
from touchfs.limits import Limits
from touchfs.registry.find import find_shards
from touchfs.shard.options import Options
from touchfs.source.remote.clients import with_query


@pytest.fixture(autouse=True)
def _own(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("TOUCHFS_URL_QUERIES", "{}")


@pytest.fixture(scope="module")
def s3():
    """Each test has a directory of its own."""
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as client:
        yield client


def tar(tmp_path, key):
    return write_tar(tmp_path / f"made/{key}.tar", {f"{key}.txt": key.encode()}).read_bytes()


def touchfs(*arguments):
    command = [TOUCHFS, *in_one_process(*arguments)]
    return subprocess.run(command, text=True, capture_output=True, check=False, timeout=60)


def found(source, keys, **limits):
    """The names of shards that cannot be served, and which of the keys are there."""
    dataset = open_dataset(source, options=Options(limits=Limits(**limits)), patience_seconds=10)
    return [shard.name for shard in dataset.shards if shard.report], [key for key in keys if dataset.find(key)]


def test_s3(s3, tmp_path):
    for number in range(12):
        if number != 7:
            s3.pipe(f"data/set/train-{number:03}.tar", tar(tmp_path, f"k{number}"))
    missing, keys = found("s3://data/set/train-{000..011}.tar", ["k0", "k11", "k12"])
    assert (missing, keys) == (["train-007"], ["k0", "k11"])
    assert find_shards("s3://data/set/train-_OP_000..001_CL_.tar") == [f"s3://data/set/train-00{i}.tar" for i in (0, 1)]
    s3.pipe("data/set/train-{000,001}.tar", tar(tmp_path, "literal"))
    assert found("s3://data/set/train-{000,001}.tar", ["k0", "literal"]) == ([], ["literal"])


def test_an_index_beside_members_is_found(s3, tmp_path, monkeypatch):
    for number in range(3):
        s3.pipe(f"data/indexed/{number}.tar", tar(tmp_path, f"k{number}"))
    source = "s3://data/indexed/{0..2}.tar"
    done = touchfs("index", "--in-place", source)
    assert done.returncode == 0, done
    assert s3.ls("data/indexed/.touchfs-index")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    assert "3 samples; indexed already" in touchfs("index", source).stdout


@pytest.fixture(scope="module")
def many(s3, tmp_path_factory):
    """The names of shards, of which the last one is missing."""
    names = [f"train-{number:03}.tar" for number in range(21)]
    for name in names[:-1]:
        s3.pipe(f"data/many/{name}", tar(tmp_path_factory.mktemp("many"), name))
    return names


@pytest.mark.parametrize(
    ("has_braces", "patience"),
    [
        (True, 10),
        (False, None),
        pytest.param(True, None, marks=pytest.mark.variant),
        pytest.param(False, 10, marks=pytest.mark.variant),
    ],
)
def test_a_list_of_many_names_of_s3_is_one_listing(many, tmp_path, has_braces, patience):
    """As for a directory, nobody asks about each of them."""
    names = ["train-{000..020}.tar"] if has_braces else many
    (tmp_path / "data.list").write_text("".join(f"s3://data/many/{name} audio\n" for name in names))
    options = Options(limits=Limits(locations=("s3://data/many",)))
    dataset = open_dataset(str(tmp_path / "data.list"), options=options)
    assert [shard.name for shard in dataset.shards if shard.report] == ["train-020"]
    with asked_of_s3() as asked:
        open_dataset(str(tmp_path / "data.list"), options=options, patience_seconds=patience)
    assert len(asked) < 10


def test_http(server, tmp_path):
    for number in (0, 2):
        server.put(f"/set/{number}.tar", tar(tmp_path, f"k{number}"))
    assert found(f"{server.url}/set/{{0..2}}.tar", ["k0", "k2"]) == (["1"], ["k0", "k2"])


def test_members_of_a_signed_url_are_asked_for_with_its_query(server, tmp_path):
    for name in ("a", "b"):
        server.put(f"/set/{name}.tar", tar(tmp_path, name))
    assert found(keep_query(f"{server.url}/set/{{a,b}}.tar?sig=1"), ["a", "b"]) == ([], ["a", "b"])
    assert with_query(f"{server.url}/set/b.tar") == f"{server.url}/set/b.tar?sig=1"
    elsewhere = ["/set/private/b.tar", "/set/c.tar", "/set/a,b.tar", "/set/.tar", "/set/../a.tar", "/set/%61.tar"]
    for other in (
        *(server.url + path for path in elsewhere),
        f"{server.url}/other/b.tar",
        f"{server.url}/set/b.idx",
        "http://other.example/set/b.tar",
    ):
        assert with_query(other) == other, "the signature goes nowhere else"


def test_a_query_goes_to_members_only():
    keep_query("https://host/{a,b{1..3}}/x-{008..011}-{c..e}_OP_,.old_CL_.tar?sig=2")
    members = ["a/x-008-c", "b1/x-009-d", "b3/x-011-e.old", "a/x-010-e"]
    others = [
        "b/x-008-c",
        "b4/x-008-c",
        "a/x-8-c",
        "a/x-012-c",
        "a/x-008-f",
        "a/x-008-",
        "a/x-008-c.new",
        "a/q/x-008-c",
    ]
    for name in members + others:
        url = f"https://host/{name}.tar"
        assert with_query(url) == (f"{url}?sig=2" if name in members else url)
    keep_query("https://{host,other}/y.tar?sig=3")
    keep_query("https://host/z-{0..99999999}.tar?sig=4")
    for url in ("https://host/y.tar", "https://host/z-1.tar"):
        assert with_query(url) == url


def test_a_store_that_does_not_answer_is_not_asked_for_each_member(monkeypatch):
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "0.3")
    with range_server() as gone:
        url = gone.url
    with pytest.raises(SourceError):
        find_shards(f"{url}/{{000..999}}.tar")


def test_a_list_of_several_stores(server, s3, tmp_path):
    server.put("/set/web-1.tar", tar(tmp_path, "web"))
    s3.pipe("data/listed/s3-1.tar", tar(tmp_path, "s3"))
    write_tar(tmp_path / "lists/here-1.tar", {"here.txt": b"x"})
    lines = [f"{server.url}/set/web-{{1,2}}.tar", "s3://data/listed/s3-_OP_1..2_CL_.tar", "here-{1..2}.tar"]
    (tmp_path / "lists/data.list").write_text("".join(f"{line} audio\n" for line in lines))
    allowed = f"{server.url}/set", "s3://data/listed"
    missing, keys = found(str(tmp_path / "lists"), ["web", "s3", "here"], locations=allowed)
    assert (missing, keys) == (["web-2", "s3-2", "here-2"], ["web", "s3", "here"])
    with pytest.raises(LocationError):
        find_shards(str(tmp_path / "lists"), locations=allowed[:1])


@pytest.mark.parametrize(
    "line", ["{url}/{{set,other}}/x.tar", "{url}/set/{{a,.{{.,x}}}}/x.tar", "http:{{//,//}}other/x"]
)
def test_braces_lead_nowhere_else(server, tmp_path, line):
    """Each name is judged, not the name with braces."""
    (tmp_path / "data.list").write_text(line.format(url=server.url) + " audio\n")
    with pytest.raises(LocationError):
        find_shards(str(tmp_path), locations=[f"{server.url}/set"])


def test_a_list_of_another_store_names_no_file_of_this_machine_by_braces(server):
    lines = ["{/etc,x}/passwd", "{.,x}{.,y}/z", "f{ile,oo}:///etc/passwd"]
    for line in lines:
        server.put("/set/data.list", f"{line} audio\n".encode(), f'"{line}"')
        try:
            assert all(shard.startswith(f"{server.url}/set/") for shard in find_shards(f"{server.url}/set/"))
        except LocationError:
            assert "ile" in line


def test_a_bucket_that_is_missing_is_told(s3):
    for name in ("x.tar", "directory"):
        done = touchfs("ls", f"s3://nosuch/{name}")
        assert (done.returncode, done.stderr) == (1, f"touchfs: s3://nosuch/{name}: no such bucket\n")
    done = touchfs("ls", "s3://data/nosuch.tar")
    assert (done.returncode, done.stderr) == (1, "touchfs: s3://data/nosuch.tar: no such file or directory\n")
