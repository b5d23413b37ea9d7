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
	go run ./hack/crd/cmd/crd config/crd/datadoghq.com_*.yaml
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
	@shopt -s globstar nullglob; for f in config/{approval,crd,rbac,hostupdate,replacement,dashboard}/**/*.yaml; do \
