package chaos

// Checkers returns all checkers, in the order of the report.
func Checkers() []Checker {
	return []Checker{requestsConserved()}
}
