# Everything a newcomer needs; every target says what it does while it takes long.
#
#   make demo             a real control plane, a dozen simulated accelerator nodes, the sample rolled out before your eyes
#   make demo-handover    two busy nodes go from the device plugin to DRA and back, told step by step
#   make test             every test, on real components
#
# The first run builds Kubernetes' control plane from Go modules (some six minutes on two cores); later ones start in seconds.

CARGO ?= cargo
KUBERNETES_VERSION ?= 1.36
export FREEHOLD_KUBERNETES_VERSION := $(KUBERNETES_VERSION)

.DEFAULT_GOAL := help
.PHONY: help
help: ## What there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1|/' | awk -F'|' '{printf "  make %-16s %s\n", $$1, $$2}'

.PHONY: tools
tools: ## Checks for cargo and go, and says how to get them
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.95 or later with rustup (https://rustup.rs)"; exit 1; }
	@command -v go >/dev/null || { echo "go is missing: install Go 1.26 or later (https://go.dev/dl)"; exit 1; }
	@command -v cc >/dev/null || { echo "a C compiler is missing: install gcc or clang (TLS needs it)"; exit 1; }

.PHONY: binaries
binaries: tools ## Builds the operator, the agent and the command line
	@echo "building freehold-operator, freehold-agent and kubectl-freehold (a few minutes the first time)"
	@$(CARGO) build --locked --quiet -p freehold-controller -p freehold-agent -p freehold-cli

.PHONY: demo
demo: binaries ## Shows the main job end to end; KEEP=1 leaves the cluster running to look around
	@$(CARGO) run --locked --quiet -p freehold-e2e --bin freehold-demo -- $(if $(KEEP),--keep)

.PHONY: demo-handover
demo-handover: binaries ## The second act: a live migration from the device plugin to DRA and back; KEEP=1 as above
	@$(CARGO) run --locked --quiet -p freehold-e2e --bin freehold-demo -- --handover $(if $(KEEP),--keep)

.PHONY: test
test: binaries ## Passes every test
	@echo "testing on Kubernetes $(KUBERNETES_VERSION): the real kube-apiserver, etcd, kube-controller-manager and kube-scheduler"
	$(CARGO) test --locked --workspace --no-fail-fast

.PHONY: model
model: tools ## Checks the ownership protocol exhaustively at its large size (minutes)
	$(CARGO) test --locked --release -p freehold-core --test model -- --ignored --nocapture

.PHONY: old-apis
old-apis: tools ## Tests against Kubernetes 1.34 without resource.k8s.io/v1 (builds it first: minutes, once)
	$(CARGO) test --locked -p freehold-e2e --test old_apis -- --ignored --nocapture

.PHONY: bench
bench: tools ## Prints figures: memory, rendering, planning
	@echo "building optimised programs (many minutes the first time)"
	@$(CARGO) build --locked --release --quiet -p freehold-controller -p freehold-agent -p freehold-cli
	$(CARGO) run --locked --release --quiet -p freehold-core --example geometry
	$(CARGO) run --locked --release --quiet -p freehold-e2e --bin freehold-bench

.PHONY: generate
generate: tools ## Regenerates what is committed and generated: crds/, the chart, docs/reasons.md
	$(CARGO) run --locked --quiet -p freehold-api --bin crdgen -- crds
	charts/generate.sh
	UPDATE_DOCS=1 $(CARGO) test --locked --quiet -p freehold-core --test reasons

DENY := target/tools/bin/cargo-deny
DENY_VERSION := 0.20.2

$(DENY):
	@echo "building cargo-deny $(DENY_VERSION) (minutes, once)"
	@$(CARGO) install --locked --quiet --root target/tools --version $(DENY_VERSION) cargo-deny

.PHONY: lint
lint: tools $(DENY) ## Formatting, lints, licences and duplicates of dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) fetch --locked
	$(DENY) --offline --locked check bans licenses sources
