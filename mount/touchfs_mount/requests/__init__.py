"""Requests of the kernel: handlers, their answers, and requests that kill workers."""
