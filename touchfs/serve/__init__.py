"""The tree of a dataset over HTTP: files with ranges, listings, and read-only WebDAV for what mounts it.

cheroot reads requests and sends answers. WebDAV is our own. WsgiDAV makes a listing as a whole in memory, 440 MiB for
100,000 entries, and answers only the first of several ranges; here a listing is sent while it is made, in 1 MiB.
"""
