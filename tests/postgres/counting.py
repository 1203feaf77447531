"""Steps that are numbers."""

from touchfs.iterators.registry import Registry


def counting(store):
    """Makes steps, in a table of its own: the position of an iterator."""
    iterator = Registry(store).create("counter")

    def make(connection):
        (steps,) = connection.execute("SELECT steps FROM iterator WHERE id = ?", (iterator,)).fetchone()
        connection.execute("UPDATE iterator SET steps = ? WHERE id = ?", (steps + 1, iterator))
        return b"%d" % steps

    return make
