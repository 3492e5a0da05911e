package testkit

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// echoTCP answers every byte with itself, and the end with the end.
func echoTCP(t *testing.T, name string) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, name)
				io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

func dialLink(t *testing.T, addr string) *net.TCPConn {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(rawPatience))
	return c.(*net.TCPConn)
}

func readText(t *testing.T, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if n, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("got %q, %v, want %q", b[:n], err, want)
	}
}

func TestLinkCarriesTCP(t *testing.T) {
	l := NewLink(t)
	a, b := echoTCP(t, "A"), echoTCP(t, "B")
	addr := l.TCP(t, a)
	c := dialLink(t, addr)
	readText(t, c, "A")
	fmt.Fprint(c, "hello")
	readText(t, c, "hello")

	// Cut, either way: what is sent waits, and the connection stays.
	for _, w := range Both {
		l.Cut(w)
		fmt.Fprint(c, "late")
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, errTimeout(err)) {
			t.Errorf("over a cut link came %d bytes, %v", n, err)
		}
		c.SetReadDeadline(time.Now().Add(rawPatience))
		l.Heal(w)
		readText(t, c, "late")
	}
	l.Delay(15*time.Millisecond, Both...)
	begun := time.Now()
	fmt.Fprint(c, "x")
	readText(t, c, "x")
	if d := time.Since(begun); d < 30*time.Millisecond {
		t.Errorf("delayed by 15 ms each way, it took %v", d)
	}
	l.Delay(0, Both...)

	// The end of one side is carried, the other goes on.
	fmt.Fprint(c, "end")
	c.CloseWrite()
	if rest, err := io.ReadAll(c); err != nil || string(rest) != "end" {
		t.Errorf("after the end: %q, %v", rest, err)
	}

	// Another takes the address; connections that are there stay where they are.
	before := dialLink(t, addr)
	readText(t, before, "A")
	l.Move(a, b)
	readText(t, dialLink(t, addr), "B")
	fmt.Fprint(before, "here")
	readText(t, before, "here")
	l.Break()
	if _, err := before.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("a broken connection gave %v", err)
	}
	readText(t, dialLink(t, addr), "B")
}

// errTimeout returns err if it is a time-out.
func errTimeout(err error) error {
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return err
	}
	return errors.New("a time-out")
}

// post office: a UDP socket that answers each datagram with its source address
// and content.
func echoUDP(t *testing.T) string {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFromUDP(b)
			if err != nil {
				return
			}
			c.WriteToUDP(append([]byte(from.String()+" "), b[:n]...), from)
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return c.LocalAddr().String()
}

func TestLinkCarriesDatagrams(t *testing.T) {
	l := NewLink(t)
	c, err := net.Dial("udp", l.UDP(t, echoUDP(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func(text string) (source, answer string) {
		t.Helper()
		fmt.Fprint(c, text)
		b := make([]byte, 64<<10)
		c.SetReadDeadline(time.Now().Add(rawPatience))
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Sscan(string(b[:n]), &source, &answer)
		return source, answer
	}
	lost := func(w Way, text string) {
		t.Helper()
		before := l.Lost(w)
		fmt.Fprint(c, text)
		Until(t, "the datagram is lost", func() bool { return l.Lost(w) == before+1 })
	}
	first, got := ask("one")
	if got != "one" {
		t.Errorf("got %q", got)
	}
	for _, w := range Both {
		l.Cut(w)
		lost(w, "two")
		l.Heal(w)
	}
	l.LimitBytes(100, There)
	lost(There, fmt.Sprintf("%0200d", 7))
	if _, got := ask("small"); got != "small" {
		t.Errorf("within the limit came %q", got)
	}
	l.LimitBytes(0, There)
	from := 0
	l.Lose(func(n int, _ []byte) bool { from++; return from%2 == 1 }, Back)
	lost(Back, "every second")
	if source, got := ask("other"); got != "other" || source != first {
		t.Errorf("got %q from %s", got, source)
	}
	l.Lose(nil, Back)
	l.Rebind()
	if source, got := ask("again"); got != "again" || source == first {
		t.Errorf("after a rebind %q came from %s, as before", got, source)
	}
}
