//go:build !amd64

package prompt

func skipMost(p []byte) int { return skipWords(p) }
