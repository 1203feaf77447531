"""Tar archives: headers, members, sparse files, links, and which members are one sample."""
