"""EROFS images without data: their inodes name blocks of other files, which Linux (since 6.12) takes for devices."""
