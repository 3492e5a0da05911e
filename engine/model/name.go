package model

// nameUpTo names the blocks of s that hold only computed tokens once its
// context has the given length.
func (w *Worker) nameUpTo(s *seq, tokens int) {
	end := min(tokens/w.cfg.BlockTokens, len(s.Keys))
	for s.named < end {
		to := end
		if w.cfg.RadixTree {
			if w.fold(s) {
				continue
			}
			for to = s.named + 1; to < end && w.pool.names.Get(s.Keys[to]) < 0; {
				to++
			}
		}
		w.nameRun(s, to)
	}
}

// fold gives up the next block of s for one of its name in the tree, if there
// is one: at once, or if that is still on its way when s is done with it.
func (w *Worker) fold(s *seq) bool {
	p := &w.pool
	id := p.names.Get(s.Keys[s.named])
	if id < 0 {
		return false
	}
	if p.blocks[id].load == 0 {
		p.pin(id)
		p.unpin(s.blocks[s.named])
		s.blocks[s.named] = id
	}
	if w.window > 0 {
		w.slide(s, s.named)
	}
	s.named++
	return true
}

// nameRun names the blocks of s up to index end and journals them as one run.
func (w *Worker) nameRun(s *seq, end int) {
	from := s.named
	parent, has := parentOf(s.Keys, from)
	told := w.journal.stored(s.ID, s.Keys, from, end)
	for i, key := range s.Keys[from:end] {
		content := w.journal.numbers.take()
		told.contents = append(told.contents, content)
		w.pool.name(s.blocks[from+i], key, parent, has, content)
		parent, has = key, true
	}
	if w.cfg.WriteThrough && len(w.tiers) > 0 {
		w.writeThrough(s, from, end)
	}
	if w.window > 0 {
		for i := from; i < end; i++ {
			w.slide(s, i)
		}
	}
	s.named = end
}
