"""The daemon: touchfs's tree through FUSE. Only this package knows pyfuse3 and trio.

    mounting    from a source to a running mount: composes all the others
    daemon      the supervisor (trio): starts the zygote, keeps workers alive, signals, readiness, unmounting
    reloading   reading the dataset anew on SIGHUP: the supervisor's part
    zygote      the process that mounted and answered INIT; it does nothing but fork workers
    workers     one worker: what it shares with its supervisor, and its life from fork to exit
    strikes     requests that may have ended a worker; they run alone
    alone       running a request in a process made for it (`one_request`)
    notifications  what the kernel is told without having asked
    loop        the event loop pyfuse3 runs on in a worker, in place of trio
    operations  FUSE requests to the tree and back: numbers and names in, attributes and errnos out
    control     the files of `.touchfs/`
    errnos      the one table from our errors to errnos
    mountpoint  what is mounted where; checks before mounting, and unmounting
    libfuse     options of a mount, and what is said when it is refused
    background  a daemon process whose parent waits until it is ready

A mount is one tree of processes: supervisor, zygote, workers. None has a thread when it forks.
"""
