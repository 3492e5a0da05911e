// Package transport carries what replicas tell each other: one UDP port, QUIC
// with mutual TLS on it, split by ALPN into three planes. It does not know
// what the bytes mean.
//
//   - gossip (rz-gossip/1): [Gossip] is memberlist's transport. Packets travel as
//     datagrams, push/pull on streams; connections are made on demand and closed
//     when unused.
//   - raft (rz-raft/1): [Raft] is Raft's StreamLayer.
//   - delta (rz-delta/1): [Delta] sends checked frames on one-way streams, one
//     per class of delta.
//
// Each plane has a connection of its own to each peer, since QUIC shares one
// congestion window per connection and bulk must not hold up a heartbeat.
//
// The central type is [Endpoint]; [Listen] makes one on a socket, and
// [Network.Listen] one in memory, with loss, delay, duplication, reordering and
// partitions, for tests in virtual time. Everything above the unexported seam
// (carrier, link) is the same code in both. Start reading at [Endpoint], then
// session.go.
//
// # Trust
//
// Whoever holds the mesh secret (or a certificate of the mesh's authority for
// the cluster) is trusted fully. Everyone else is refused in the handshake. In
// TLS 1.3 a dialler's handshake ends before the peer has looked at its
// certificate, so a dial counts only once the peer's hello arrived.
package transport
