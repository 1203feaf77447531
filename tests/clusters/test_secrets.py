"""What a scheduler calls tasks, logs, and shows to whoever has its address: no secret, and no URL with a signature."""

import os
import re
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from distributed import Client
from range_server import range_server
from s3_server import SECRET
from tars import write_tar
from waiting import wait_until

from touchfs.clusters.dask import cluster as connected
from touchfs.indexing import open_dataset

pytestmark = pytest.mark.xdist_group("dask")
QUERY = "planted-signature"


def names(dask_scheduler):
    """All keys that there are and were, and what the scheduler says of them."""
    now = [(key, repr(task), str(task.prefix), str(task.group)) for key, task in dask_scheduler.tasks.items()]
    return repr((now, list(dask_scheduler.transition_log), dask_scheduler.get_events(), dask_scheduler.get_logs()))


def pages(address):
    """All pages of the dashboard that can be reached from its first ones."""
    seen, left = (
        {},
        ["info/main/workers.html", "info/main/logs.html", "json/identity.json", "json/index.html", "metrics"],
    )
    while left:
        page = left.pop()
        if page in seen:
            continue
        try:
            with urlopen(f"{address}/{page}") as answer:
                seen[page] = answer.read().decode()
        except HTTPError as error:
            seen[page] = error.read().decode()
        for link in re.findall(r'href="(?:\.\./)*([^":]+\.html)"', seen[page]):
            left.append(link if link.startswith(("info", "json")) else f"info/{link}")
    return seen


def wait_for_end(fifo: str, *_: str) -> None:
    with open(fifo):
        pass


def test_no_secret_is_in_keys_and_pages(dask, tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    write_tar(tmp_path / "a.tar", {"a.txt": b"1"})
    os.mkfifo(tmp_path / "fifo")
    with range_server() as server:
        url = server.put("/a.tar", (tmp_path / "a.tar").read_bytes()) + f"?signature={QUERY}"
        with connected(dask.address, 1, [], []) as executor, Client(dask.address, set_as_default=False) as client:
            dashboard = f"http://127.0.0.1:{client.scheduler_info()['services']['dashboard']}"
            dataset = open_dataset(url, executor=executor)
            assert len(dataset.shards) == 1
            task = executor.submit(wait_for_end, str(tmp_path / "fifo"), QUERY, SECRET)
            wait_until(lambda: any(client.processing().values()))
            known, shown = client.run_on_scheduler(names), pages(dashboard)
            with open(tmp_path / "fifo", "w"):
                pass
            task.result(60)
        assert "touchfs" in known
        assert len(shown) > 5
        assert "touchfs" in "".join(shown.values())
        for secret in (QUERY, SECRET):
            assert secret not in known
            assert [page for page, text in shown.items() if secret in text] == []
            assert secret not in dask.log.read_text()
