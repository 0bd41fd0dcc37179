# `make` alone lists the targets. Works with GNU make 3.81 (macOS) and newer.

BIN = .venv/bin
# In front of whatever may start a JVM: the Java that was found is the one that Spark gets.
WITH_JAVA = . scripts/java.sh &&

# Where this is set, as in many images of containers, each of the processes that tests start would compile all modules.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help setup demo test test-all test-unit test-cluster test-spot test-spark-oldest test-yarn test-live test-fleet test-remedies test-ledgers test-rehearse test-compare test-frameworks test-container test-airflow test-browser docs airflow-env check bench nightly nightly-cases nightly-fuzz nightly-spot nightly-fleet nightly-versions fuzz fuzz-coverage sbom mutants picture map wheel dist bundle lock clean env

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

setup: .venv/.ready ## make .venv with the locked dependencies (the others do it by themselves)

NEEDS = requirements-build.lock pyproject.toml scripts/setup.sh

.venv/.ready: requirements.lock $(NEEDS)
	@sh scripts/setup.sh

.venv/.run: requirements-run.lock $(NEEDS)
	@sh scripts/setup.sh run

demo: .venv/.run ## audit a small log directory of a real broker and write its report; needs no Java
	@$(BIN)/auditor demo --master inline

# A test that hangs fails after TEST_LIMIT seconds by the clock and says where it stood; the slowest take three minutes.
TEST_LIMIT ?= 900
PYTEST = $(BIN)/python -m pytest -n logical --timeout $(TEST_LIMIT) --durations 25 --durations-min 5

test: export JAVA_IS_OPTIONAL = 1
test: setup ## unit tests and audits of whole directories in the tests' own process: no Java, no network (some 6 minutes)
	@$(PYTEST) tests/test_tidy.py tests/unit tests/whole

test-all: setup ## all tests but those that start brokers, Spark clusters or browsers; mutants of the day's FUZZ_SEED
	@$(WITH_JAVA) $(PYTEST) -m "not cluster and not browser"

test-unit: export JAVA_IS_OPTIONAL = 1
test-unit: setup ## the unit tests alone, a part of make test
	@$(BIN)/python -m pytest -n logical tests/unit

test-cluster: setup ## what starts a Spark cluster or real brokers: spark-submit, a worker killed, live audits (about 15 minutes)
	@$(WITH_JAVA) $(BIN)/python -m pytest -m "cluster and not airflow" tests/cluster tests/broker \
	  --ignore tests/cluster/test_spark_versions.py \
	  --ignore tests/broker/test_ledgers.py \
	  --ignore tests/broker/test_flink.py --ignore tests/broker/test_connect_and_streams.py

test-spot: setup ## a Spark cluster whose machines come and go, and drivers that are killed and resumed (SPOT_RUNS=50 SPOT_POINTS=10: all day on a laptop)
	@$(WITH_JAVA) $(BIN)/python -m pytest -s -m cluster tests/cluster/test_spot_machines.py

test-spark-oldest: setup ## what is Spark's alone on the oldest declared Spark, in an environment of its own, and on the newest (about 20 minutes)
	@$(WITH_JAVA) $(BIN)/python -m pytest tests/cluster/test_spark_versions.py

test-yarn: setup ## hdfs:// and spark-submit on Hadoop's own mini clusters: client and cluster mode (several minutes)
	@$(WITH_JAVA) $(BIN)/python -m pytest tests/cluster/test_hadoop.py

test-live: setup ## auditor live against real brokers 2.8 to 4.3: a hang made, found, closed, gone; from any offset the same advice (about 5 minutes)
	@$(WITH_JAVA) $(BIN)/python -m pytest tests/cluster/test_live.py tests/cluster/test_live_decisions.py

test-fleet: setup ## three brokers under load, copied into a store every minute and audited, a hang made on the way (FLEET_ROUNDS=15: a quarter of an hour)
	@$(WITH_JAVA) FLEET_ROUNDS=$${FLEET_ROUNDS:-15} $(BIN)/python -m pytest -m cluster tests/cluster/test_fleet.py

test-remedies: setup ## real clusters brought into the commonest states, audited, and the remedies carried out as printed (about 20 minutes)
	@$(WITH_JAVA) $(BIN)/python -m pytest -m "" tests/broker/test_remedies.py

