"""How codings and containers store samples, without IO: packets, frames, pages, sample formats."""
