# What a developer or a newcomer types. `make demo` needs Go alone.

GO      ?= go
# The race detector needs a C compiler; without one the tests run unraced and
# say so.
CC_BIN  := $(shell $(GO) env CC)
HAVE_CC := $(shell command -v $(CC_BIN) 2>/dev/null)
RACE    := $(if $(HAVE_CC),-race,)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

.PHONY: build chaos-build demo test test-histories test-clients sim fuzz bench peers fmt clean

build: chaos-build ## static binaries in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/rhizome ./cmd/rhizome-lab

chaos-build: ## what chaos plays with: replicas that take a wrong time of day and the wire's next version, the mesh in a bubble
	CGO_ENABLED=0 $(GO) build -trimpath -tags lab -ldflags '$(LDFLAGS)' -o bin/rhizome-chaos ./cmd/rhizome
	CGO_ENABLED=0 $(GO) test -c -trimpath -o bin/chaos-bubble ./chaos/bubble

demo: ## four emulated workers, one router, a live table; ARGS="--once --duration 10s --json"
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/rhizome
	@bin/rhizome demo $(ARGS)

test: peers ## all tests
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not gofmt-clean:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	CGO_ENABLED=$(if $(RACE),1,0) $(GO) test $(RACE) -timeout 10m ./...

peers: ## which real peers the tests can use here
	@if [ -n "$(RACE)" ]; then echo "race detector: yes ($(CC_BIN))"; \
	  else echo "race detector: NO, no C compiler ($(CC_BIN)); tests run without -race"; fi
	@if python3 -c 'import zmq' 2>/dev/null || /usr/bin/python3 -c 'import zmq' 2>/dev/null; then echo "libzmq peer:   yes (python3-zmq)"; \
	  else echo "libzmq peer:   NO, install python3-zmq; its tests are skipped"; fi
	@if command -v node >/dev/null 2>&1; then echo "node client:   yes ($$(node --version))"; \
	  else echo "node client:   NO, install node 20 or later; its tests are skipped"; fi

SEEDS ?= 20
test-histories: ## lease histories under faults, judged by porcupine; SEEDS=200 for the full set
	RHIZOME_TEST_SEEDS=$(SEEDS) $(GO) test -count=1 -timeout 20m -run TestHistoriesAreLinearizable ./mesh/lease

CLIENTS ?= .cache/clients
test-clients: ## real client libraries against a real router; installs them first
	internal/clients/install $(CLIENTS)
	RHIZOME_TEST_CLIENTS=$(abspath $(CLIENTS)) $(GO) test -count=1 -timeout 10m ./internal/clients

sim: build ## the laboratory; ARGS="--suite standard --trace FILE --report page.html"
	@bin/rhizome-lab sim $(or $(ARGS),--suite quick)

FUZZTIME ?= 60s
fuzz: ## every fuzz target for FUZZTIME each
	@$(GO) list -f '{{$$d := .ImportPath}}{{range .TestGoFiles}}{{$$d}} {{$$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$$d}} {{$$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... | \
	while read -r pkg file; do [ -n "$$file" ] || continue; \
	  for f in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
	    echo "== $$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) "$$pkg" || exit 1; done; done

bench: ## the benchmarks beside the code
	$(GO) test -run '^$$' -bench . -benchmem ./...

fmt:
	gofmt -w $$(git ls-files '*.go')

clean:
	rm -rf bin
