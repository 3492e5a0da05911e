package prompt

import (
	"errors"
	"fmt"
	"time"
)

// Config says how the tokens of text prompts become known. The zero value takes
// the defaults.
type Config struct {
	// Learn asks workers, beside the requests and seldom, which tokens prompts
	// have that are met again, so that text prompts have exact keys: on or off.
	// Default on.
	Learn Switch `yaml:"learn" config:"fixed"`
	// LearnShare is how many such questions a worker gets per request at most,
	// more than 0 and at most 1; default 0.02. A new worker may get 16 at once.
	LearnShare float64 `yaml:"learn_share" config:"fixed"`
	// MaxBytes bounds what is kept of what was learned; default 256 MiB.
	MaxBytes int64 `yaml:"max_bytes" config:"fixed"`
	// Tokenize is engine where a worker is asked for the tokens of each text
	// prompt before it is placed, or off. Asking costs a round trip for each
	// request that was not sent before. Default off.
	Tokenize Tokenize `yaml:"tokenize" config:"fixed"`
	// TokenizeWait is how long that may take, 1 ms to 10 s; then the prompt is
	// placed by what is known without. Default 200 ms.
	TokenizeWait time.Duration `yaml:"tokenize_wait" config:"fixed"`
}

// Tokenize says who is asked for the tokens of a prompt before it is placed.
type Tokenize string

// The settings of Tokenize.
const (
	TokenizeOff    Tokenize = "off"
	TokenizeEngine Tokenize = "engine"
)

const defaultTokenizeWait = 200 * time.Millisecond

// Switch is on or off.
type Switch string

// The settings of a Switch.
const (
	On  Switch = "on"
	Off Switch = "off"
)

const defaultLearnShare = 0.02

// WithDefaults returns c with every zero value replaced by its default.
func (c Config) WithDefaults() Config {
	if c.Learn == "" {
		c.Learn = On
	}
	if c.LearnShare == 0 {
		c.LearnShare = defaultLearnShare
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultLearnedBytes
	}
	if c.Tokenize == "" {
		c.Tokenize = TokenizeOff
	}
	if c.TokenizeWait == 0 {
		c.TokenizeWait = defaultTokenizeWait
	}
	return c
}

// Validate says what in c, after WithDefaults, can't work; each problem begins
// with its key.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	if c.Learn != On && c.Learn != Off {
		errs = append(errs, fmt.Errorf("learn is %q: want on or off", c.Learn))
	}
	if !(c.LearnShare > 0 && c.LearnShare <= 1) {
		errs = append(errs, fmt.Errorf("learn_share is %v: want more than 0 and at most 1", c.LearnShare))
	}
	if c.MaxBytes < 1<<20 {
		errs = append(errs, fmt.Errorf("max_bytes is %d: want 1 MiB or more", c.MaxBytes))
	}
	if c.Tokenize != TokenizeOff && c.Tokenize != TokenizeEngine {
		errs = append(errs, fmt.Errorf("tokenize is %q: want off or engine", c.Tokenize))
	}
	if c.TokenizeWait < time.Millisecond || c.TokenizeWait > 10*time.Second {
		errs = append(errs, fmt.Errorf("tokenize_wait is %v: want 1ms to 10s", c.TokenizeWait))
	}
	return errors.Join(errs...)
}
