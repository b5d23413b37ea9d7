# SPDX-License-Identifier: Apache-2.0
#
# Needs Go, git and GNU make. Every tool is built from a Go module that this repository pins; nothing is downloaded
# as a binary. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := bin
LINUX_ROOT := $(filter Linux-0,$(shell uname -s)-$(shell id -u))

# The version comes from the tags, and from the commit where there is none.
ifndef VERSION
VERSION := $(or $(shell git describe --tags --match 'v*' --dirty 2>/dev/null),$(addprefix v0.0.0-,$(shell git describe --always --dirty --exclude '*' 2>/dev/null)),v0.0.0-dev)
endif

# One set of flags for everything, the same as in hack/build, which says why: what is compiled with other flags is
# compiled once more. The version is linked in, so Go has no need to ask git, which refuses in another user's checkout.
export GOFLAGS := -trimpath -buildvcs=false -tags=grpcnotrace -gcflags=all=-dwarf=false
export CGO_ENABLED := 0
LDFLAGS := -s -w -X main.version=$(VERSION)

# Every folder of cmd is a program. MODULES are those whose go.mod `verify` keeps tidy.
PROGRAMS := $(patsubst cmd/%/,%,$(sort $(dir $(wildcard cmd/*/*.go))))
IN_IMAGES := $(filter moult moult-agent,$(PROGRAMS))
MODULES := . tools tools/helm tools/hugo hack/release test/alerts test/gitops
# The packages of the kinds.
API = $(patsubst %/,%,$(sort $(dir $(shell grep -rl --include='*.go' '^// +groupName=' api))))
# Packages whose tests need neither an API server nor machines, but for those named TestAPI….
UNIT := $(patsubst %,./%/...,$(wildcard api cmd config hack internal)) ./test/layout/...

# A cluster on this machine: simulated nodes run anywhere, machines need root on Linux.
DIR ?= $(CURDIR)/.cluster
MACHINES ?= $(if $(LINUX_ROOT),3,0)
KUBECONFIG ?= $(DIR)/kubeconfig
KUBECTL ?= $(BIN)/kubectl
CLUSTER := go run ./test/cluster/cmd/cluster
cluster-up: NODES ?= 20
scale demo: KIND ?= plan
scale scale-peers: NODES ?= $(if $(filter replacement,$(KIND)),300,1000)
scale scale-peers: CONCURRENCY ?= 50
scale: POD_SECONDS ?= 1.5

# ARGS goes to go test, to golangci-lint or to scale, e.g. make e2e ARGS='-run TestPlan'.
ARGS ?=
TEST_TIMEOUT ?= 60m
# In CI a test on machines fails where it would otherwise be skipped.
ifeq ($(CI)$(LINUX_ROOT),trueLinux-0)
export MOULT_REQUIRE_MACHINES ?= 1
endif

##@ General

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "; printf "Usage: make TARGET [VARIABLE=value]\n"} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-zA-Z0-9_-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

##@ Build

.PHONY: build
build: $(PROGRAMS:%=$(BIN)/%) ## Build every program of cmd into bin.

# go build knows best what is out of date.
.PHONY: $(PROGRAMS:%=$(BIN)/%)
$(PROGRAMS:%=$(BIN)/%): $(BIN)/%:
	go build -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*
	$(if $(filter kubectl-moult,$*),@ln -sf kubectl-moult $(BIN)/kubectl-eds)

.PHONY: images
images: ## Build bin/images/*.tar: moult and moult-agent for this architecture, for `ctr images import`.
	@$(if $(IN_IMAGES),$(MAKE) GOOS=linux BIN=$(BIN)/linux $(IN_IMAGES:%=$(BIN)/linux/%))
	go run ./hack/image/cmd/image -bin $(BIN)/linux -o $(BIN)/images -version '$(VERSION)'

.PHONY: binaries
binaries: needs-go ## Build kube-apiserver, etcd, kubectl, kubelet, kwok … and link them into bin; minutes the first time.
	@go build -o $(BIN)/build ./hack/build/cmd/build && exec $(BIN)/build -o $(BIN)

.PHONY: needs-go
needs-go:
	@command -v go >/dev/null || { echo 'Go is not installed, or not in PATH: see https://go.dev/doc/install' >&2; exit 1; }

.PHONY: clean
clean: ## Remove bin.
	rm -rf $(BIN)

##@ Develop

# What a generator did not write just now belongs to types that are gone.
prune = find $(1) -type f ! -newer $(BIN)/.generate -print -delete

.PHONY: generate
generate: $(BIN)/controller-gen ## Regenerate deep copies, apply configurations, CRDs, RBAC roles and reference pages.
	@mkdir -p config/crd config/rbac config/replacement/kubeadm
	@touch $(BIN)/.generate
	@# One package a run: given two, v0.23.0 now and then fails to find metav1.TypeMeta. And not ./api/..., because apply
	@# configurations do not compile while a type of theirs is gone.
	for p in $(API); do $(BIN)/controller-gen paths=./$$p object:headerFile=hack/boilerplate.go.txt \
		applyconfiguration:headerFile=hack/boilerplate.go.txt,omitToolVersion=true; done
	@$(call prune,api -path 'api/*/applyconfiguration/*')
	@find api -path '*/applyconfiguration*' -type d -empty -delete
	$(BIN)/controller-gen paths=./api/... crd:generateEmbeddedObjectMeta=true output:crd:dir=config/crd
	go run ./hack/crd/cmd/crd config/crd/datadoghq.com_*.yaml config/crd/moult.dev_nodedisruptionbudgets.yaml
	@# What the replacement of machines needs besides has roles of its own, which config/default leaves out.
	$(BIN)/controller-gen $(patsubst %,paths=./%,$(filter-out %/replacement,$(wildcard internal/controller/*))) \
		rbac:roleName=moult-controller,fileName=controller-role.yaml output:rbac:dir=config/rbac
	$(BIN)/controller-gen paths=./internal/controller/replacement \
		rbac:roleName=moult-replacement,fileName=role.yaml output:rbac:dir=config/replacement
	$(BIN)/controller-gen paths=./internal/controlplane \
		rbac:roleName=moult-kubeadm,fileName=role.yaml output:rbac:dir=config/replacement/kubeadm
	@$(call prune,config/crd -path 'config/crd/*_*.yaml')
	@$(call prune,$(ROLES))
	@{ echo '# Code generated by make generate. DO NOT EDIT.'; \
		echo 'apiVersion: kustomize.config.k8s.io/v1beta1'; \
		echo 'kind: Kustomization'; \
		echo '# Who removes Moult keeps them: with a definition go all objects of its kind.'; \
		echo 'labels:'; \
		echo '- pairs: {moult.dev/uninstall: keep}'; \
		echo 'resources:'; \
		shopt -s nullglob; cd config/crd; LC_ALL=C; for f in *_*.yaml; do echo "- $$f"; done; } >config/crd/kustomization.yaml
	@# The chart has copies of what it need not template.
	@rm -rf charts/moult/files/config
	@shopt -s globstar nullglob; for f in config/{approval,crd,rbac,hostupdate,replacement,dashboard}/**/*.yaml config/manager/quota.yaml; do \
		case $$f in */kustomization.yaml|*/networkpolicy.yaml|*/testdata/*|config/replacement/etcd/*|config/replacement/ducklett/*) ;; \
		*) mkdir -p "charts/moult/files/$$(dirname $$f)" && cp $$f charts/moult/files/$$f;; esac; done
	@$(MAKE) generate-docs

.PHONY: generate-docs
generate-docs: ## Regenerate the reference pages of the documentation: API, commands, reasons, metrics, values, compatibility.
	go run ./hack/docs/cmd/docs

SITE ?= $(BIN)/site

.PHONY: docs
docs: $(BIN)/hugo ## Build the site of the documentation into SITE, by default bin/site.
	$(BIN)/hugo --config hack/site/hugo.toml --destination $(abspath $(SITE)) --cleanDestinationDir --noBuildLock --panicOnWarning

.PHONY: format
format: $(BIN)/golangci-lint ## Format the Go code and sort its imports.
	$(BIN)/golangci-lint fmt

.PHONY: lint
lint: $(BIN)/golangci-lint ## Run golangci-lint; ARGS=--fix repairs what it can.
	$(BIN)/golangci-lint run $(ARGS)

.PHONY: lint-api
lint-api: $(BIN)/apilint ## Run kube-api-linter over the API types; .apilint.yaml explains its exceptions.
	$(BIN)/apilint .apilint.yaml ./api/v1alpha1

##@ Test

.PHONY: test
test: binaries $(BIN)/gotestsum $(BIN)/helm ## Run what every change must pass: unit, API, end to end, short chaos. Tests on machines are skipped without root on Linux.
	@hack/test.sh $(ARGS)

.PHONY: test-all
test-all: binaries $(BIN)/gotestsum $(BIN)/helm ## Run every test there is, with full counts: 150 kills for each mechanism, 10,000 seeds, every fault.
	@ALL=1 TEST_TIMEOUT=90m hack/test.sh $(ARGS)

.PHONY: unit
unit: ## Run the unit tests alone, with the race detector where there is a C compiler.
	$(if $(shell command -v gcc cc clang),CGO_ENABLED=1 go test -race,go test) -skip '^TestAPI' $(ARGS) $(UNIT)
	cd hack/release && go test $(ARGS) ./...

FUZZTIME ?= 10s

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME: what reads text that others write; minutes. ARGS are packages.
	FUZZTIME=$(FUZZTIME) hack/fuzz.sh $(ARGS)

SEEDS ?= 20000
SEED ?=

.PHONY: simulate
simulate: ## Let rollouts loose on SEEDS random fleets, from SEED on, and check what must always hold; minutes.
	MOULT_SEEDS=$(SEEDS) MOULT_SEED=$(SEED) go test -count 1 -timeout $(TEST_TIMEOUT) -run '^TestSimulation$$' -v ./internal/rollout

.PHONY: e2e
e2e: binaries ## Run the end-to-end tests.
	go test -vet=off -timeout $(TEST_TIMEOUT) -p 1 -parallel 8 -count 1 -v $(ARGS) ./test/e2e/...

.PHONY: chaos
chaos: binaries ## Kill the operator again and again in the middle of rollouts, at instants that are drawn; SEED repeats them.
	MOULT_SEED=$(or $(SEED),$$RANDOM) go test -vet=off -tags grpcnotrace,all -timeout $(TEST_TIMEOUT) -count 1 -v $(ARGS) ./test/chaos

.PHONY: scale
scale: ## Measure a rollout over NODES simulated nodes (or 100,1000,5000): KIND=plan, daemonset, hostupdate or replacement; CONCURRENCY at a time.
	go run ./test/scale --kind $(KIND) --nodes $(NODES) \
		$(if $(filter plan hostupdate,$(KIND)),--concurrency $(CONCURRENCY)) $(if $(filter plan,$(KIND)),--pod-seconds $(POD_SECONDS)) $(ARGS)

.PHONY: scale-peers
scale-peers: ## Measure Moult beside the controllers whose source is in SUC, EDS and KRUISE, or some of them: system-upgrade-controller, Datadog's, OpenKruise.
	$(if $(SUC)$(EDS)$(KRUISE),,$(error Give the path of a checkout: SUC, EDS or KRUISE))
	go run ./test/scale --nodes $(NODES) --concurrency $(CONCURRENCY) \
		$(if $(SUC),--suc '$(SUC)') $(if $(EDS),--eds '$(EDS)') $(if $(KRUISE),--kruise '$(KRUISE)') $(ARGS)

.PHONY: scale-check
scale-check: ## Measure all four kinds, and fail where a figure is beyond its limit in test/scale/limits.yaml.
	go run ./test/scale --check test/scale/limits.yaml

.PHONY: scale-page
scale-page: ## Measure the web pages in a browser, for 1 and 50 viewers: NODES simulated nodes, by default 10000, in a rollout of 100 at a time.
	go test -vet=off -tags grpcnotrace,all -timeout $(TEST_TIMEOUT) -count 1 -v -run '^TestScale$$' ./test/browser -args -nodes $(or $(NODES),10000) -window 30s

.PHONY: screenshots
screenshots: ## Take the pictures of the web pages in docs/images/pages.
	go test -vet=off -count 1 -run '^TestPages$$' ./test/browser -args -screenshots $(CURDIR)/docs/images/pages

##@ Verify

.PHONY: verify
verify: ## Check everything short of a cluster: generated code, format, vet, lint, modules, unit tests.
	@$(MAKE) verify-generate
	@$(MAKE) verify-format
	go vet -tags grpcnotrace,all ./...
	@$(MAKE) lint ARGS=
	@$(MAKE) lint-api
	@$(MAKE) verify-modules
	@$(MAKE) verify-vulnerabilities
	@$(MAKE) unit ARGS=

ROLES := config/rbac/controller-role.yaml config/replacement/role.yaml config/replacement/kubeadm/role.yaml
GENERATED := ':(glob)api/**/zz_generated.*.go' ':(glob)api/**/applyconfiguration/**' \
	':(glob)config/crd/*.yaml' $(ROLES) charts/moult/files/config docs/reference docs/images/status.svg

.PHONY: verify-generate
verify-generate: generate ## Regenerate and fail if that changes what is committed or staged.
	@git diff --exit-code --stat -- $(GENERATED) || { echo 'Generated files are out of date: stage what `make generate` made.' >&2; exit 1; }
	@untracked=$$(git ls-files --others --exclude-standard -- $(GENERATED)); \
	if [[ -n $$untracked ]]; then printf 'Generated files are not in git:\n%s\n' "$$untracked" >&2; exit 1; fi

.PHONY: verify-format
verify-format: ## Fail if gofmt would change a file that people write.
	@files=$$(git ls-files -z --cached --others --exclude-standard -- \
		'*.go' ':(exclude,glob)**/zz_generated.*' | \
		while IFS= read -r -d '' f; do [[ ! -e $$f ]] || printf '%s\0' "$$f"; done | xargs -0 -r gofmt -s -l); \
	if [[ -n $$files ]]; then printf 'Run `make format` for:\n%s\n' "$$files" >&2; exit 1; fi

.PHONY: verify-modules
verify-modules: ## Fail if a go.mod is not tidy or a dependency is not what go.sum says.
	@for m in $(MODULES); do (set -x; cd $$m && go mod tidy -diff && go mod verify); done

# The database of known vulnerabilities, or a copy of it: file:///…
GOVULNDB ?= https://vuln.go.dev

.PHONY: verify-vulnerabilities
verify-vulnerabilities: $(BIN)/govulncheck ## Fail if code that is called has a known vulnerability. Without the database of GOVULNDB it only warns.
	@if [[ $$($< -db '$(GOVULNDB)' -version) == *'DB updated'* ]]; then \
		$< -db '$(GOVULNDB)' -tags grpcnotrace ./...; \
	else echo 'WARNING: no known vulnerability was looked for, because $(GOVULNDB) does not answer. Set GOVULNDB=file:///… to a copy.' >&2; fi

.PHONY: lines
lines: ## Print the lines of product code of each package, without comments, blank lines and generated files.
	@hack/lines.sh

##@ Release

DIST ?= dist
PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64
# Where users get the images and the plugin from. Both are written into manifests.
REGISTRY ?= moult.dev
DOWNLOADS ?= https://moult.dev/releases/$(VERSION)

.PHONY: release
release: needs-go ## Build all of a release into dist: images, manifests, chart, plugin, SBOMs, checksums; VERSION=vX.Y.Z, PLATFORMS for fewer.
	rm -rf $(DIST)
	cd hack/release && GOOS= GOARCH= go run . -root $(CURDIR) -o $(abspath $(DIST)) \
		-version '$(VERSION)' -platforms '$(PLATFORMS)' -registry '$(REGISTRY)' -downloads '$(DOWNLOADS)'

# The second build is of a clone in another folder, so neither that folder nor files outside of git can be in what is released.
.PHONY: release-check
release-check: ## Build a release of the commit that is checked out twice, in two folders, and fail where they differ.
	rm -rf $(BIN)/release
	$(MAKE) release DIST=$(BIN)/release/first VERSION='$(VERSION)'
	clone=$$(mktemp -d) && trap 'rm -rf "$$clone"' EXIT && git clone --quiet . "$$clone" && \
		$(MAKE) -C "$$clone" release DIST='$(abspath $(BIN))/release/second' VERSION='$(VERSION)'
	diff $(BIN)/release/{first,second}/checksums.txt
	@echo 'Both builds have the same checksums.'

##@ Cluster

.PHONY: cluster-up
cluster-up: ## Start a cluster of MACHINES machines and NODES simulated nodes in DIR, which gets its kubeconfig.
	$(CLUSTER) up --dir $(DIR) --machines $(MACHINES) --nodes $(NODES)

.PHONY: cluster-down
cluster-down: ## Stop that cluster.
	$(CLUSTER) down --dir $(DIR)

.PHONY: images-load
images-load: images ## Import the images on every machine of that cluster.
	$(CLUSTER) images load --dir $(DIR) $(BIN)/images/*.tar

# Some CRDs are larger than the annotation that a client-side apply would keep them in.
.PHONY: deploy
deploy: $(KUBECTL) ## Install Moult in the cluster of KUBECONFIG, by default the one in DIR.
	$(KUBECTL) --kubeconfig $(KUBECONFIG) apply --server-side --force-conflicts -k config/default

.PHONY: undeploy
undeploy: $(KUBECTL) ## Remove Moult from there, but for CRDs and namespaces with what is in them.
	$(KUBECTL) --kubeconfig $(KUBECONFIG) delete --ignore-not-found -k config/hostupdate/agents
	$(KUBECTL) --kubeconfig $(KUBECONFIG) delete --ignore-not-found -k config/default -l 'moult.dev/uninstall!=keep'

# Operator and kwok run here, so that no image need be in the cluster.
.PHONY: try
try: binaries $(BIN)/moult $(BIN)/kubectl-moult ## Show a rollout over simulated nodes in the cluster of KUBECONFIG, by default your kubectl's; it leaves the CRDs alone.
	@hack/try.sh

.PHONY: get-nodes-status
get-nodes-status: $(KUBECTL) ## Show what operator and agents say of each host there, in the Nodes' annotations; needs jq.
	@$(KUBECTL) --kubeconfig $(KUBECONFIG) get nodes -o json | jq -S '.items | map(.metadata | {(.name): (.annotations // {} | with_entries(select(.key | test("^(bottlerocket\\.aws|thar\\.amazonaws\\.com|moult\\.dev)/"))))}) | add // {}'

# The demo has a directory of its own, unless DIR is given.
DEMO_DIR = $(if $(filter command environment,$(origin DIR)),--dir $(DIR))

.PHONY: demo
demo: binaries ## Show what Moult does, on a cluster of its own that stays for you to try: KIND=plan, daemonset or bottlerocket; or does not: replacement.
	go run ./test/demo up $(DEMO_DIR) --kind $(KIND) --machines $(MACHINES) $(if $(NODES),--nodes $(NODES))

.PHONY: demo-down
demo-down: ## Remove it.
	go run ./test/demo down $(DEMO_DIR)

# Tools, rebuilt when their versions change.

$(BIN)/controller-gen: tools/go.mod tools/go.sum
	cd tools && GOOS= GOARCH= go build -o $(abspath $@) sigs.k8s.io/controller-tools/cmd/controller-gen

$(BIN)/golangci-lint: tools/go.mod tools/go.sum
	@echo 'Building golangci-lint, which takes minutes the first time.'
	cd tools && GOOS= GOARCH= go build -o $(abspath $@) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/apilint: tools/go.mod tools/go.sum $(wildcard tools/apilint/*.go)
	cd tools && GOOS= GOARCH= go build -o $(abspath $@) ./apilint

$(BIN)/govulncheck: tools/go.mod tools/go.sum
	cd tools && GOOS= GOARCH= go build -o $(abspath $@) golang.org/x/vuln/cmd/govulncheck

$(BIN)/hugo: tools/hugo/go.mod tools/hugo/go.sum
	@echo 'Building hugo, which takes minutes the first time.'
	cd tools/hugo && GOOS= GOARCH= go build -o $(abspath $@) github.com/gohugoio/hugo

$(BIN)/gotestsum: tools/go.mod tools/go.sum | needs-go
	cd tools && GOOS= GOARCH= go build -o $(abspath $@) gotest.tools/gotestsum

$(BIN)/helm: tools/helm/go.mod tools/helm/go.sum
	@echo 'Building helm, which takes minutes the first time.'
	cd tools/helm && GOOS= GOARCH= go build -o $(abspath $@) helm.sh/helm/v3/cmd/helm

$(BIN)/kubectl:
	@$(MAKE) binaries
