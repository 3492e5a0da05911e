package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// farewell is how long requests cut off at the end of the grace time get to
// tell their clients.
const farewell = 2 * time.Second

// ErrCutOff says that requests outlasted the grace time at the end of [Serve].
// Their clients were told; there is nothing else wrong.
var ErrCutOff = errors.New("were cut off")

// maxHeaderBytes bounds a request's header on both listeners. SDKs send a few
// KiB; a bearer token or a trace's baggage may be some dozens.
const maxHeaderBytes = 256 << 10

// Serve serves the data listener by c: with its certificate, and when ctx ends
// for DrainDelay as before, so that balancers can notice, before it goes on as
// [Serve] does.
func (c Config) Serve(ctx context.Context, ln net.Listener, h http.Handler, grace time.Duration, log *slog.Logger) error {
	secure, err := tlsConfig(c.TLS)
	if err != nil {
		ln.Close()
		return fmt.Errorf("serve on %s: %w", ln.Addr(), err)
	}
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	if c.DrainDelay > 0 {
		later, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(c.DrainDelay, end) })()
		ctx = later
	}
	return Serve(ctx, ln, h, grace, log)
}

// Serve serves h on ln until ctx ends. Then it accepts no more, lets running
// requests finish for at most grace, cuts off the rest (event streams get an
// error event first) and returns when all are gone. It closes ln. A nil error
// means that every request could finish, ErrCutOff that some could not.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, grace time.Duration, log *slog.Logger) error {
	requests, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true) // where TLS agrees on it
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       3 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ConnContext:       withClientConn,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(clientListener{ln}) }()
	select {
	case err := <-failed:
		server.Close()
		return fmt.Errorf("serve on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(requests, grace)
	defer cancel()
	err := server.Shutdown(end)
	if errors.Is(err, context.DeadlineExceeded) {
		cut(errShuttingDown)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		err = fmt.Errorf("requests on %s outlasted the grace time of %v and %w", ln.Addr(), grace, ErrCutOff)
		if server.Shutdown(last) != nil {
			server.Close()
		}
	}
	<-failed
	return err
}
