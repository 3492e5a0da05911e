package config

import (
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What is printed reads as the same value.
func TestScalarsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type values struct {
			D time.Duration
			O time.Duration
			I int64
			N int
			U uint64
			F float64
			B bool
		}
		want := values{
			D: time.Duration(rapid.Int64Min(0).Draw(t, "duration")), O: time.Duration(rapid.Int64Range(-1, 5).Draw(t, "or off")),
			I: rapid.Int64Min(-math.MaxInt64).Draw(t, "bytes"), N: rapid.IntMin(-math.MaxInt).Draw(t, "int"), U: rapid.Uint64().Draw(t, "uint"),
			F: rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64).Draw(t, "float"), B: rapid.Bool().Draw(t, "bool"),
		}
		var got values
		from, to := reflect.ValueOf(want), reflect.ValueOf(&got).Elem()
		for i := range from.NumField() {
			name := from.Type().Field(i).Name
			tr := traits{off: name == "O", bytes: name == "I"}
			text := formatScalar(from.Field(i), tr)
			if err := setScalar(to.Field(i), text, tr); err != nil {
				t.Fatalf("%s printed as %q: %v", name, text, err)
			}
		}
		if got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// Text comes back through a whole document, whatever stands in it.
func TestTextComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"1", "0x1F", "1e3", ".5", "~", "null", "yes", "a: b", "a #b", "-", "- a", "<<", "1:30", "2026-01-01", "&a", "*a", "!a", "%a", "@a", "`", "a\tb", " a ", "é", "\u2028"})).
			Filter(func(s string) bool { return s != "" }).Draw(t, "name")
		loaded, err := load([]byte("name: " + quoted(name) + "\n"))
		if err != nil {
			t.Fatalf("%q written as %s: %v", name, quoted(name), err)
		}
		if loaded.Config.Name != name {
			t.Fatalf("%q written as %s reads as %q", name, quoted(name), loaded.Config.Name)
		}
	})
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		text  string
		bytes bool
		want  int64
		bad   bool
	}{
		{"4096", false, 4096, false}, {"4 Ki", false, 4096, false}, {"2k", false, 2000, false}, {"1_000", false, 1000, false},
		{"-3", false, -3, false}, {"64 MiB", true, 64 << 20, false}, {"64MB", true, 64e6, false}, {"1.5 GiB", true, 3 << 29, false},
		{"0", true, 0, false}, {"8 Ei", true, 0, true}, {"9223372036854775807", false, math.MaxInt64, false},
		{"9223372036854775808", false, 0, true}, {"9 T", false, 9e12, false}, {"9999999999 G", false, 0, true}, {"1.5", true, 0, true},
		{"1.5", false, 0, true}, {"", false, 0, true}, {"B", true, 0, true}, {"4 KiB", false, 0, true}, {"0x10", false, 0, true},
		{"1.5.5 GiB", true, 0, true}, {"-1.5 GiB", true, 0, true}, {"1e3", false, 0, true}, {"9999999999999.5 TiB", true, 0, true},
	} {
		got, err := parseInt(c.text, c.bytes)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%q (bytes %v) is %d, %v", c.text, c.bytes, got, err)
		}
	}
}

func TestSuggestions(t *testing.T) {
	names := []string{"listen", "max_attempts", "token", "tls", "cors"}
	for word, want := range map[string]string{"listne": "listen", "maxattempts": "max_attempts", "Token": "token", "tsl": "tls", "zzz": "", "": "", "cor": "cors"} {
		if got := suggest(word, names); got != want {
			t.Errorf("%q suggests %q, want %q", word, got, want)
		}
	}
}
