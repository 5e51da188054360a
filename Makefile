# Everything runs in .venv, which is made on first use; nothing else needs to be installed but Python 3.11 and a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
export PYTHONDONTWRITEBYTECODE := # tests start many processes: what was compiled once is kept

.PHONY: demo test lint types unit smoke slow deployment mutation bench bench-large accept portable sanitize wheels format clean

# The main job on real data: five ways to train, one table, one page.
demo: $(STAMP)
	rm -rf runs/demo
	$(BIN)/secea train kg --data umls --clients 8 --rounds 40 --out runs/demo
	$(BIN)/secea report runs/demo

# Five minutes on two cores, which are busy with units while processes of the engines wait. What takes longer is `make slow`.
test: $(STAMP)
	$(MAKE) --jobs 3 --output-sync lint types site unit smoke

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP)
	$(BIN)/mypy

# The documentation, into site/: every warning is an error, broken links and anchors too.
.PHONY: site
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

unit: $(STAMP)
	$(BIN)/python -m pytest -n 2 --durations 8

# One federation on each engine, as real processes on loopback.
smoke: $(STAMP)
	$(BIN)/python -m pytest -m smoke --durations 4 tests/engines

# Long lives, exhaustive cases, pages in a real browser (Chromium), and hosts and sites as processes. Every fault of a
# site on each engine is tried meanwhile, which is mostly waiting.
slow: $(STAMP)
	$(MAKE) --jobs 2 --output-sync exhaustive faults

.PHONY: exhaustive faults
exhaustive: $(STAMP)
	$(BIN)/python -m pytest -m slow -n 2 --durations 8 --ignore tests/engines/test_faults.py

faults: $(STAMP)
	$(BIN)/python -m pytest -m slow -n 2 --durations 2 tests/engines/test_faults.py

# Before a release: all claims with all their cases.
.PHONY: audit
audit: $(STAMP)
	$(BIN)/secea audit --thorough

# Before a release: everything that can happen to an engine's processes, and what takes minutes each.
deployment: $(STAMP)
	$(BIN)/python -m pytest -m "engines and not smoke and not slow" -n 2 --dist loadfile --durations 8 tests/engines tests/packaging

# Small changes to the source of the protocol, one after another: which of them does no test notice? Hours on one core;
# when it was stopped, it goes on where it was. mutation/README.md says more.
mutation: $(STAMP)
	$(BIN)/python -m mutation --resume .mutation/all.json

# Against what people use instead, the paper's form and the limit: a verdict, the aims, tables, runs/bench/bench.json and
# pictures. Ten minutes on two cores; nothing else should run meanwhile. The peers are installed for this alone; phe is
# under the GPL.
bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m bench --out runs/bench
	$(BIN)/python -m bench --read runs/bench/bench.json --compare

# A million slots, twice, and ten million: time and memory; and real engines. Half an hour.
bench-large: $(STAMP)
	$(BIN)/python -m bench large engines --out runs/bench-large

# These runs are the accepted ones from now on, and the page shows them.
MEASURED = $(wildcard runs/bench/bench.json runs/bench-large/bench.json)
accept: $(STAMP)
	$(BIN)/python -m bench $(MEASURED:%=--read %) --out runs/accepted
	cp runs/accepted/bench.json bench/accepted.json
	$(BIN)/python -m bench --read bench/accepted.json --markdown docs/performance.md

# The compiled loops for other processors, systems and compilers. Needs gcc and zig: tests/portable.py says how.
portable: $(STAMP)
	ZIG="$(ZIG)" $(BIN)/python tests/portable.py

# The compiled loops under AddressSanitizer and UBSan: their tests, and the fuzzer's inputs. Needs gcc.
sanitize: $(STAMP)
	INPUTS="$(INPUTS)" $(BIN)/python tests/sanitize.py

# A source archive and a wheel into dist/, and a small federation on each Python from 3.11 on that is at hand, or those that
# PYTHONS names.
wheels: $(STAMP)
	PYTHONS="$(PYTHONS)" $(BIN)/python tests/wheels.py

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
