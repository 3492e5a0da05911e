package testkit

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Step is one thing a scripted worker does with a connection after it has read
// a request. An error ends the connection.
type Step func(c *Conn) error

// Script is what a worker does with one request, in order. When it ends
// without an error the connection is kept and waits for the next request.
type Script []Step

// Conn is the connection a step acts on.
type Conn struct {
	net.Conn
	gone   <-chan struct{} // closed when the peer has closed
	closed <-chan struct{} // closed when the worker is being closed
}

var errEnd = errors.New("end of the scripted connection")

// Send writes each piece with one write of its own.
func Send(pieces ...string) Step {
	return func(c *Conn) error {
		for _, p := range pieces {
			if _, err := c.Write([]byte(p)); err != nil {
				return err
			}
		}
		return nil
	}
}

// SendSplit writes s cut at the given offsets, which must ascend.
func SendSplit(s string, at ...int) Step {
	var pieces []string
	from := 0
	for _, cut := range at {
		if cut > from && cut < len(s) {
			pieces = append(pieces, s[from:cut])
			from = cut
		}
	}
	return Send(append(pieces, s[from:])...)
}

// SendFirst writes the first n bytes of s, or all of it; the rest never comes.
func SendFirst(s string, n int) Step { return Send(s[:min(max(n, 0), len(s))]) }

// Wait holds the script until ch is closed or gives a value. It ends the
// connection when the peer or the worker closes first.
func Wait[T any](ch <-chan T) Step {
	return func(c *Conn) error {
		select {
		case <-ch:
			return nil
		case <-c.gone:
			return errEnd
		case <-c.closed:
			return errEnd
		}
	}
}

// Stall does nothing until the peer closes the connection.
func Stall() Step { return Wait[struct{}](nil) }

// Do calls f, to tell a test how far the script has come.
func Do(f func()) Step {
	return func(*Conn) error { f(); return nil }
}

// FIN closes the connection in the normal way.
func FIN() Step {
	return func(*Conn) error { return errEnd }
}

// RST closes the connection so that the peer sees a reset. On an in-memory
// network it is the same as FIN.
func RST() Step {
	return func(c *Conn) error {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			if err := tcp.SetLinger(0); err != nil {
				return err
			}
		}
		return errEnd
	}
}

// Response is a whole HTTP/1.1 response with a Content-Length. Headers are
// lines such as "Retry-After: 3".
func Response(status int, body string, headers ...string) string {
	return Head(status, append(headers, "Content-Length: "+strconv.Itoa(len(body)))...) + body
}

// JSON is a whole response that carries a JSON body.
func JSON(status int, body string, headers ...string) string {
	return Response(status, body, append([]string{"Content-Type: application/json"}, headers...)...)
}

// Head is the head of a response: status line, header lines and the empty
// line.
func Head(status int, headers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d Scripted\r\n", status)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n")
	return b.String()
}

// SSEHead is the head of a chunked event stream.
func SSEHead() string {
	return Head(200, "Content-Type: text/event-stream; charset=utf-8", "Transfer-Encoding: chunked")
}

// Chunk is one chunk of a chunked body; Chunk("") is its regular end.
func Chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// LastChunk ends a chunked body with trailers, lines such as "X-Sum: 3".
func LastChunk(trailers ...string) string {
	var b strings.Builder
	b.WriteString("0\r\n")
	for _, t := range trailers {
		b.WriteString(t + "\r\n")
	}
	b.WriteString("\r\n")
	return b.String()
}

// Chunked is a whole response in chunks, one a piece.
func Chunked(status int, pieces []string, headers ...string) string {
	var b strings.Builder
	b.WriteString(Head(status, append(headers, "Transfer-Encoding: chunked")...))
	for _, p := range pieces {
		b.WriteString(Chunk(p))
	}
	b.WriteString(Chunk(""))
	return b.String()
}

// SSE is a whole chunked event stream with one chunk an event: each event gets
// "data: " in front and an empty line behind.
func SSE(events ...string) string {
	var b strings.Builder
	b.WriteString(SSEHead())
	for _, e := range events {
		b.WriteString(Chunk("data: " + e + "\n\n"))
	}
	b.WriteString(Chunk(""))
	return b.String()
}
