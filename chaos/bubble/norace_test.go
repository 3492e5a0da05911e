//go:build !race

package bubble

const raced = false
