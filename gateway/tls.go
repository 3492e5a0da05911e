package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// TLSConfig names the files of the data listener's certificate. Changed files
// are taken up without a restart.
type TLSConfig struct {
	// Cert is a PEM file with the certificate and those between it and its root.
	Cert string `yaml:"cert,omitempty"`
	// Key is a PEM file with the certificate's private key.
	Key string `yaml:"key,omitempty"`
}

func (c TLSConfig) validate() error {
	if (c.Cert == "") != (c.Key == "") {
		return errors.New("tls: cert and key belong together: name both or neither")
	}
	return nil
}

// certificate is the pair of files as last read.
type certificate struct {
	files TLSConfig

	mu      sync.Mutex
	cert    *tls.Certificate
	changed [2]time.Time // when the files were last written
	looked  time.Time
}

// certificateLook is how often the files are looked at, at most.
const certificateLook = time.Second

// tlsConfig reads the certificate that cfg names; nil when it names none.
func tlsConfig(cfg TLSConfig) (*tls.Config, error) {
	if cfg.Cert == "" {
		return nil, nil
	}
	c := &certificate{files: cfg}
	if _, err := c.get(nil); err != nil {
		return nil, err
	}
	return &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// get returns the certificate. Files that have changed are read again; if they
// can't be, the certificate read before stays.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cert != nil && time.Since(c.looked) < certificateLook {
		return c.cert, nil
	}
	c.looked = time.Now()
	var changed [2]time.Time
	for i, name := range []string{c.files.Cert, c.files.Key} {
		info, err := os.Stat(name)
		if err != nil && c.cert == nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		if err == nil {
			changed[i] = info.ModTime()
		}
	}
	if c.cert != nil && changed == c.changed {
		return c.cert, nil
	}
	pair, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	switch {
	case err == nil:
		c.cert, c.changed = &pair, changed
	case c.cert == nil:
		return nil, fmt.Errorf("tls: read %s and %s: %w", c.files.Cert, c.files.Key, err)
	}
	return c.cert, nil
}
