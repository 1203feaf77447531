"""Tar archives: headers, members, sparse files, links, and grouping of members into samples."""

TAR_SUFFIX = ".tar"
