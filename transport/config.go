package transport

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Config is where a replica listens for its peers and how they know each other.
// Without secrets and TLS files there is no mesh, and no socket is opened.
type Config struct {
	// Listen is the UDP address for peers, host:port. Default ":7400".
	Listen string `yaml:"listen"`
	// Advertise is the address that peers reach this replica at, ip:port or ip.
	// Default: the address listened on; if that is a wildcard, the machine's
	// first address that isn't loopback.
	Advertise string `yaml:"advertise"`
	// Cluster is the name that all replicas of a mesh share: lower-case
	// letters, digits, '-' and '.', at most 63. Peers of other clusters are
	// refused. Default "default".
	Cluster string `yaml:"cluster"`
	// Secrets are what all replicas of the mesh share, 32 random bytes or more
	// each, for instance from `openssl rand -base64 32`. Each replica signs its
	// own certificate with the first; all of them are believed. To change the
	// secret, append the new one everywhere, then put it first everywhere, then
	// take the old one out.
	Secrets []string `yaml:"secrets" config:"secret"`
	// TLS are certificates from elsewhere, in place of secrets.
	TLS TLSFiles `yaml:"tls"`
}

// TLSFiles name PEM files; they are read again when they change. The
// certificate is for both clients and servers and has the SAN URI
// rhizome://<cluster>.
type TLSFiles struct {
	// CA holds the authorities whose certificates are believed.
	CA string `yaml:"ca"`
	// Cert is this replica's certificate, intermediate ones after it.
	Cert string `yaml:"cert"`
	// Key is the certificate's private key.
	Key string `yaml:"key"`
}

// Bounds of the settings.
const (
	minSecretBytes    = 32
	minSecretDistinct = 10 // different bytes in a secret; 32 random hex digits have 10 or more
	maxSecrets        = 4
	maxNameBytes      = 63
	maxBootBytes      = 128
	defaultPort       = 7400
)

var (
	clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	bootName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

// Enabled says whether there is a mesh to take part in.
func (c Config) Enabled() bool { return len(c.Secrets) > 0 || c.TLS != (TLSFiles{}) }

// WithDefaults returns c with every zero value replaced by its default.
func (c Config) WithDefaults() Config {
	c.Listen = cmp.Or(c.Listen, fmt.Sprintf(":%d", defaultPort))
	c.Cluster = cmp.Or(c.Cluster, "default")
	return c
}

// Validate says what in c, after WithDefaults, can't work; each problem begins
// with its key and none shows a secret.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	if !isHostPort(c.Listen) {
		errs = append(errs, fmt.Errorf("listen is %q: want host:port, such as \":7400\"", c.Listen))
	}
	if c.Advertise != "" {
		if a, err := parseAdvertise(c.Advertise, defaultPort); err != nil || a.Addr().IsUnspecified() {
			errs = append(errs, fmt.Errorf("advertise is %q: want an address that peers can reach, ip:port or ip", c.Advertise))
		}
	}
	if !clusterName.MatchString(c.Cluster) || len(c.Cluster) > maxNameBytes || strings.Contains(c.Cluster, "..") {
		errs = append(errs, fmt.Errorf("cluster is %q: want at most %d lower-case letters, digits, '-' and '.', letters or digits at both ends", c.Cluster, maxNameBytes))
	}
	if len(c.Secrets) > maxSecrets {
		errs = append(errs, fmt.Errorf("secrets has %d items: want %d or fewer", len(c.Secrets), maxSecrets))
	}
	for i, s := range c.Secrets {
		if err := checkSecret(s); err != nil {
			errs = append(errs, fmt.Errorf("secrets[%d] %w", i, err))
		}
	}
	switch t := c.TLS; {
	case t == (TLSFiles{}):
	case len(c.Secrets) > 0:
		errs = append(errs, errors.New("tls is set and so is secrets: want one of them"))
	case t.CA == "" || t.Cert == "" || t.Key == "":
		errs = append(errs, errors.New("tls is incomplete: want ca, cert and key"))
	}
	return errors.Join(errs...)
}

// isHostPort says whether text is host:port with a number for a port; whether
// the host exists is seen when listening.
func isHostPort(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func checkSecret(s string) error {
	if len(s) < minSecretBytes {
		return fmt.Errorf("has %d bytes: want %d random ones or more, for instance from `openssl rand -base64 32`", len(s), minSecretBytes)
	}
	distinct := make(map[byte]bool)
	for i := range len(s) {
		distinct[s[i]] = true
	}
	if len(distinct) < minSecretDistinct {
		return fmt.Errorf("has only %d different bytes: want random ones, for instance from `openssl rand -base64 32`", len(distinct))
	}
	return nil
}

// parseAdvertise reads ip:port or ip, with port for the latter.
func parseAdvertise(text string, port uint16) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a.Unmap(), port), nil
	}
	a, err := netip.ParseAddrPort(text)
	return canonical(a), err
}

// canonical is the one way an address is written in this package.
func canonical(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// advertised returns what peers reach a socket bound to local at.
func advertised(c Config, local netip.AddrPort) (netip.AddrPort, error) {
	if c.Advertise != "" {
		a, err := parseAdvertise(c.Advertise, local.Port())
		if err != nil {
			return a, fmt.Errorf("read mesh advertise address %q: %w", c.Advertise, err)
		}
		return a, nil
	}
	if !local.Addr().IsUnspecified() {
		return canonical(local), nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("find an address to advertise to peers: %w; set the mesh's advertise", err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			return netip.AddrPortFrom(p.Addr().Unmap(), local.Port()), nil
		}
	}
	return netip.AddrPort{}, errors.New("find an address to advertise to peers: this machine has only loopback ones; set the mesh's advertise")
}
