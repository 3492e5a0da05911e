package gateway

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// hopByHop are the headers that concern one connection only.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// credentials are where a caller's key to the router can be.
var credentials = []string{"Authorization", "X-Api-Key", "Api-Key", "Cookie"}

// internalNames are headers that steer workers or speak for a router; a client
// can't set them. Besides ours they are what sidecars and servers behind other
// routers obey: the Gateway API inference extension, llm-d (its prefill sidecar
// connects to whatever address it is given), SGLang's gateway and Dynamo.
var internalNames = []string{headerRank, headerTenant,
	"X-Gateway-Destination-Endpoint", "X-Gateway-Destination-Endpoint-Served",
	"X-Prefiller-Host-Port", "X-Prefiller-Url", "X-Encoder-Hosts-Ports", "X-Data-Parallel-Host-Port",
	"X-Smg-Target-Worker", "X-Smg-Routing-Key",
	"X-Worker-Instance-Id", "X-Prefill-Instance-Id", "X-Dp-Rank", "X-Prefill-Dp-Rank", "X-Dynamo-Routing-Mode",
	"X-Bootstrap-Host", "X-Bootstrap-Room", "X-Request-Hop",
}

const internalPrefix = "X-Rhizome-"

const (
	headerRequestID = "X-Request-Id"
	headerWorker    = "X-Rhizome-Worker"
	headerReplica   = "X-Rhizome-Replica"
	headerDecision  = "X-Rhizome-Decision"
	headerRank      = "X-Data-Parallel-Rank"
	headerWorkflow  = "X-Agent-Workflow-Id"
	headerStep      = "X-Agent-Step-Id"
	headerTools     = "X-Agent-Expected-Tools"
	headerSteps     = "X-Agent-Ste"
	headerPin       = "X-Rhizome-Pin"
	headerTenant    = "X-Tenant-Id"

	headerOutputTokens = "X-Expected-Output-Tokens"
	headerPriority     = "X-Priority"
)

// endToEnd returns a copy of h without what concerns one connection only.
func endToEnd(h http.Header) http.Header {
	out := maps.Clone(h) // values are replaced, never changed in place
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			delete(out, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name)))
		}
	}
	for _, name := range hopByHop {
		delete(out, name)
	}
	return out
}

// workerHeader returns what a worker gets to see of a client's header.
func workerHeader(h http.Header, id string, forwardCredentials, forwardHints bool) http.Header {
	out := endToEnd(h)
	delete(out, "Expect") // the body has been read already
	delete(out, "Content-Length")
	maps.DeleteFunc(out, func(name string, _ []string) bool { return isInternal(name) })
	if !forwardHints {
		for _, name := range hintNames {
			delete(out, name)
		}
	}
	if !forwardCredentials {
		for _, name := range credentials {
			delete(out, name)
		}
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = []string{""} // keeps net/http from making one up
	}
	out[headerRequestID] = []string{id}
	return out
}

// isInternal reports whether name is one of the router's own headers, also
// when it is spelt with underscores, which some servers read as hyphens.
func isInternal(name string) bool {
	if strings.Contains(name, "_") {
		name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
	}
	return strings.HasPrefix(name, internalPrefix) || slices.Contains(internalNames, name)
}

// maxRequestIDBytes bounds the ids that clients may choose.
const maxRequestIDBytes = 128

// requestID returns the id a client gave, if it is a short plain word, and
// otherwise a new one.
func requestID(h http.Header) string {
	id := h.Get(headerRequestID)
	if id == "" || len(id) > maxRequestIDBytes {
		return "rz-" + strings.ToLower(rand.Text())
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_.:", c) >= 0:
		default:
			return "rz-" + strings.ToLower(rand.Text())
		}
	}
	return id
}

// setRank tells the worker which data-parallel rank to use.
func setRank(h http.Header, rank int16) http.Header {
	h = maps.Clone(h)
	h[headerRank] = []string{fmt.Sprint(rank)}
	return h
}
