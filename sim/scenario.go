package sim

// Column says what the routers under test know of the workers' constants.
type Column string

// The columns.
const (
	// Oracle: the true constants.
	Oracle Column = "oracle"
	// Learned: generic ones to start with, and what the online fit makes of
	// them. Every default is judged here.
	Learned Column = "learned"
	// Misspecified: each constant twice or half the true one, bandwidths a
	// third, and no fit.
	Misspecified Column = "misspecified"
)

// Scenario is one experiment: what work meets what fleet.
type Scenario struct {
	Name string `json:"name"`
	// Set is the half of the data it belongs to: "A", on which parameters are
	// tuned, or "B", on which results are reported.
	Set string `json:"set"`
}
