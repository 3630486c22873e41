# Everything that is done to this project is a target here; .ci/run calls the same ones.

CARGO ?= cargo
# Passed to `tidings demo`, e.g. make demo ARGS="--for 30s"
ARGS ?=

.PHONY: help demo test damage conformance e2e drill fuzz lint bench build tools schema docs api

help: ## What there is to do
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

tools: ## Say what this machine lacks to build and test
	@scripts/tools

build: tools ## Build the program for use: target/release/tidings
	$(CARGO) build --release --locked

demo: tools ## The whole bridge at work, no cluster needed: ARGS="--for 30s" ends it by itself
	$(CARGO) run --locked -- demo $(ARGS)

test: tools ## All tests that need no other program
	$(CARGO) test --locked --workspace

damage: tools ## A thousand journals damaged at random, each opened and run; `make test` has 24
	DAMAGE_TRIALS=1000 $(CARGO) test --locked --test bridge -- --nocapture a_bridge_starts_on_a_damaged_journal

conformance: tools ## Golden vectors of client-go; TIDINGS_CONFORMANCE_DIR=dir:dir adds more
	$(CARGO) test --quiet --locked --package kube-machinery --test conformance

e2e: tools ## Install etcd, kube-apiserver, Kafka and the Collector, and test against them
	tests/parts/install
	$(CARGO) test --locked --test e2e -- --test-threads 2 --nocapture
	$(CARGO) test --locked --test drill -- --short --jobs 3

drill: tools ## Fault drills at full length, above an hour: ARGS="--short", ARGS="outage", ARGS="--list"
	tests/parts/install
	$(CARGO) test --release --locked --test drill -- $(ARGS)

fuzz: tools ## Fuzz every target for 15 s: ARGS="--seconds 120 watch_line" takes longer over one
	scripts/fuzz $(ARGS)

lint: tools ## Formatting, lints, licences and sources of dependencies, documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked --test e2e --test drill -- -D warnings
	$(CARGO) clippy --locked --all-targets --no-default-features -- -D warnings
	scripts/features
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	scripts/public-api
	scripts/deny

bench: tools ## Measure events a second, CPU, memory and latency; ARGS="--write docs/benchmarks.md" keeps them
	$(CARGO) bench --locked --bench bridge -- $(ARGS)

schema: ## Write the JSON Schema of the configuration again
	$(CARGO) run --quiet --locked -- schema > config/schema.json

api: ## Write the lists of the crates' public API again: crates/*/public-api.txt
	$(CARGO) doc --locked --package kube-machinery --package kube-testkit --no-deps
	scripts/public-api --write

docs: ## Build the manual, the pages of docs/: book/index.html; installs mdbook
	scripts/book
