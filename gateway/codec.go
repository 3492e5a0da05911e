package gateway

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// zstdWindowBytes is the largest window that the HTTP coding zstd may use
// (RFC 9659); a decoder needs that much memory.
const zstdWindowBytes = 8 << 20

// maxCodings bounds how often a body may be encoded.
const maxCodings = 4

// codingsOf returns the codings of a body, the one applied last first.
func codingsOf(header []string) []string {
	var out []string
	for name := range strings.SplitSeq(strings.Join(header, ","), ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" && name != "identity" {
			out = append(out, name)
		}
	}
	slices.Reverse(out)
	return out
}

func encoded(header []string) bool { return len(codingsOf(header)) > 0 }

// decode makes the plain form of x's body, for reading only, and lets look
// read it: workers get the body as it came.
func (g *Gateway) decode(x *exchange, header []string, look bodyReader) error {
	codings := codingsOf(header)
	if len(codings) > maxCodings {
		return fmt.Errorf("%w: %d codings, one upon the other", errBodyEncoding, len(codings))
	}
	for _, coding := range codings { // before any of them is begun
		if !slices.Contains(supported, coding) {
			return fmt.Errorf("%w: %s (supported: gzip, deflate, br, zstd)", errBodyEncoding, shorten(coding))
		}
	}
	var r io.Reader = bytes.NewReader(x.body.received)
	for _, coding := range codings {
		d, err := decoderOf(coding, r)
		if err != nil {
			return err
		}
		defer d.Close()
		r = d
	}
	// One byte more than may come, to tell a body of just that length.
	err := g.readAll(x, &x.body.plain, io.LimitReader(r, g.cfg.MaxBodyBytes+1), firstBodyBytes, look, 0)
	switch {
	case errors.Is(err, errBodyTooLarge):
		return fmt.Errorf("%w: the limit is %d bytes after decoding", errBodyTooLarge, g.cfg.MaxBodyBytes)
	case err == nil:
		return look.End()
	case errors.Is(err, errBufferBudget) || describe(err).status == 400:
		return err
	}
	return fmt.Errorf("%w (%s)", errBodyCorrupt, strings.Join(codings, ", "))
}

var supported = []string{"gzip", "x-gzip", "deflate", "br", "zstd"}

// decoderOf returns a reader of what r holds under a supported coding.
func decoderOf(coding string, r io.Reader) (io.ReadCloser, error) {
	switch coding {
	case "gzip", "x-gzip":
		d, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("%w (gzip)", errBodyCorrupt)
		}
		return d, nil
	case "deflate":
		b := bufio.NewReader(r)
		if head, err := b.Peek(2); err == nil && isZlib(head) {
			if d, err := zlib.NewReader(b); err == nil {
				return d, nil
			}
			return nil, fmt.Errorf("%w (deflate)", errBodyCorrupt)
		}
		return flate.NewReader(b), nil // some clients leave out the zlib frame
	case "br":
		return io.NopCloser(brotli.NewReader(r)), nil
	}
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindowBytes), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("%w (zstd)", errBodyCorrupt)
	}
	return d.IOReadCloser(), nil
}

// isZlib reports whether two bytes are a zlib header: deflate with a window of
// at most 32 KiB, and a checksum over both (RFC 1950, section 2.2).
func isZlib(head []byte) bool {
	return head[0]&0x0f == 8 && head[0]>>4 <= 7 && (int(head[0])<<8|int(head[1]))%31 == 0
}