test-ledgers: setup ## producers that record acknowledgements, brokers that lose records, and auditor impact (2 runs, 8 minutes; LEDGER_RUNS=all: 20 runs)
	@$(WITH_JAVA) $(BIN)/python -m pytest -m "" tests/broker/test_ledgers.py

test-rehearse: setup ## brokers stopped and killed under transactional load, and what auditor rehearse foretold (about 20 minutes)
	@$(WITH_JAVA) $(BIN)/python -m pytest -m "" tests/broker/test_rehearse.py

test-compare: setup ## MirrorMaker 2 between two clusters, losses made on the way, and what auditor compare finds (about 2 minutes)
	@$(WITH_JAVA) $(BIN)/python -m pytest -m "" tests/broker/test_compare.py

test-frameworks: setup ## real Flink, Kafka Connect and Kafka Streams killed before they commit, audited, restored, their records counted (about 20 minutes)
	@$(WITH_JAVA) $(BIN)/python -m pytest -m "" tests/broker/test_flink.py tests/broker/test_connect_and_streams.py

test-container: setup ## lint the Containerfile and run its steps in a Debian root directory (needs root, debootstrap, npx; some 5 minutes)
	@$(BIN)/python -m pytest -m cluster tests/cluster/test_container.py

test-airflow: setup airflow-env ## the DAG in a real Airflow with a real spark-submit (about 5 minutes)
	@$(WITH_JAVA) AIRFLOW_PYTHON=.venv-airflow/bin/python $(BIN)/python -m pytest -m airflow tests/airflow_dag

test-browser: .venv/.browser ## the pages in the system's Chromium (about 1 minute)
	@$(BIN)/python -m pytest -m browser tests/browser

.venv/.browser: requirements-browser.lock | setup
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements-browser.lock
	touch .venv/.browser

docs: .venv/.docs ## the reference pages into build/site; a link that leads nowhere fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet && echo "docs: build/site/index.html; to search too: $(BIN)/python -m http.server -d build/site"

.venv/.docs: requirements-docs.lock | setup
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements-docs.lock
	touch .venv/.docs

airflow-env: .venv-airflow/.ready ## make .venv-airflow: Airflow and its Spark provider, which must not share .venv

.venv-airflow/.ready: requirements-airflow.lock
	python3 -m venv --clear .venv-airflow
	.venv-airflow/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements-airflow.lock
	touch .venv-airflow/.ready

check: setup ## style, types, code lines per package, docstrings, identifiers, words, layers, commit subjects of BASE..HEAD
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/code_lines.py
	$(BIN)/python scripts/conventions.py
	$(BIN)/python scripts/words.py
	$(BIN)/python scripts/commit_subjects.py
	$(BIN)/python -m pytest -q tests/test_tidy.py

bench: .venv/.bench ## beside Kafka's DumpLogSegments, into docs/lab-book.md (BENCH_FULL=1: all sizes)
	@$(WITH_JAVA) $(BIN)/python -m bench

.venv/.bench: requirements-bench.lock | setup
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements-bench.lock
	touch .venv/.bench

# What make nightly runs, one after the other; what fails does not keep the others from running.
NIGHTLY ?= cases fuzz spot fleet versions
nightly: ## random cases, mutants, machines that come and go, a fleet, Spark's versions: all night (NIGHTLY="cases fuzz": parts)
	@failed=; for part in $(NIGHTLY); do \
	  echo "nightly: $$part"; $(MAKE) --no-print-directory nightly-$$part || failed="$$failed $$part"; \
	done; if [ -n "$$failed" ]; then echo "nightly: failed:$$failed" >&2; exit 1; fi

nightly-cases: setup ## test-all with many more random cases (DIFFERENTIAL_HISTORIES=1000000: an hour more; DIFFERENTIAL_FROM: go on)
	@$(WITH_JAVA) DIFFERENTIAL_HISTORIES=$${DIFFERENTIAL_HISTORIES:-100000} HYPOTHESIS_PROFILE=nightly \
	  $(BIN)/python -m pytest -n logical -m "not cluster and not browser"

nightly-fuzz: ## a tenth of make fuzz, of the day's seed: others every night
	@seed=$${FUZZ_SEED:-$$(( $$(date +%s) / 86400 ))}; echo "nightly: FUZZ_SEED=$$seed"; $(MAKE) --no-print-directory fuzz \
	  FUZZ_SEED=$$seed FUZZ_MUTANTS=$${FUZZ_MUTANTS:-2000000} FUZZ_HERDED=$${FUZZ_HERDED:-20000} FUZZ_DIRECTORIES=$${FUZZ_DIRECTORIES:-2000} FUZZ_SEALED=$${FUZZ_SEALED:-1000}

