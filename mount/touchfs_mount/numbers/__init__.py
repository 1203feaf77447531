"""The numbers of a mount: counters in memory that its processes share, as Prometheus text, and served by HTTP."""
