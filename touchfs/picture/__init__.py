"""Pictures: arrays in, bytes or lines of text out. Waveforms, spectrograms, heat maps, for terminals and for pages."""
