package kv

import "math/bits"

// Here is XXH3-64 without a seed of 16 and of 32 bytes that are given as
// little-endian words. Package xxh3 wants them in memory and asks for their length
// first; for so little that is most of its time. The formulas are XXH3_len_9to16_64b and XXH3_len_17to128_64b of
// xxhash.h, the constants words of its secret.

const (
	secret0  = 0xbe4ba423396cfeb8 // by their places in the secret
	secret8  = 0x1cad21f72c81017c
	secret16 = 0xdb979083e96dd4de
	secret24 = 0x1f67b3b7a4a44072
	secret32 = 0x78e5c0cc4ee679cb
	secret40 = 0x2172ffcc7dd05a82
	secret48 = 0x8e2443f7744608b8

	prime64 = 0x9e3779b185ebca87
)

// sum16 is the hash of two words.
func sum16(a, b uint64) uint64 {
	a ^= secret24 ^ secret32
	b ^= secret40 ^ secret48
	return avalanche(16 + bits.ReverseBytes64(a) + b + folded(a, b))
}

// Sum32 is the XXH3-64 of four little-endian words.
func Sum32(a, b, c, d uint64) uint64 {
	length := uint64(32)
	return avalanche(length*prime64 + folded(a^secret0, b^secret8) + folded(c^secret16, d^secret24))
}

func folded(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func avalanche(h uint64) uint64 {
	h = (h ^ h>>37) * 0x165667919e3779f9
	return h ^ h>>32
}
