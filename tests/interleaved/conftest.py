from lance_process import one_lance_process

__all__ = ["one_lance_process"]
