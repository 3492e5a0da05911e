package engine

import (
	"io"
	"net"
)

// Placed is a request's body that lies in memory, or begins there. [Worker.Do]
// sends such a body from where it lies, without a copy of its own. The memory
// is in use until the body is closed.
type Placed interface {
	io.ReadCloser
	// WritePlaced writes what lies in memory and has not been read, at most so
	// many bytes.
	WritePlaced(w io.Writer, most int64) (int64, error)
}

// bodyConn is a connection that takes bodies from where they lie. Its ReadFrom
// is what net/http sends a body of known length by, once the head is out.
type bodyConn struct{ *net.TCPConn }

// ReadFrom sends what r holds.
func (c bodyConn) ReadFrom(r io.Reader) (n int64, err error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return c.TCPConn.ReadFrom(r)
	}
	if p, ok := limited.R.(Placed); ok {
		n, err = p.WritePlaced(c.TCPConn, limited.N)
		if limited.N -= n; err != nil || limited.N == 0 {
			return n, err
		}
	}
	more, err := c.TCPConn.ReadFrom(r)
	return n + more, err
}
