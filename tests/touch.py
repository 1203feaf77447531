"""Under whose name coverage counts the lines that run: a test's or a shared fixture's."""

import os

NAME = "TOUCHED_BY"


def touch_as(name: str) -> None:
    """From now on, lines count under this name, in this process and in those that it forks or starts."""
    from coverage import Coverage  # the fork server imports this module, also where nothing is measured

    running = Coverage.current()
    assert running is not None
    running.config.context = name
    os.environ |= {"COVERAGE_PROCESS_CONFIG": running.config.serialize(), NAME: name}
    running.switch_context(name)
