"""Codings and containers of samples, without IO: packets, frames, pages, sample formats."""
