// Package zmtp speaks ZMTP 3.x, the wire of ZeroMQ, over TCP with the NULL
// mechanism: just what following an engine's KV events needs, and what a
// stand-in engine needs to publish them.
//
// The central type is [Conn], one connection to one peer: SUB to receive live
// events, DEALER to ask for a replay. [Dial] makes one, or [Listen] where the
// engines dial in. [Pub] and [Router] are the publishing side. Unlike a ZeroMQ
// socket nothing here reconnects, retries or balances by itself: an error ends
// the connection, and the caller decides.
//
// Start reading at frame.go, the unit of the wire, then conn.go.
package zmtp
