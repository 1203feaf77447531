# Each target first installs what it lacks, with .ci/setup: system packages, and Python's into .venv.
# Another interpreter: make clean, then make PYTHON=python3.12.
export PYTHON
.NOTPARALLEL:
.PHONY: venv demo test check bench soak clean install-demo install-test install-bench

venv: install-demo

demo: install-demo
	@tests/demo.sh

# Tests of mounts count processes and wait for each other, so they run one after the other; all others on two processors.
test: install-test
	.venv/bin/python -m pytest -n 2 --ignore tests/mount
	.venv/bin/python -m pytest tests/mount

check: install-test
	.venv/bin/lint-imports
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

bench: install-bench
	.venv/bin/python tests/bench/run.py

soak: install-test
	TOUCHFS_KILLS=1000 .venv/bin/python -m pytest tests/mount/test_spike.py tests/mount/test_mount_strikes.py
	TOUCHFS_GRAPHS=6400 .venv/bin/python -m pytest tests/node/test_random_graphs.py

clean:
	rm -rf .venv build *.egg-info .*_cache .hypothesis
	find touchfs mount tests -name __pycache__ -prune -exec rm -rf {} +

install-demo install-test install-bench: install-%:
	@.ci/setup $*
