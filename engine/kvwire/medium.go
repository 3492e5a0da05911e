package kvwire

import (
	"bytes"

	"github.com/rhizome-router/rhizome/kv"
)

// TierOf returns the tier that an engine's name of a medium means, in any
// case. The empty name is the engine's own GPU memory; a name nobody has told
// us is some slower tier, never HBM.
func TierOf(medium []byte) kv.Tier {
	var folded [32]byte
	if len(medium) > len(folded) {
		return kv.Other
	}
	for i, c := range medium {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		folded[i] = c
	}
	name := folded[:len(medium)]
	switch string(name) {
	case "", "GPU", "CUDA":
		return kv.HBM
	case "CPU", "CPU_PINNED", "CPU_TIER1":
		return kv.CPU
	case "DISK", "FS", "NVME", "CPU_TIER2":
		return kv.Disk
	case "OBJ", "STORAGE", "SHARED_STORAGE", "EXTERNAL", "REMOTE":
		return kv.Remote
	}
	if bytes.HasPrefix(name, []byte("CUDA:")) {
		return kv.HBM
	}
	return kv.Other
}
