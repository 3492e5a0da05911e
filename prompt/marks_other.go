//go:build !amd64

package prompt

func marks(block *[64]byte) uint64 { return marksOf(block) }
