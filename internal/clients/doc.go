// Package clients lets real client libraries loose on a real router: OpenAI's
// for Python, Node.js and Go, Anthropic's for Python, and curl. They talk to
// the built binary, which routes to emulated workers and to scripted ones that
// fail in every way a worker can.
//
// There is only a test. `make test-clients` installs the libraries, in the
// versions pinned in python, node and golang, and runs it. The scenarios are
// written once for each language (python/check.py, node/check.mjs,
// golang/main.go) with the same names; each prints what it saw as one JSON
// object, and the test holds that against one table. Start reading at
// scenarios in clients_test.go.
package clients
