"""Files of other stores by URL: read in ranges through fsspec, and kept in blocks on this machine."""

# A name of this command or program, which its processes inherit. Each `touchfs` command has a new one. It is here
# because the command line sets it at each start, even for `--help`, and imports nothing more of this room for that.
SESSION_VARIABLE = "TOUCHFS_SESSION"
