//go:build !lab

package state

func slowDisk() {}
