FUZZTIME ?= 3s
SOAK ?= 30m

.PHONY: check lint fuzz soak bench

# What CI runs, but for the installation of packages.
check:
	bash .ci/run check

lint:
	bash .ci/run lint

# FUZZTIME is per target: make fuzz FUZZTIME=10m
fuzz:
	FUZZTIME=$(FUZZTIME) bash .ci/run fuzz

# Mixed transfers with faults against one server: make soak SOAK=5m
soak:
	go test ./tests/faults -run '^TestSoak$$' -v -count=1 -timeout 0 -soak $(SOAK)

bench:
	go run ./tests/bench
