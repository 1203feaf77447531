"""Views: the files that a sample shows. Each view is a pure function of a sample and does no IO."""
