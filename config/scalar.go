package config

import (
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/bits"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// setScalar reads one value from text into v.
func setScalar(v reflect.Value, text string, tr traits) error {
	t := v.Type()
	switch {
	case t == durationType:
		d, err := parseDuration(text, tr)
		if err != nil {
			return err
		}
		v.SetInt(int64(d))
	case isText(t):
		err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
		if err != nil && t == reflect.TypeFor[slog.Level]() {
			return errors.New("want debug, info, warn or error")
		}
		return err
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return errors.New("want true or false")
		}
		v.SetBool(text == "true")
	case v.CanInt():
		n, err := parseInt(text, tr.bytes)
		if err != nil {
			return err
		}
		if v.OverflowInt(n) {
			return errTooLarge
		}
		v.SetInt(n)
	case v.CanUint():
		n, err := strconv.ParseUint(strings.ReplaceAll(text, "_", ""), 10, 64)
		if err != nil || v.OverflowUint(n) {
			return errors.New("want a whole number of 0 or more")
		}
		v.SetUint(n)
	case v.CanFloat():
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return errors.New("want a number")
		}
		v.SetFloat(x)
	default:
		return fmt.Errorf("internal: no way to read a %s", t)
	}
	return nil
}

var errTooLarge = errors.New("the number is too large")

// offDuration is how a limit that is switched off is stored.
const offDuration = time.Duration(-1)

func parseDuration(text string, tr traits) (time.Duration, error) {
	want := "want a duration with its unit, such as 500ms, 5s or 2m"
	if tr.off {
		want += ", or off"
		if text == "off" {
			return offDuration, nil
		}
	}
	d, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		return 0, errors.New(want)
	}
	if d < 0 {
		return 0, errors.New(want + "; it can't be negative")
	}
	return d, nil
}

// units are the suffixes of numbers, as powers: SI's of 1000, IEC's of 1024.
var units = map[string]uint64{
	"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}

// parseInt reads a whole number with an optional unit: "4096", "1_000", "2 Mi",
// and of a byte count "64 MiB".
func parseInt(text string, bytes bool) (int64, error) {
	want := errors.New("want a whole number, such as 4096 or 4 Ki")
	if bytes {
		want = errors.New("want a size in bytes, such as 65536, 64 KiB or 1.5 GiB")
	}
	end := strings.LastIndexAny(text, "0123456789") + 1
	number, unit := strings.ReplaceAll(text[:end], "_", ""), strings.TrimSpace(text[end:])
	if bytes {
		unit = strings.TrimSuffix(unit, "B")
	}
	factor, ok := units[unit]
	if !ok {
		return 0, want
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errTooLarge
	}
	if err != nil {
		return parseFraction(number, factor, bytes, want)
	}
	magnitude := uint64(n)
	if n < 0 {
		magnitude = -magnitude
	}
	high, low := bits.Mul64(magnitude, factor)
	if high != 0 || low > math.MaxInt64 {
		return 0, errTooLarge
	}
	if n < 0 {
		return -int64(low), nil
	}
	return int64(low), nil
}

// parseFraction reads "1.5" of a unit of bytes.
func parseFraction(number string, factor uint64, bytes bool, want error) (int64, error) {
	whole, decimals, ok := strings.Cut(number, ".")
	if !bytes || !ok || factor == 1 || len(decimals) > 3 || strings.Trim(whole+decimals, "0123456789") != "" {
		return 0, want
	}
	x, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, want
	}
	if x *= float64(factor); x >= math.MaxInt64 {
		return 0, errTooLarge
	}
	return int64(x), nil
}

// formatScalar is the way back: what it returns reads as the same value.
func formatScalar(v reflect.Value, tr traits) string {
	switch {
	case v.Type() == durationType:
		return formatDuration(time.Duration(v.Int()), tr)
	case v.CanInt() && tr.bytes:
		return formatBytes(v.Int())
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		if text, err := m.MarshalText(); err == nil {
			return strings.ToLower(string(text))
		}
	}
	switch {
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	case v.CanFloat():
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	}
	return v.String()
}

func formatDuration(d time.Duration, tr traits) string {
	if d < 0 && tr.off {
		return "off"
	}
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} { // 10m0s is 10m, 1h0m is 1h
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

func formatBytes(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
