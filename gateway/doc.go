// Package gateway is the front door: an OpenAI-compatible HTTP server that
// sends each request to the worker the router chose and relays the answer.
//
// The central type is [Gateway]. A request makes four hops:
// [Gateway.ServeHTTP] → admit (read, limits, parse) → [Decider] (which worker)
// → the worker's Do, whose response is relayed as it comes. Bytes pass
// untouched in both directions; what the gateway has to say it says in headers.
// Start reading at ServeHTTP in gateway.go, then admit.go, attempt.go and
// relay.go.
package gateway
