"""The cells of memory that each worker shares with the supervisor, all 64-bit numbers.

Only the worker writes them, so there is no lock. BUSY_SINCE is CLOCK_MONOTONIC in ns, 0 while it waits for a request.
FAILURES counts the requests that failed by a bug of ours, LATE_REPLIES the answers to requests that were resent or
interrupted and are answered already, LOST_RACES the requests that were withdrawn, or that another worker took. PARKED
is how many requests wait for a thread, or run in one.
"""

from __future__ import annotations

BUSY_SINCE, REQUESTS, LOST_RACES, FAILURES, LATE_REPLIES, PARKED = range(6)
CELLS = 6
