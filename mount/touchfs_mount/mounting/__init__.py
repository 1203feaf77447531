"""From a source to a running mount, and mount points."""
