"""The daemon: touchfs's tree through FUSE. Only this package knows pyfuse3 and trio.

    mounting    from a source to a running mount: options, the directory to mount on, ids of shards
    beside      programs beside a mount, which decompress shards or fetch them
    daemon      the processes of a mount: supervisor, zygote and workers, logs, reloading
    supervision the tasks of the supervisor: its zygote, restarts, stuck workers, the end of a mount
    loop        a worker's event loop, and threads for calls that may block
    requests    requests of the kernel: handlers, attributes, errnos, access, and requests that kill workers
    control     the control directory `.touchfs/`
    numbers     counters in memory that the processes of a mount share, and how they are shown

A mount is one tree of processes: supervisor, zygote, workers. None has a thread when it forks.
"""