nightly-spot: test-spot

nightly-fleet: test-fleet

nightly-versions: test-spark-oldest

fuzz: setup ## twenty million mutants of files against every decoder; 200 000 of files in directories, and 20 000 directories, through the audit; 3 000 histories of extreme numbers, every way (nine hours a core)
	@rm -f fuzz.last; NUMBA_BOUNDSCHECK=1 $(BIN)/python -m tests.fuzz --mutants $${FUZZ_MUTANTS:-20000000} --seed $${FUZZ_SEED:-2} --last fuzz.last
	@NUMBA_BOUNDSCHECK=1 $(BIN)/python -m tests.fuzz --herds --mutants $${FUZZ_HERDED:-200000} --seed $${FUZZ_SEED:-2} --last fuzz.last
	@NUMBA_BOUNDSCHECK=1 $(BIN)/python -m tests.fuzz --whole --mutants $${FUZZ_DIRECTORIES:-20000} --seed $${FUZZ_SEED:-2} --last fuzz.last
	@NUMBA_BOUNDSCHECK=1 $(BIN)/python -m tests.fuzz --sealed --mutants $${FUZZ_SEALED:-3000} --seed $${FUZZ_SEED:-2} --last fuzz.last

fuzz-coverage: setup ## mutants that reach new lines are kept: a minute a format (needs atheris, which is not locked)
	@$(BIN)/python -m tests.fuzz.coverage_guided --seconds $${FUZZ_SECONDS:-60} --finds fuzz.finds

sbom: setup ## docs/licenses.md and dist/sbom.json (CycloneDX) from the lock, offline
	$(BIN)/python scripts/sbom.py requirements.lock docs/licenses.md dist/sbom.json

mutants: export JAVA_IS_OPTIONAL = 1
mutants: setup ## flip every comparison of the model, one at a time; a test must fail (about 40 minutes; MUTANTS="--sample 20 --tiers": which make target sees them)
	@$(WITH_JAVA) $(BIN)/python -m tests.mutation $(MUTANTS)

map: ## every module by its package, with the first line of its docstring
	@python3 scripts/modules.py

picture: setup ## the pictures in the README, made from the demo (needs Chromium)
	@$(WITH_JAVA) sh scripts/picture.sh

wheel: setup ## the wheel, and the same file as .zip for spark-submit --py-files, into dist/
	@$(BIN)/python scripts/release.py --wheel

dist: setup ## all files of a release: wheel, sdist, archives for hosts without network, SBOM, checksums (a download of 1 GB)
	@$(BIN)/python scripts/release.py

bundle: setup ## one archive for a Linux host without network (BUNDLE_PYTHON=3.11, BUNDLE_MACHINE=x86_64 or aarch64; glibc)
	@$(BIN)/python scripts/bundle.py dist $${BUNDLE_PYTHON:-3.11} $${BUNDLE_MACHINE:-x86_64}

env: setup ## what executors without these libraries need, for spark-submit --archives
	$(BIN)/python scripts/pack_env.py dist/executor-env.tar.gz

lock: ## choose the pinned versions again (needs uv)
	rm -f requirements.lock requirements-build.lock requirements-run.lock
	$(LOCK) pyproject.toml --all-extras --group dev --output-file requirements.lock
	$(LOCK) --constraint requirements.lock --no-annotate pyproject.toml --output-file requirements-run.lock
	$(LOCK) --group build --output-file requirements-build.lock
	$(LOCK) --constraint requirements.lock --group docs --output-file requirements-docs.lock
	$(LOCK) --constraint requirements.lock --group bench --output-file requirements-bench.lock
	uv pip compile --universal --generate-hashes --python-version 3.11 --no-emit-index-url --no-header --quiet \
	  airflow_dags/requirements.in --output-file requirements-airflow.lock
	uv pip compile --universal --generate-hashes --python-version 3.11 --constraint requirements.lock \
	  --no-emit-index-url --no-header --quiet tests/browser/requirements.in --output-file requirements-browser.lock

LOCK = uv pip compile --universal --generate-hashes --python-version 3.11 --constraint constraints.txt \
  --no-emit-index-url --no-header --quiet

clean: ## remove all that make made here, .venv too
	rm -rf .venv .venv-airflow build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
