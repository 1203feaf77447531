"""Requests of the kernel: handlers, what they answer, and those that end workers."""
