"""Ranges of 1 MiB of a web server, 16 at once, by aiohttp, which fsspec's client is made of, and by obstore (Rust).

Rates, and processor time of the client for a MiB. The server is on loopback, with 20 ms of latency and 50 MB/s a
connection. touchfs uses fsspec's clients: they know more stores, and where they are redirected to can be checked.
"""

import asyncio
import os
import random
import time

import aiohttp
import obstore
from harness import interleaved, report, run
from latency_server import ETAG, latency_server
from obstore.store import HTTPStore

MIB, FILE_MIB, COUNT, AT_ONCE, ROUNDS = 1 << 20, 256, 300, 16, 5


def main() -> None:
    starts = [random.Random(1).randrange(FILE_MIB) * MIB for _ in range(COUNT)]
    etag, used = ETAG.decode(), {"aiohttp": [0.0], "obstore": [0.0]}

    async def by_aiohttp(url: str) -> None:
        turn = asyncio.Semaphore(AT_ONCE)
        async with aiohttp.ClientSession() as session:

            async def read(start: int) -> None:
                headers = {"Range": f"bytes={start}-{start + MIB - 1}", "If-Match": etag}
                async with turn, session.get(f"{url}/0", headers=headers, read_bufsize=MIB) as reply:
                    data, filled = bytearray(MIB), 0
                    async for more, _ in reply.content.iter_chunks():
                        data[filled : filled + len(more)] = more
                        filled += len(more)
                    assert filled == MIB

            await asyncio.gather(*map(read, starts))

    async def by_obstore(url: str) -> None:
        turn, store = asyncio.Semaphore(AT_ONCE), HTTPStore.from_url(url, client_options={"allow_http": True})

        async def read(start: int) -> None:
            async with turn:
                options = {"range": (start, start + MIB), "if_match": etag}
                reply = await obstore.get_async(store, "0", options=options)
                assert len(await reply.bytes_async()) == MIB

        await asyncio.gather(*map(read, starts))

    with latency_server(FILE_MIB * MIB) as url:

        def rate(name: str) -> float:
            began, used_before = time.perf_counter(), time.process_time()
            asyncio.run(by_aiohttp(url) if name == "aiohttp" else by_obstore(url))
            used[name].append((time.process_time() - used_before) / COUNT)
            return COUNT / (time.perf_counter() - began)

        for name in used:
            rate(name)
        rates = interleaved({name: lambda name=name: rate(name) for name in used}, ROUNDS)
    times = {name: sorted(each[2:])[ROUNDS // 2] * 1e3 for name, each in used.items()}
    rows = [(name, f"{rates[name]:,.0f} MiB/s, {times[name]:.2f} ms of processors for a MiB", "") for name in used]
    ratios = rates["obstore"] / rates["aiohttp"], times["obstore"] / times["aiohttp"]
    rows.append(("obstore / aiohttp", f"{ratios[0]:.2f}x the rate, {ratios[1]:.2f}x the processor time", ""))
    report(f"Clients of a web server ({os.cpu_count()} cores)", rows)


if __name__ == "__main__":
    run(main)
