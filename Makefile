BUDGET ?= 30m
SOAK ?= 30m

.PHONY: check lint nightly fuzz soak bench

# What CI runs, but for the installation of packages.
check:
	bash .ci/run check

lint:
	bash .ci/run lint

# What takes too long for check: make nightly BUDGET=8h
nightly:
	bash .ci/nightly -budget $(BUDGET)

# All fuzz targets together: make fuzz BUDGET=1h
fuzz:
	bash .ci/nightly -budget $(BUDGET) fuzz

# Mixed transfers with faults against one server: make soak SOAK=5m
soak:
	go test ./tests/faults -run '^TestSoak$$' -v -count=1 -timeout 0 -soak $(SOAK)

bench:
	go run ./tests/bench
