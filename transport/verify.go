package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// uriScheme is the scheme of the SAN URI that names a replica.
const uriScheme = "rhizome"

// refusal is why a peer is not let in; its reason is a label of a metric.
type refusal struct {
	reason string
	detail string
}

func (r *refusal) Error() string { return r.detail }

// Reasons for refusals.
const (
	refusedNoCertificate = "no_certificate" // it showed none
	refusedAuthority     = "authority"      // signed by nobody we believe
	refusedExpired       = "expired"        // out of its time, or a clock is
	refusedCluster       = "cluster"        // of another cluster
	refusedVersion       = "version"        // speaks no major version of ours
	refusedHello         = "hello"          // its first words make no sense
	refusedCapacity      = "capacity"       // too many peers
)

var refusalReasons = []string{refusedNoCertificate, refusedAuthority, refusedExpired, refusedCluster, refusedVersion, refusedHello, refusedCapacity}

// verify checks a peer's certificates, leaf first, and returns the boot that
// they name, "" if none. The error is a *refusal.
func verify(certs []*x509.Certificate, roots *x509.CertPool, cluster string, now time.Time) (boot string, err error) {
	if len(certs) == 0 {
		return "", &refusal{refusedNoCertificate, "it shows no certificate; is it a replica of this mesh?"}
	}
	leaf := certs[0]
	others := x509.NewCertPool()
	for _, c := range certs[1:] {
		others.AddCert(c)
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: others, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // either
	})
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "", &refusal{refusedExpired, fmt.Sprintf("its certificate is good from %s to %s and it is %s here: check both clocks",
			leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))}
	case err != nil:
		return "", &refusal{refusedAuthority, "no authority of this mesh signed its certificate: has it the same mesh secret? (" + err.Error() + ")"}
	}
	var seen []string
	for _, u := range leaf.URIs {
		if u.Scheme != uriScheme {
			continue
		}
		if u.Host == cluster {
			return strings.TrimPrefix(u.Path, "/"), nil
		}
		seen = append(seen, u.Host)
	}
	if len(seen) == 0 {
		return "", &refusal{refusedCluster, fmt.Sprintf("its certificate names no cluster: want the SAN URI %s://%s", uriScheme, cluster)}
	}
	return "", &refusal{refusedCluster, fmt.Sprintf("it belongs to cluster %q and this is %q", seen[0], cluster)}
}

// gate makes the TLS settings of both sides of a connection.
type gate struct {
	identity identity
	cluster  string
	wall     func() time.Time
	// refused hears of each peer turned away, with its address.
	refused func(remote string, r *refusal)
}

// config returns what both sides have in common. refused hears of a peer turned
// away.
func (g *gate) config(refused func(*refusal)) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Time:                   g.wall,
		SessionTicketsDisabled: true, // every connection is verified in full
		// Both ends verify in VerifyConnection: names in certificates are
		// clusters and boots, not hosts, and a refusal has its reason there.
		InsecureSkipVerify:   true,
		ClientAuth:           tls.RequestClientCert,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return g.identity.certificate(g.wall()) },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return g.identity.certificate(g.wall()) },
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := verify(s.PeerCertificates, g.identity.roots(), g.cluster, g.wall())
			var r *refusal
			if errors.As(err, &r) {
				refused(r)
			}
			return err
		},
	}
}

// client returns the settings for a dial, whose error says what was refused.
func (g *gate) client(p Plane) *tls.Config {
	c := g.config(func(*refusal) {})
	c.NextProtos = []string{p.alpn()}
	return c
}

// server returns the settings for a listener.
func (g *gate) server() *tls.Config {
	c := g.config(func(*refusal) {})
	c.NextProtos = alpns()
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		remote := remoteOf(hello.Conn)
		if !slices.ContainsFunc(hello.SupportedProtos, func(p string) bool { return slices.Contains(alpns(), p) }) {
			g.refused(remote, &refusal{refusedVersion, fmt.Sprintf("it speaks %q and this replica %q: run releases whose major versions meet",
				clip(hello.SupportedProtos), alpns())})
		}
		c := g.config(func(r *refusal) { g.refused(remote, r) })
		c.NextProtos = alpns()
		return c, nil
	}
	return c
}

// clip bounds what a stranger can put into a log line.
func clip(protos []string) []string {
	protos = slices.Clone(protos[:min(len(protos), 4)])
	for i, p := range protos {
		protos[i] = p[:min(len(p), 32)]
	}
	return protos
}

func remoteOf(c net.Conn) string {
	if c == nil || c.RemoteAddr() == nil {
		return ""
	}
	return c.RemoteAddr().String()
}

// bootOf returns the boot that a verified connection's certificate names.
func (g *gate) bootOf(s tls.ConnectionState) string {
	boot, err := verify(s.PeerCertificates, g.identity.roots(), g.cluster, g.wall())
	if err != nil {
		return "" // it was verified in the handshake; a clock or a file moved since
	}
	return boot
}
