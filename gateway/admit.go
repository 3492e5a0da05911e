package gateway

import (
	"fmt"
	"mime"
	"strings"

	"github.com/rhizome-router/rhizome/prompt"
)

// admit is the second hop: it reads the request within the limits and finds
// out what routing needs of it.
func (g *Gateway) admit(x *exchange, kind prompt.Kind) error {
	if t, _, _ := mime.ParseMediaType(x.r.Header.Get("Content-Type")); strings.HasPrefix(t, "multipart/") {
		return fmt.Errorf("%w, not %s", errBodyType, shorten(t))
	}
	if err := g.readBody(x); err != nil {
		return err
	}
	plain, err := g.decoded(x)
	if err != nil {
		return err
	}
	p, err := prompt.Parse(kind, plain)
	if err != nil {
		return err
	}
	if p.Model == "" {
		return errNoModel
	}
	x.prompt = p
	x.header = workerHeader(x.r.Header, x.id, g.cfg.ForwardAuthorization)
	if g.cfg.TrustHints {
		x.session = boundedHint(x.r.Header.Get(headerWorkflow))
	}
	return nil
}

// maxHintBytes bounds a hint that names something.
const maxHintBytes = 256

func boundedHint(s string) string {
	if len(s) > maxHintBytes {
		return ""
	}
	return s
}
