# Everything runs in .venv, which is made on first use; nothing else needs to be installed but Python 3.11 and a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

.PHONY: demo test lint types unit browser deployment slow bench accept format clean

# The main job on real data: five ways to train, one table, one page.
demo: $(STAMP)
	rm -rf runs/demo
	$(BIN)/secea train kg --data umls --clients 8 --rounds 40 --out runs/demo
	$(BIN)/secea report runs/demo

test: lint types unit deployment

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP) browser
	$(BIN)/python -m pytest -n 2 --durations 8

# Pages are looked at in a real browser.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] || s=sudo; $$s apt-get update -q && \
	  DEBIAN_FRONTEND=noninteractive $$s apt-get install -y -q --no-install-recommends chromium fonts-liberation; }

# Real processes on loopback, for both engines side by side: one waits while the other works.
deployment: $(STAMP)
	$(BIN)/python -m pytest -m "engines and not slow_engine" -n 2 --dist loadfile --durations 8 tests/engines

# The rest of it: what takes minutes each, since Flower notices after one that somebody is gone.
slow: $(STAMP)
	$(BIN)/python -m pytest -m slow_engine --durations 8 tests/engines

# Against the paper's form, what people use instead, and the limit: tables, runs/bench/bench.json and pictures. A
# quarter of an hour on two cores; nothing else should run meanwhile. The peers are installed for this alone; phe is under the GPL.
bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/secea bench --large --out runs/bench
	$(BIN)/secea bench --read runs/bench/bench.json --compare

# That run is the accepted one from now on, and the page shows it.
accept: $(STAMP)
	cp runs/bench/bench.json bench/accepted.json
	$(BIN)/secea bench --read bench/accepted.json --markdown docs/performance.md

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The package is installed in place; its kernels are compiled again when their source changes.
$(STAMP): pyproject.toml setup.py $(wildcard src/secea/_kernels/*.[ch]) src/secea/_kernels/build.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis src/*.egg-info src/secea/_kernels/*.so src/secea/_kernels/*.o
