package prompt

import "golang.org/x/sys/cpu"

// skipBlocks is skipWords in blocks of 64 bytes, without a branch for what
// stands where but the end. It needs AVX2. The bits of escaped bytes are found
// as in simdjson (Langdale and Lemire, Parsing Gigabytes of JSON per Second,
// section 3.1.1).
//
//go:noescape
func skipBlocks(p []byte) int

func skipMost(p []byte) int {
	if cpu.X86.HasAVX2 {
		return skipBlocks(p)
	}
	return skipWords(p)
}
