package route

// order keeps members by a key, the least first: a heap, so that putting one at
// another place costs a few steps, and so does finding the first few.
type order struct{ nodes []node }

type node struct {
	key    float64
	member int32
}

// put gives a member a key, whether it has one already or not. at says where
// each member stands in the order, -1: nowhere.
func (o *order) put(at []int32, member int32, key float64) {
	i := at[member]
	if i < 0 {
		i = int32(len(o.nodes))
		o.nodes = append(o.nodes, node{key, member})
		at[member] = i
		o.up(at, i)
		return
	}
	was := o.nodes[i].key
	o.nodes[i].key = key
	if key < was {
		o.up(at, i)
	} else if key > was {
		o.down(at, i)
	}
}

// drop takes a member out.
func (o *order) drop(at []int32, member int32) {
	i, last := at[member], int32(len(o.nodes)-1)
	if i < 0 {
		return
	}
	at[member] = -1
	moved := o.nodes[last]
	o.nodes = o.nodes[:last]
	if i == last {
		return
	}
	o.nodes[i] = moved
	at[moved.member] = i
	o.up(at, i)
	o.down(at, at[moved.member])
}

func (o *order) up(at []int32, i int32) {
	n := o.nodes[i]
	for i > 0 {
		parent := (i - 1) / 2
		if o.nodes[parent].key <= n.key {
			break
		}
		o.nodes[i] = o.nodes[parent]
		at[o.nodes[i].member] = i
		i = parent
	}
	o.nodes[i] = n
	at[n.member] = i
}

func (o *order) down(at []int32, i int32) {
	n := o.nodes[i]
	for {
		child := 2*i + 1
		if int(child) >= len(o.nodes) {
			break
		}
		if int(child+1) < len(o.nodes) && o.nodes[child+1].key < o.nodes[child].key {
			child++
		}
		if o.nodes[child].key >= n.key {
			break
		}
		o.nodes[i] = o.nodes[child]
		at[o.nodes[i].member] = i
		i = child
	}
	o.nodes[i] = n
	at[n.member] = i
}

// walk goes through an order from the least key on, while it doesn't change.
type walk struct {
	nodes []node
	ahead []int32 // places whose parents were passed, the least key last
}

func (w *walk) start(o *order) {
	w.nodes, w.ahead = o.nodes, w.ahead[:0]
	if len(o.nodes) > 0 {
		w.ahead = append(w.ahead, 0)
	}
}

// peek returns what next will.
func (w *walk) peek() (n node, ok bool) {
	if len(w.ahead) == 0 {
		return node{}, false
	}
	return w.nodes[w.ahead[len(w.ahead)-1]], true
}

// pass goes on behind what peek returned.
func (w *walk) pass() {
	i := w.ahead[len(w.ahead)-1]
	w.ahead = w.ahead[:len(w.ahead)-1]
	for child := 2*i + 1; child <= 2*i+2 && int(child) < len(w.nodes); child++ {
		w.ahead = append(w.ahead, child)
		for k := len(w.ahead) - 1; k > 0 && w.nodes[w.ahead[k-1]].key < w.nodes[child].key; k-- {
			w.ahead[k], w.ahead[k-1] = w.ahead[k-1], w.ahead[k]
		}
	}
}
