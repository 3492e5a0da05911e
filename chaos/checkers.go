package chaos

// Checkers returns all checkers, in the order of the report.
func Checkers() []Checker {
	return []Checker{
		requestsConserved(), loadReturns(), digestsEqual(), nobodyIgnored(), ticketsEnd(), leasesLinear(), tablesEqual(),
		deadAvoided(), regretBounded(), resourcesBounded(), faultsVisible(),
	}
}
