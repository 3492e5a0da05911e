package prompt

import (
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Digits are read as by strconv, whatever follows; what is more than a token id
// stays so.
func TestWholeNumbers(t *testing.T) {
	check := func(fatalf func(string, ...any), digits, behind string) {
		n, length := wholeNumber([]byte(digits + behind))
		want, err := strconv.ParseUint(digits, 10, 64)
		if length != len(digits) || (err == nil && want <= math.MaxUint32 && n != want) || ((err != nil || want > math.MaxUint32) && n <= math.MaxUint32) {
			fatalf("%q before %q is read as %d, %d digits", digits, behind, n, length)
		}
	}
	for n := range 100_000 {
		check(t.Fatalf, strconv.Itoa(n), ", 123456789")
	}
	for _, c := range []string{"4294967295", "4294967296", "18446744073709551616", "99999999", "00000000", "12345678"} {
		check(t.Fatalf, c, "")
		check(t.Fatalf, c, "]      ")
	}
	if n, length := wholeNumber([]byte("-1234567")); n != 0 || length != 0 {
		t.Errorf("a sign is read as %d, %d digits", n, length)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t.Fatalf, rapid.StringMatching(`[0-9]{1,30}`).Draw(t, "digits"), rapid.StringMatching(`([^0-9].{0,9})?`).Draw(t, "behind"))
	})
}
