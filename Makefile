# `make demo` and `make test` are all that a fresh checkout needs; everything goes into .venv.

PYTHON_BIN := .venv/bin
PYTEST := $(PYTHON_BIN)/python -m pytest -q -n auto
# Where it is set, each process of the tests would compile all that it imports, libraries too: some
# seconds each time.
unexport PYTHONDONTWRITEBYTECODE
# A test that takes more fails by name, with the stacks of its process's threads, and the others go on
# (tests/suite/limits.py): none takes a fourth of that on a quiet machine.
LIMITS := --limit-processor-s 120 --limit-wall-s 1800
LIMITS_LONG := --limit-processor-s 900 --limit-wall-s 3600
# Tests that need Java, Maven and the real RocketMQ are asked for by name.
WITHOUT_ORACLE := not oracle

# Programs of bench/ say themselves how they are run; the other modules there are their parts.
BENCHES = $(basename $(notdir $(shell grep -l 'python -m bench\.' bench/*.py)))

.PHONY: help demo test test-long test-again test-quick durations check audit check-adversary check-all check-bare check-boot check-deb check-power deb apt-repo fuzz seeds soak wheel release bench
.PHONY: bootstrap image map site clean distclean

help:
	@echo 'make demo        take over a store that RocketMQ wrote, and go on with it; then a group of three'
	@echo 'make test        all tests but the long ones and those that need the real RocketMQ'
	@echo 'make test-long   those that take six seconds and more; LONG_S=600 for what is over in that time'
	@echo 'make durations   both, and keep how long each took: tests/durations.json'
	@echo 'make test-again  what failed in the last run, one after the other'
	@echo 'make test-quick  the tests that take less than a quarter of a second each'
	@echo 'make check       ruff, mypy --strict, import contracts'
	@echo 'make check-all   all tests, in parts, with the real RocketMQ, Porcupine, bare and booted machines'
	@echo 'make soak        the parts in which something is killed, drawn or cut, for a night'
	@echo 'make seeds       seeds of the simulator, until 2,000 of each kind have passed with these sources'
	@echo 'make map         write build/map.md, each module in a sentence, and the index of decisions'
	@echo 'make site        the documentation for a browser, with a search that needs no server: build/site/html'
	@echo 'make deb         the Debian package for this suite, in dist/; SUITE=all ARCH=all for all of them'
	@echo 'make apt-repo KEY=…  all packages in a signed repository, dist/apt; make wheel: wheels, for other hosts'
	@echo 'make image       of these wheels an image of a node, for tests in CI (docker load, podman load)'
	@echo 'make release VERSION=X.Y.Z KEY=…  change log, tag, packages, repository, list of components, sums, from a clean clone'
	@echo 'make check-deb   lintian, and whether packages are the same bytes when built elsewhere; SUITE, ARCH'
	@echo 'make check-bare  what a stranger types, in bare roots of Debian and Ubuntu; needs root'
	@echo 'make check-boot  the package on a Debian machine that is booted for it; needs root'
	@echo 'make fuzz        decoders with coverage, an hour together; make audit: libraries with known vulnerabilities'
	@echo 'make check-adversary  attacks a node for an hour while honest clients go on'
	@echo 'make check-power lets the power of nodes fail, on disks that forget; needs root and FUSE'
	@echo 'make bench       measure this machine (bench/)'
	@echo 'make clean       remove what was built; make distclean: .venv too'

bootstrap:
	@packaging/bootstrap.sh

demo:
	@packaging/bootstrap.sh run
	@$(PYTHON_BIN)/ledgermq demo
	@$(PYTHON_BIN)/ledgermq cluster demo

test: bootstrap
	$(PYTEST) $(LIMITS) -m '$(WITHOUT_ORACLE)'

# LONG_S: what is over in so many seconds, as tests/durations.json has it; what is left out is said.
test-long durations: export LEDGERMQ_LONG = 1
test-long: bootstrap
	$(PYTEST) $(LIMITS_LONG) -m '$(WITHOUT_ORACLE) and long' $(LONG_S:%=--long-budget-s %)

# One after the other: what failed in the last run.
test-again: bootstrap
	$(PYTHON_BIN)/python -m pytest -q -n 1 $(LIMITS_LONG) -m '$(WITHOUT_ORACLE)' \
		--last-failed --last-failed-no-failures none

# On a quiet machine: workers are balanced by what the tests took, longest first (tests/suite/).
durations: bootstrap
	$(PYTEST) $(LIMITS_LONG) -m '$(WITHOUT_ORACLE)' --keep-durations

test-quick: bootstrap
	$(PYTEST) $(LIMITS) -m '$(WITHOUT_ORACLE) and not slow'

check: bootstrap
	$(PYTHON_BIN)/ruff check .
	$(PYTHON_BIN)/ruff format --check .
	$(PYTHON_BIN)/mypy ledgermq bench tests/linearizability tests/power tests/random_faults tests/simulator
	$(PYTHON_BIN)/lint-imports

# Parts that have passed on this tree are not run again: what was broken off goes on. PARTS='power spark'
# runs these, LIST=1 says how things stand.
check-all soak: export LEDGERMQ_BROWSER = 1
check-all site: export LEDGERMQ_SITE = 1
check-all soak check-boot: export LEDGERMQ_ANSIBLE = 1
check-all: bootstrap
	$(PYTHON_BIN)/python -m tests.suite.check_all $(PARTS) $(LIST:%=--list)

soak: bootstrap
	$(PYTHON_BIN)/python -m tests.suite.check_all --soak $(PARTS) $(LIST:%=--list)

# KIND='spoil plain' runs these, LIST=1 says how things stand. What passed is kept in a file of the tree.
seeds: bootstrap
	$(PYTHON_BIN)/python -m tests.suite.seed_ledger $(KIND) $(LIST:%=--list)

# SUITE and ARCH of packaging/suites.txt, or all; without them those of this machine.
DEB_WORDS = $(SUITE:%=--suite %) $(ARCH:%=--arch %)

deb:
	@packaging/make-deb.sh $(DEB_WORDS)

# All packages, and with PACKAGES='dist/*.deb' those; what the repository had stays in it.
apt-repo:
	@[ -n '$(KEY)' ] || { echo 'make apt-repo KEY=FINGERPRINT [URL=https://…]' >&2; exit 1; }
	@packaging/make-apt-repo.sh --key '$(KEY)' $(URL:%=--url %) $(PACKAGES)

# A source archive, a wheel for any machine, and one with compiled kernels for each Python that is
# found: pip takes what fits.
wheel:
	@packaging/make-wheels.sh

image:
	@packaging/make-image.sh

# WITHOUT='deb' leaves a step out, and what needs it; KEY and URL are those of the apt repository.
release: bootstrap
	@[ -n '$(VERSION)' ] || { echo 'make release VERSION=0.2.0 KEY=FINGERPRINT' >&2; exit 1; }
	@$(PYTHON_BIN)/python packaging/release.py '$(VERSION)' \
		$(KEY:%=--key=%) $(URL:%=--url=%) $(WITHOUT:%=--without=%)

check-deb:
	packaging/check-deb.sh $(DEB_WORDS)

# Each suite after the other, for tests in a bare root take all processors.
check-bare: bootstrap
	packaging/install-tools.sh bare
	LEDGERMQ_BARE=1 LEDGERMQ_BARE_LONG=1 LEDGERMQ_BARE_ALL=1 $(PYTHON_BIN)/python -m pytest -q tests/bare

check-boot: bootstrap
	packaging/install-tools.sh boot
	LEDGERMQ_BOOT=1 LEDGERMQ_BOOT_LONG=1 $(PYTHON_BIN)/python -m pytest -q tests/boot
	LEDGERMQ_BOOT_SUITE=trixie LEDGERMQ_BOOT=1 LEDGERMQ_BOOT_LONG=1 $(PYTHON_BIN)/python -m pytest -q \
		tests/boot/test_install.py tests/boot/test_life.py tests/boot/test_observer.py tests/boot/test_package_life.py \
		tests/boot/test_repository.py tests/boot/test_instances.py tests/boot/test_ansible.py

# An hour by default; what reaches new code is added to the corpus in the tree.
fuzz: bootstrap
	packaging/fuzz.sh $${LEDGERMQ_FUZZ_DECODERS_S:-3600}

audit: bootstrap
	packaging/audit.sh

# An hour by default: p50 and p99 of honest clients before and meanwhile, memory, restarts.
check-adversary: bootstrap
	LEDGERMQ_ADVERSARY_S=$${LEDGERMQ_ADVERSARY_S:-3600} $(PYTHON_BIN)/python -m pytest -q -s tests/adversary

check-power: bootstrap
	packaging/install-tools.sh power
	LEDGERMQ_POWER=1 $(PYTHON_BIN)/python -m pytest -q -s tests/power

map: bootstrap
	$(PYTHON_BIN)/python packaging/document_maps.py

site: bootstrap
	@$(PYTHON_BIN)/python packaging/documentation_site.py

bench: bootstrap
	for name in $(BENCHES); do echo "== $$name"; $(PYTHON_BIN)/python -m bench.$$name || exit 1; done

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf src/*.egg-info *.egg-info
	rm -f ledgermq/formats/kernels/_*.so ledgermq/formats/kernels/_*.c
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean
	rm -rf .venv
