"""A mount namespace without the mounts of other tests and programs.

A new namespace has all of these. A command that looks at all mounts would find those that are killed. And a daemon goes
on while its mount is in any namespace, but other tests wait for its end.
"""

# One of the mounts may hang.
_UMOUNT = "umount --all --types fuse.touchfs,fuse.touchfs-control --internal-only --no-canonicalize --lazy"
# For a shell in the new namespace. When a daemon removes its mount point, the kernel detaches the mount here, too.
# Between umount's list and that mount's turn this is an error, and the second go finds nearly nothing.
FORGET_OTHERS = f"{_UMOUNT} 2> /dev/null || {_UMOUNT}"


def own_mounts(script: str) -> list[str]:
    """A command that runs the script in such a namespace."""
    return ["unshare", "--mount", "--propagation", "private", "bash", "-c", f"{FORGET_OTHERS}\n{script}"]
