"""A mount namespace without the mounts of other tests and programs.

A command that looks at all mounts would find those that are killed. And a daemon goes on while its mount is in any
namespace, but other tests wait for its end.
"""

# For a shell in the new namespace.
FORGET_OTHERS = (
    "findmnt --noheadings --raw --output TARGET --types fuse.touchfs | "
    'while read -r point; do umount --lazy "$(printf %b "$point")" 2> /dev/null || true; done'
)


def own_mounts(script: str) -> list[str]:
    """A command that runs the script in such a namespace."""
    return ["unshare", "--mount", "--propagation", "private", "bash", "-c", f"{FORGET_OTHERS}\n{script}"]
