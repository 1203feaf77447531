"""An executor that runs each task twice."""

from concurrent.futures import ThreadPoolExecutor


class Twice(ThreadPoolExecutor):
    """Runs each task twice, as a cluster that lost a worker before it told that the first time had ended."""

    def submit(self, function, /, *arguments, **named):
        def run():
            function(*arguments, **named)
            return function(*arguments, **named)

        return super().submit(run)
