# Everything that is done to this project is a target here; .ci/run calls lint, test, e2e and demo.

CARGO ?= cargo
# Passed to the command of a target, e.g. make demo ARGS="--for 30s"
ARGS ?=

.PHONY: help tools build demo test check damage conformance lint features outside doc docs deny e2e e2e-cluster e2e-sinks drill fuzz release-check bench schema image install-yaml

help: ## What there is to do
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

tools: ## Say what this machine lacks to build and test
	@scripts/tools

build: tools ## Build the program for use: target/release/tidings
	$(CARGO) build --release --locked

demo: tools ## The whole bridge at work, no cluster needed: ARGS="--for 30s" ends it by itself
	$(CARGO) run --locked -- demo $(ARGS)

# Tests mostly wait for something, so more of them run at once than there are cores.
test: export RUST_TEST_THREADS ?= $(shell echo $$((3 * $$(getconf _NPROCESSORS_ONLN))))
test: tools ## All tests that need no other program
	$(CARGO) test --locked

check: tools ## What a change has to pass: .ci/run in a fresh clone of HEAD; target/.green names the tree that passed
	scripts/check

damage: tools ## A thousand journals damaged at random, each opened and run; `make test` has 24
	DAMAGE_TRIALS=1000 $(CARGO) test --locked --test bridge -- --nocapture whatever_is_damaged

conformance: tools ## Golden vectors of client-go; TIDINGS_CONFORMANCE_DIR=dir:dir adds more
	$(CARGO) test --quiet --locked --test conformance

e2e: tools ## Four scenarios on a real etcd, kube-apiserver, Kafka and Collector, installed first: ARGS=--all for all
	tests/parts/install $(if $(filter --all,$(ARGS)),,etcd apiserver kafka collector)
	$(CARGO) test --locked --test e2e -- --test-threads 1 $(if $(filter --all,$(ARGS)),--include-ignored --skip scenarios::cluster::)

e2e-cluster: tools ## Events of a real controller manager and scheduler, about nodes of kwok, installed first; four minutes
	tests/parts/install etcd apiserver kubectl controllers kwok
	$(CARGO) test --locked --test e2e -- --ignored --nocapture scenarios::cluster::

e2e-sinks: tools ## Ten thousand events to a real OpenSearch, Loki, Collector (HEC, syslog) and rsyslog, installed first
	tests/parts/install etcd apiserver siem-collector opensearch loki rsyslog
	$(CARGO) test --locked --test e2e -- --ignored --nocapture siem

drill: tools ## Fault drills at full length, above an hour: ARGS="--short", ARGS="outage", ARGS="--list"
	tests/parts/install
	$(CARGO) test --release --locked --test drill -- $(ARGS)

fuzz: tools ## Fuzz every target for 15 s: ARGS="--seconds 120 watch_line" takes longer over one
	scripts/fuzz $(ARGS)

lint: tools ## Formatting and lints
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

features: tools ## Lints of what `make lint` leaves out: tests against real parts, builds without features, each feature of the crates
	$(CARGO) clippy --locked --test e2e --test drill -- -D warnings
	$(CARGO) clippy --locked --all-targets --no-default-features -- -D warnings
	for feature in broadcaster correlator informer recorder workqueue; do \
	    K8S_OPENAPI_ENABLED_VERSION=1.33 $(CARGO) clippy --locked --package tidings-kube --lib \
	        --no-default-features --features $$feature -- -D warnings || exit; \
	done
	for feature in kafka otlp tls; do \
	    K8S_OPENAPI_ENABLED_VERSION=1.33 $(CARGO) clippy --locked --package tidings-testkit --lib \
	        --no-default-features --features $$feature -- -D warnings || exit; \
	done

outside: tools ## tidings-kube in crates outside the tree, by its README: the latest and the earliest k8s-openapi; needs curl
	scripts/outside

doc: tools ## The documentation of the library, without warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps

docs: tools ## The manual as a book with search: book/index.html; installs mdbook
	scripts/book

deny: tools ## Licences, sources and advisories of dependencies; installs cargo-deny
	scripts/deny

release-check: export BRIDGE_CASES = 16
release-check: lint features outside doc docs deny test fuzz ## All checks, by hand before a release; takes hours
	tests/parts/install helm
	$(CARGO) test --locked --test program deploy
	$(MAKE) e2e ARGS=--all
	$(MAKE) drill ARGS=--short

bench: tools ## Measure events a second, CPU, memory and latency; ARGS="--write docs/benchmarks.md" keeps them
	$(CARGO) bench --locked --bench bridge -- $(ARGS)

schema: ## Write the JSON Schema of the configuration again, and of the chart's values, which holds it
	$(CARGO) run --quiet --locked -- schema > target/schema.json
	mv target/schema.json config/schema.json
	WRITE_SCHEMA=1 $(CARGO) test --quiet --locked --test program the_schema_of_the_values

image: build ## The image of a release build, by buildah, podman or docker: IMAGE=registry.example.com/tidings
	deploy/image

install-yaml: ## Render the chart into deploy/install.yaml and deploy/rbac-enrichment.yaml
	tests/parts/install helm
	scripts/install-yaml deploy
