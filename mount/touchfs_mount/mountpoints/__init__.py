"""Mount points and the descriptors behind them: mount(2), fusermount3, /dev/fd/N, and the place of control files."""
