package emulator

import "sync"

// door lets requests into the engine, and can be shut. It is safe for
// concurrent use.
type door struct {
	mu     sync.Mutex
	inside int
	empty  chan struct{} // of a shut door: closed when nobody is inside
}

// enter reports whether the door is open; whoever enters leaves once.
func (d *door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.empty != nil {
		return false
	}
	d.inside++
	return true
}

func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside--
	if d.inside == 0 && d.empty != nil {
		close(d.empty)
	}
}

// shut shuts an open door and returns a channel that is closed when nobody is
// inside any more.
func (d *door) shut() (empty <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.empty = make(chan struct{})
	if d.inside == 0 {
		close(d.empty)
	}
	return d.empty
}

// open opens a shut door.
func (d *door) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.empty = nil
}
