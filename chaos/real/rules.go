//go:build linux

package real

import (
	"fmt"
	"strings"
)

// rules are which packets between replicas are dropped. Several faults may drop
// the same ones: they come through again when the last of them is over.
type rules struct{ dropped [][]int } // by receiver, by sender: how many drop them

func newRules(replicas int) rules {
	r := rules{make([][]int, replicas)}
	for i := range r.dropped {
		r.dropped[i] = make([]int, replicas)
	}
	return r
}

// cut adds or takes away one reason to drop packets, and reports whether that
// changes what is dropped.
func (r *rules) cut(from, to int, more bool) (changed bool) {
	n := &r.dropped[to][from]
	before := *n
	if more {
		*n++
	} else {
		*n = max(0, *n-1)
	}
	return (before > 0) != (*n > 0)
}

// text is what nft is told for one replica: it replaces what was told before, at
// once.
func (r *rules) text(to int) string {
	var b strings.Builder
	b.WriteString("table inet chaos\nflush table inet chaos\ntable inet chaos {\n\tchain in {\n\t\ttype filter hook input priority 0;\n")
	for from, n := range r.dropped[to] {
		if n > 0 {
			fmt.Fprintf(&b, "\t\tip saddr { 10.77.%d.0/24, 10.78.%d.0/24 } drop\n", replicaThird+from, replicaThird+from)
		}
	}
	b.WriteString("\t}\n}\n")
	return b.String()
}
