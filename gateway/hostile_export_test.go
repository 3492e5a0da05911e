package gateway

import (
	"net/http"

	"github.com/rhizome-router/rhizome/engine"
)

// SetDo lets tests of what is seen from outside run without sockets.
func (g *Gateway) SetDo(do func(*engine.Worker, *http.Request) (*http.Response, error)) { g.do = do }
