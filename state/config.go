package state

import "fmt"

// Config says where a replica keeps what it has learned. The zero value keeps
// nothing.
type Config struct {
	// Dir is the directory for what should outlive a restart: what was learned of
	// the tokens of prompts, of the workers' speed, and where sessions were last.
	// It is saved each minute and at the end, in one file, and holds no text of
	// prompts. Each replica needs its own. Default: nothing is kept.
	Dir string `yaml:"dir"`
	// MaxBytes bounds the file, 1 MiB or more; default 512 MiB.
	MaxBytes int64 `yaml:"max_bytes"`
}

const (
	defaultMaxBytes = 512 << 20
	minMaxBytes     = 1 << 20
)

// WithDefaults returns c with every zero value replaced by its default.
func (c Config) WithDefaults() Config {
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultMaxBytes
	}
	return c
}

// Validate says what in c, after WithDefaults, can't work; each problem begins
// with its key.
func (c Config) Validate() error {
	if n := c.WithDefaults().MaxBytes; n < minMaxBytes {
		return fmt.Errorf("max_bytes is %d: want %d or more", n, minMaxBytes)
	}
	return nil
}
