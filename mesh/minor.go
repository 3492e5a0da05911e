//go:build !lab

package mesh

func minor() byte { return Minor }
