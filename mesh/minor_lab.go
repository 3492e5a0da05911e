//go:build lab

package mesh

import "os"

// NextMinorVariable has a replica of a lab build tell the next minor version in
// place of its own, where it is set to anything.
const NextMinorVariable = "RHIZOME_TEST_NEXT_MINOR"

func minor() byte {
	if os.Getenv(NextMinorVariable) != "" {
		return Minor + 1
	}
	return Minor
}
