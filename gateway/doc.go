// Package gateway is the front door: an HTTP server for OpenAI's and
// Anthropic's clients that sends each request to the worker the router chose
// and relays the answer.
//
// The central type is [Gateway]. A request makes four hops:
// [Gateway.ServeHTTP] → admit (who asks, limits, read, parse) → [Decider]
// (which worker) → the worker's Do, whose response is relayed as it comes. Its
// state is one value, the exchange; an attempt is what is tried with one worker.
// Bytes pass untouched in both directions, but for the rewrites that a model's
// config names (rewrite.go); what the gateway has to say it says in headers.
// Start reading at ServeHTTP in gateway.go, then admit.go, attempt.go and
// relay.go.
package gateway
