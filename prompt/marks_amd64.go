package prompt

// marks has a bit for each of 64 bytes, the first lowest, that is not plain
// text in a string: a quote, a backslash, or below 0x20. It is [marksOf] with
// what every amd64 has (SSE2), at about five times its speed.
//
//go:noescape
func marks(block *[64]byte) uint64
