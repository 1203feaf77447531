"""Views: which files a sample shows. Each is a pure function of a sample and does no IO."""
