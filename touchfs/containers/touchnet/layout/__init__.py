"""The index of a .bin, MMIDIDX, without IO."""
