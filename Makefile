FUZZTIME ?= 5s

.PHONY: check lint fuzz bench

# What CI runs, but for the installation of packages.
check:
	bash .ci/run check

lint:
	bash .ci/run lint

# FUZZTIME is per target: make fuzz FUZZTIME=10m
fuzz:
	FUZZTIME=$(FUZZTIME) bash .ci/run fuzz

bench:
	go run ./tests/bench
