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

test: lint types site unit deployment

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP)
	$(BIN)/mypy

# The documentation, into site/: every warning is an error, broken links and anchors too.
.PHONY: site
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

unit: $(STAMP) browser
	$(BIN)/python -m pytest -n 3 --durations 8

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

# Against the paper's form, what people use instead, and the limit: tables, runs/bench/bench.json and pictures. Seven
# minutes on two cores; nothing else should run meanwhile. The peers are installed for this alone; phe is under the GPL.
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

# Everything that is installed is pinned and checked by its hash, but for PyTorch: which build of it you get depends on
# where it comes from. The package itself is installed in place; its kernels are compiled again when their source changes.
$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard src/secea/arithmetic/_kernels/*.[ch]) src/secea/arithmetic/_kernels/build.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement constraints.txt
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	touch $(STAMP)

# After a change of dependencies: new pins and hashes of everything but PyTorch and what its CUDA builds bring along.
TORCH := torch==2.13.0
CUDA := bindings pathfinder toolkit
NVIDIA := cublas cuda-cupti cuda-nvrtc cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 \
  nccl-cu13 nvjitlink nvshmem-cu13 nvtx
LEFT_OUT := torch triton $(CUDA:%=cuda-%) $(NVIDIA:%=nvidia-%)
.PHONY: constraints
constraints: $(STAMP)
	sed '/^[^#]/,$$d' constraints.txt > constraints.new
	$(BIN)/uv pip compile --quiet pyproject.toml --extra dev --python-version 3.11 --python-platform linux --upgrade \
	  --generate-hashes --no-annotate --no-header $(LEFT_OUT:%=--no-emit-package %) >> constraints.new
	mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .hypothesis src/*.egg-info src/secea/arithmetic/_kernels/*.so src/secea/arithmetic/_kernels/*.o
