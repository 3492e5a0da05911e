package gateway

import "fmt"

// With returns a gateway that serves by cfg and shares everything else with g:
// metrics, the memory budget's account, the retries saved up, whether it
// drains. A request is served to its end by the gateway it came to, so that no
// limit changes in its middle. g stays as it is; on an error there is no other.
// The addresses in cfg have no effect: listeners belong to who opened them.
func (g *Gateway) With(cfg Config) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	next := *g
	next.cfg = cfg.WithDefaults()
	next.callers = newCallers(next.cfg.Keys, g.limits)
	if next.cfg.RetryShare != g.cfg.RetryShare {
		next.retries = newRetryBudget(next.cfg.RetryShare)
	}
	return &next, nil
}
